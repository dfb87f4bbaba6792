"""RPC over AMQP 0.9.1: engines and messages of callers and responders."""
