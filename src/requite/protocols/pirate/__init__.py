"""The Pirates: a client that retries, and queues with simple and paranoid workers (6/PPP)."""
