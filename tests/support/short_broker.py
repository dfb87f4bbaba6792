"""A broker with a custom handshake time-out, for which `requite broker` has no option.

    python -m tests.support.short_broker HANDSHAKE_TIMEOUT_S [ADDRESS]

It listens at a free port of TCP, and at ADDRESS; it prints where.
"""

from __future__ import annotations

import logging
import sys

from requite.broker import Broker
from requite.shell.host import LinkLimits


def main() -> None:
    """Run the broker until SIGTERM."""
    handshake_timeout_s, *further = sys.argv[1:]
    logging.basicConfig()
    links = LinkLimits(handshake_timeout_s=float(handshake_timeout_s))
    broker = Broker("tcp://127.0.0.1:0", *further, links=links)
    broker.run(lambda: print(f"listening on {' '.join(broker.endpoints)}", flush=True))


if __name__ == "__main__":
    main()
