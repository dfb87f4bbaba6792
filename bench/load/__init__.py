"""The raw load generator: plain sockets, wire formats made by hand.

libzmq and client libraries would hand messages over between threads and cost more than the brokers
under test; here one read takes all that has arrived and one write answers it, so that the broker is
the only thing that differs between two runs.
"""
