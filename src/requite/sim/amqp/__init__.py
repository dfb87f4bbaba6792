"""Simulations of RPC over AMQP: callers, responders, and a model of RabbitMQ that speaks frames.

seed ──scenarios.py──► AmqpKnobs ──simulation.py, faults.py──► what will happen
speech.py          what RabbitMQ says, and how it reads what its clients say
server_framing.py  RabbitMQ's side of the handshake, and frames
store.py           queues, exchanges, bindings; what of them survives the end
sessions.py, server.py: connections and channels, and what a client may ask
rabbit.py          its process
party.py, clients.py, workers.py: those who keep a connection to it
watch.py           every input and effect of an engine, seen from outside
checkers.py        what must hold; tables.py: when nothing goes wrong any more
simulation.py      all of it in order
"""
