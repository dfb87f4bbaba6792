"""Brokers, sockets and processes for the tests from end to end."""

from tests.support.live import broker, make_broker, processes, sockets, workers

__all__ = ["broker", "make_broker", "processes", "sockets", "workers"]
