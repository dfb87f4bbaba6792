"""A model of RabbitMQ: messages, queues, exchanges and bindings.

Two simulated servers use it: `amqp/server.py` speaks AMQP 0.9.1 over simulated connections;
`pool/rabbit.py` has one method call per AMQP method, and a management API.
"""
