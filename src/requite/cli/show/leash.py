"""Run a module as `python -m` does, in a process that does not outlive the one that started it.

    python -m requite.cli.show.leash PARENT_PID MODULE [ARGUMENTS]...
    python -m requite.cli.show.leash PARENT_PID --program PROGRAM [ARGUMENTS]...

A parent that is killed cannot clean up after itself, so the child watches: on Linux the kernel
sends it SIGKILL, which also ends a stopped process; elsewhere a thread looks every half second. The
second form becomes a program, which is watched on Linux alone.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

_LOOK_EVERY_S: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
PROGRAM: Final = "--program"


def main() -> None:
    """Tie this process to its parent, then become the module, or the program."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    _tie_to(parent)
    if module == PROGRAM:
        os.execvp(sys.argv[3], sys.argv[3:])
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _tie_to(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it had gone before the kernel was asked
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    main()
