"""Run a module as `python -m` does, in a process that does not outlive another one: the demo.

    python -m requite.cli.show.tether FILE MODULE [ARGUMENTS]...

For processes that somebody else starts than the one that they must not outlive, as the manager of
a pool starts its workers. That one holds the lock on FILE for as long as it lives; a thread waits
for it here, and ends this process when it is given.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the lock; no process that is started meanwhile inherits it."""
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Tie this process to who holds the lock, then become the module."""
    file, module = sys.argv[1:3]
    threading.Thread(target=_watch, args=(file,), daemon=True).start()
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(file: str) -> None:
    """Wait until nobody holds the lock any more."""
    try:
        with open(file) as awaited:
            fcntl.flock(awaited, fcntl.LOCK_SH)
    finally:  # the file may be gone with its holder
        os._exit(1)


if __name__ == "__main__":
    main()
