"""Simulations of RPC over AMQP: callers, responders, and a model of RabbitMQ that speaks AMQP.

knobs.py, scenarios.py   the parameters of a run, and how a seed draws them
store.py                 the queues that exist from the beginning, in a model of RabbitMQ
                         (`rabbitmq/`)
parties.py, faults.py    the processes, the observer of their engines, and the faults of RabbitMQ
words.py                 reads and describes messages without the code of the engines under test
checkers.py              the invariants
simulation.py            the checkers, tables and phases of a run
"""
