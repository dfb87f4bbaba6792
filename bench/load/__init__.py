"""The raw load generator: plain sockets, hand-made wire formats.

libzmq and client libraries pass messages between threads, which costs more than the brokers under
test. Here one read receives all pending data and one write answers it, so that only the broker
differs between two runs.
"""
