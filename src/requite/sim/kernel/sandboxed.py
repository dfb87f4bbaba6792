"""The child's side of a sandbox: `python -m requite.sim.kernel.sandboxed FD`.

It receives a function and its limits once, then arguments for each run.
`requite.sim.kernel.sandbox` starts it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from math import ceil
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple

_OUTPUT_SIZE_MAX: Final = 64 << 20
_ERROR_SIZE_MAX: Final = 4000
_ORPHAN_S: Final = 5


class Limits(NamedTuple):
    """The limits of one run: its duration, and the memory of the process, which must not exhaust
    the machine."""

    run_s: float = 60.0
    memory_size: int = 4 << 30


def main() -> None:
    """Run the work for all arguments from the pipe, until its other end is closed."""
    pipe = Connection(int(sys.argv[1]))
    work, limits = pickle.loads(pipe.recv_bytes())
    _restrict(limits)
    run = _load(work, pipe)
    jobs: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(pipe, jobs), daemon=True).start()
    pipe.send_bytes(b"")
    while True:
        args = pickle.loads(jobs.get())
        # Both work even if the run never yields to another thread of this process. The alarm is for
        # a parent that has ended and cannot kill this process.
        faulthandler.dump_traceback_later(limits.run_s)
        signal.alarm(ceil(limits.run_s) + _ORPHAN_S)
        answer = _attempt(run, args)
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        pipe.send_bytes(answer)


def _restrict(limits: Limits) -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, limits.memory_size)
    _lower(resource.RLIMIT_FSIZE, _OUTPUT_SIZE_MAX)


def _lower(what: int, limit: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _load(work: bytes, pipe: Connection) -> Callable[..., Any]:
    try:
        run: Callable[..., Any] = pickle.loads(work)
    except Exception:
        pipe.send_bytes(traceback.format_exc().encode())
        sys.exit(1)
    return run


def _listen(pipe: Connection, jobs: SimpleQueue[bytes]) -> None:
    """Receive arguments; end the process at once when the parent has closed the pipe."""
    while True:
        try:
            jobs.put(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def _attempt(run: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Return the pickled result of the work, or the traceback of its exception."""
    try:
        return pickle.dumps((None, run(*args)))
    except Exception:
        return pickle.dumps((traceback.format_exc()[-_ERROR_SIZE_MAX:], None))


if __name__ == "__main__":
    main()
