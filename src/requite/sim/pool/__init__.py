"""Simulations of worker pools: real managers, workers and callers, at a model of RabbitMQ.

knobs.py        the parameters of a run
scenarios.py    the scenarios, and how knobs are drawn
store.py        the queues of RabbitMQ (see `requite.sim.rabbitmq`); management.py: its HTTP API
member.py       the base of the programs, whose connections can break
manager.py      the program of a manager, with its HTTP client and driver
driver.py       a driver that can be slow and fail, and the groups that it runs
worker.py       the program of a worker, whose handler serves, fails, stalls or crashes
callers.py      the program of a caller
ledger.py       records what happens to each request, and checks it
faults.py       injects faults
simulation.py   the phases of a run
"""
