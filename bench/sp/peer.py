"""Shared code of the Python peers: the command line, and the output of the port."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from bench.job import Job


def play(parts: Mapping[str, Callable[[Job], None]]) -> None:
    """Run the part that the command line names: `python -m MODULE PART JOB`."""
    part, job = sys.argv[1:]
    parts[part](Job.from_argument(job))


def say_where(address: object) -> None:
    """Print the port of this process for the runner."""
    print(f"listening on tcp://127.0.0.1:{str(address).rpartition(':')[2]}", flush=True)
