"""RPC over AMQP 0.9.1: the engines of callers and responders, and what they put into messages."""
