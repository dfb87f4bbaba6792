"""The broker of PyPI's `majortomo`, with nothing changed but where it says that it listens.

Its own command line logs a line per reply; this one leaves logging at Python's default (warnings),
so that the comparison is of brokers and not of log handlers.

Run as `python -m bench.brokers.majortomo_broker --bind tcp://127.0.0.1:0`.
"""

from __future__ import annotations

import majortomo.broker
import zmq

from bench.brokers import announce, bind_argument


class AnnouncingBroker(majortomo.broker.Broker):
    """Says which port it got; the library has no way to ask."""

    def bind(self) -> None:
        """Bind as the library does, then say where."""
        super().bind()
        announce(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))


if __name__ == "__main__":
    AnnouncingBroker(bind=bind_argument(__doc__)).run()
