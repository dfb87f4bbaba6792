"""Simulations of worker pools: the engine of a manager, around a model of RabbitMQ.

knobs.py        what a run is made of
scenarios.py    what may go wrong
queue.py        a queue of RabbitMQ: deliveries, limits, deaths
rabbit.py       exchanges, bindings, connections, confirms, and the management API
node.py         a process that can die, with a connection that can break
manager.py      a manager: the engine, and what its shell does
driver.py       a driver, slow and failing, and the groups that it runs
worker.py       workers: they serve, fail, stall, die, and report what they do
callers.py      who asks
ledger.py       what has become of each request, and what must hold of it
faults.py       faults
simulation.py   all of it, in phases
"""
