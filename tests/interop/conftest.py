"""Brokers and sockets for the tests with foreign peers."""

from tests.support.live import broker, make_broker, processes, sockets, workers

__all__ = ["broker", "make_broker", "processes", "sockets", "workers"]
