"""A model of RabbitMQ, which speaks AMQP 0.9.1 over simulated connections.

published.py, queue.py, exchanges.py    messages, queues, exchanges and bindings
store.py           which queues and messages survive a crash
sessions.py        connections and channels; server.py: handles the methods of clients
publishing.py      published messages: routed, stored, confirmed; direct replies
server_methods.py  AMQP methods from the server's side: encoded, and decoded
server_framing.py  the server's side of the handshake, and of frames
process.py         the process of RabbitMQ
checkers.py        what the server reports of its clients

`amqp/` has the engines of callers and responders at it, `pool/` the programs of a pool.
"""
