"""Simulations of RPC over AMQP: callers, responders, and a model of RabbitMQ that speaks AMQP.

seed ──scenarios.py──► AmqpKnobs ──simulation.py, faults.py──► Plan: calls and faults
store.py           the queues that exist from the beginning, in a model of RabbitMQ (`rabbitmq/`)
party.py           a process that stays connected to RabbitMQ; clients.py, workers.py
watch.py           observes every input and effect of an engine
checkers.py        the invariants; tables.py: the expected tables once faults have ended
simulation.py      the phases of a run
"""
