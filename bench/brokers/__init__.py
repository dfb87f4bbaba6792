"""Brokers to compare with. Each is a process: `python -m bench.brokers.NAME --bind ADDRESS`."""

from __future__ import annotations

import argparse


def bind_argument(description: str) -> str:
    """Read the one argument that every broker of the bench takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bind", default="tcp://127.0.0.1:0", help="port 0: any free one")
    return str(parser.parse_args().bind)


def announce(endpoint: str) -> None:
    """Say where the broker listens, as `requite broker` does."""
    print(f"listening on {endpoint}", flush=True)
