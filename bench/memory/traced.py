"""Run a module under tracemalloc: `python -m bench.memory.traced MODULE ARGUMENTS`.

At the first SIGUSR1 it remembers what is allocated. At each later one it prints what has been
allocated since, by line of code, and then `traced`.
"""

from __future__ import annotations

import gc
import runpy
import signal
import sys
import tracemalloc
from typing import Final

_LINES: Final = 25


class Tracer:
    """Prints the lines that have allocated most since the first signal."""

    def __init__(self) -> None:
        self._before: tracemalloc.Snapshot | None = None

    def __call__(self, *_signal: object) -> None:
        """Take a snapshot; print the differences to the first one."""
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        if self._before is None:
            self._before = snapshot
        else:
            for each in snapshot.compare_to(self._before, "lineno")[:_LINES]:
                frame = each.traceback[0]
                print(f"{each.size_diff} {each.count_diff} {frame.filename}:{frame.lineno}")
        print("traced", flush=True)


def main() -> None:
    """Run the module of the command line."""
    signal.signal(signal.SIGUSR1, Tracer())
    tracemalloc.start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
