"""Simulations of RPC over AMQP: callers, responders, and a model of RabbitMQ that speaks AMQP.

seed ──scenarios.py──► AmqpKnobs ──simulation.py, faults.py──► Plan: calls and faults
server_methods.py  AMQP methods from the server's side: encoded, and decoded
published.py       a published message: its properties and body
server_framing.py  the server's side of the handshake, and of frames
store.py           queues, exchanges and bindings, and which messages survive a crash
sessions.py        connections and channels; server.py: handles the methods of clients
rabbit.py          the process of RabbitMQ
party.py           a process that stays connected to RabbitMQ; clients.py, workers.py
watch.py           observes every input and effect of an engine
checkers.py        the invariants; tables.py: the expected tables once faults have ended
simulation.py      the phases of a run
"""
