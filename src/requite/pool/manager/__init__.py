"""The manager of a pool: its engine on an event loop, with RabbitMQ on one side and a driver on the
other.

    manager.py     `PoolManager`: feeds the engine, and performs what it asks for
    keeping.py     keeps a connection to RabbitMQ, and the right to decide
    rabbit.py      one connection: what is declared, consumed and published
    connection.py  the connection itself, and its channels
    management.py  RabbitMQ's management API: which queues there are
    brokered.py    keeps it at a broker of MDP instead, which has services in place of queues
    services.py    what that broker tells
    standing.py    which of several managers decides there
    refusals.py    requests there that no group will serve
    carrier.py     the interface of both; `choice.py` selects one
    crew.py        the driver, asked by the engine
    environment.py what workers are told
    messages.py    messages as they came, and the properties of what is published
    errors.py      what goes wrong with RabbitMQ, by the setting to look at
    poison.py      requests that killed their workers: listed, tried again
    status.py      what is told of it all
    managed.py     the interface of the manager to its endpoints
    endpoints.py   /health, /ready, /status, /metrics, and commands of operators
"""

from requite.pool.manager.manager import PoolManager

__all__ = ["PoolManager"]
