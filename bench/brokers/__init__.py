"""Brokers to compare with, one process each: `python -m bench.brokers.NAME --bind ADDRESS`."""

from __future__ import annotations

import argparse


def bind_argument(description: str) -> str:
    """Return the argument of --bind."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--bind",
        default="tcp://127.0.0.1:0",
        help="address to listen at; port 0 chooses a free port",
    )
    return str(parser.parse_args().bind)


def announce(endpoint: str) -> None:
    """Print the address of the broker, as `requite broker` does."""
    print(f"listening on {endpoint}", flush=True)
