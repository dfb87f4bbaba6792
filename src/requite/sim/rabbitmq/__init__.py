"""A model of RabbitMQ: messages, queues, exchanges and bindings.

Two servers are made of it: `amqp/server.py` speaks AMQP 0.9.1 over simulated connections;
`pool/rabbit.py` takes calls in place of methods, and has a management API.
"""
