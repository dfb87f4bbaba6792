"""The Pirates: a client that asks again, and queues with simple and paranoid workers (6/PPP)."""
