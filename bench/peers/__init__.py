"""End to end: each contender's own client and worker, written as in its documentation.

python -m bench.peers.NAME worker JOB        prints `ready`, then serves
python -m bench.peers.NAME client JOB        prints the run's figures
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import Job


def play(client: Callable[[Job], None], worker: Callable[[Job], None]) -> None:
    """Run the role that the command line names."""
    role, job = sys.argv[1:]
    {"client": client, "worker": worker}[role](Job.from_argument(job))


def ready() -> None:
    """Print `ready`: the runner waits for this line of a worker."""
    print("ready", flush=True)
