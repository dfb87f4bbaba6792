"""A broker whose handshake timeout is given on the command line; the command has no option for it.

python -m tests.support.short_broker SECONDS
"""

from __future__ import annotations

import sys

from requite.broker import Broker
from requite.shell.host import LinkLimits


def main() -> None:
    """Run it until SIGTERM; print where it listens."""
    links = LinkLimits(handshake_timeout_s=float(sys.argv[1]))
    broker = Broker("tcp://127.0.0.1:0", links=links)
    broker.run(lambda endpoints: print(f"listening on {endpoints[0]}", flush=True))


if __name__ == "__main__":
    main()
