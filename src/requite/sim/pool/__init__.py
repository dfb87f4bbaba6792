"""Simulations of worker pools at RabbitMQ: real managers, and models of everything else.

knobs.py        the parameters of a run
scenarios.py    the scenarios, and how knobs are drawn
rabbit.py       RabbitMQ (see `requite.sim.rabbitmq`), with a management API
manager.py      the process of a manager, with its HTTP client and driver
node.py         a process that can crash, with a connection that can break: of workers and callers
driver.py       a driver that can be slow and fail, and the groups that it runs
worker.py       workers: they serve, fail, stall, crash, and report their activity
callers.py      callers: they publish requests
ledger.py       records what happens to each request, and checks it
faults.py       injects faults
simulation.py   the phases of a run
"""
