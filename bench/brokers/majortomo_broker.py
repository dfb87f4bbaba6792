"""The broker of PyPI's `majortomo`; the only change is that it prints its address.

Its own command line logs a line per reply. This one leaves logging at Python's default (warnings),
so that the benchmark compares brokers and not log handlers.

Run as `python -m bench.brokers.majortomo_broker --bind tcp://127.0.0.1:0`.
"""

from __future__ import annotations

import majortomo.broker
import zmq

from bench.brokers import announce, bind_argument


class AnnouncingBroker(majortomo.broker.Broker):
    """Prints its port, which the library does not expose."""

    def bind(self) -> None:
        """Bind as the library does, then print the address."""
        super().bind()
        announce(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))


if __name__ == "__main__":
    AnnouncingBroker(bind=bind_argument(__doc__)).run()
