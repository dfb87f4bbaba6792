"""Simulations of worker pools: the engine of a manager, with a model of RabbitMQ.

knobs.py        the parameters of a run
scenarios.py    the scenarios, and how knobs are drawn
rabbit.py       RabbitMQ: exchanges, bindings, connections, confirms, and the management API;
                its queues are those of `requite.sim.rabbitmq`
node.py         a process that can crash, with a connection that can break
manager.py      a manager: the engine, and what its shell does
driver.py       a driver that can be slow and fail, and the groups that it runs
worker.py       workers: they serve, fail, stall, crash, and report their activity
callers.py      callers: they publish requests
ledger.py       records what happens to each request, and checks it
faults.py       injects faults
simulation.py   the phases of a run
"""
