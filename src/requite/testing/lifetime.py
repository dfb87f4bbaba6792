"""Run a module or a program in a process that ends together with another process.

    python -m requite.testing.lifetime --parent PID -m MODULE [ARGUMENTS]...
    python -m requite.testing.lifetime --parent PID PROGRAM [ARGUMENTS]...
    python -m requite.testing.lifetime --lock FILE -m MODULE [ARGUMENTS]...

`--parent`: ends with its parent, even if SIGKILL ends that one. On Linux the kernel sends SIGKILL,
which also ends a stopped process. Elsewhere a thread polls the parent's id, for modules only.

`--lock`: ends when FILE is unlocked, for processes that another one than the lock's holder starts,
such as the workers that a pool manager starts for a demo. For modules only.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


@contextmanager
def lock(file: Path) -> Iterator[None]:
    """Hold the exclusive lock on a new file. Child processes do not inherit it."""
    import fcntl

    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Bind the lifetime of this process, then run the module or the program in it."""
    option, value, *command = sys.argv[1:]
    if option == "--parent":
        _end_with_parent(int(value))
    else:
        threading.Thread(target=_await_unlock, args=(value,), daemon=True).start()
    if command[0] != "-m":
        os.execvp(command[0], command)
    sys.argv = command[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)
    else:
        threading.Thread(target=_poll_parent, args=(parent,), daemon=True).start()


def _poll_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


def _await_unlock(file: str) -> None:
    import fcntl

    try:
        with open(file) as held:
            fcntl.flock(held, fcntl.LOCK_SH)
    finally:  # also if the holder removed the file
        os._exit(1)


if __name__ == "__main__":
    main()
