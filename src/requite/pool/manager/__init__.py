"""The manager of a pool: its engine on an event loop, between RabbitMQ and a driver.

manager.py         `PoolManager`: feeds the engine and performs its effects
carrier.py         the interface to RabbitMQ or a broker; `choice.py` selects one
rabbit_carrier.py  keeps a manager connected to RabbitMQ, active or on standby
rabbit.py          one connection: declares, consumes and publishes
connection.py      the connection itself, and its channels
address.py         the connection settings in `rabbitmq.url`
management.py      the management API: which request queues exist
requestqueues.py   request queues: declared over AMQP, listed over the management API
verification.py    compares a request queue with its settings
broker_carrier.py  keeps a manager connected to a broker of MDP
services.py        lists the services of a pool at that broker
election.py        elects one active manager at that broker
refusals.py        refuses requests there that no group can serve
driver_runner.py   calls the driver with a timeout
environment.py     the environment variables of workers
messages.py        deliveries, and the properties of published messages
errors.py          RabbitMQ's errors, with the setting to check
poison.py          requests that killed their workers: listed, retried
status.py          status as JSON
metrics.py         metrics for Prometheus
managed.py         the interface of the manager to its endpoints
endpoints.py       /health, /ready, /status, /metrics, and commands of operators
guard.py           refuses requests of foreign web pages, and changes without the token
"""

from requite.pool.manager.manager import PoolManager

__all__ = ["PoolManager"]
