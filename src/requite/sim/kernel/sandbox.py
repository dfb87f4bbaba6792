"""Run work that may hang or crash, in a child process that can be killed.

A `Sandbox` reuses one child for many runs, since starting an interpreter costs more than most runs.
It replaces the child only when a run hangs or crashes. The child ends with its parent, even in the
middle of a run, and even if the parent is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import IO, Any, Final, NamedTuple

from requite.errors import RequiteError
from requite.sim.kernel.sandboxed import Limits

_START_S: Final = 60.0
# The time in which a child that timed out writes its stacks.
_LAST_WORDS_S: Final = 0.5
_LAST_WORDS_SIZE: Final = 2000


class SandboxBroken(RequiteError):
    """A child process cannot start its work; the message has its last output."""


class Returned(NamedTuple):
    """The work returned `value`."""

    value: Any
    elapsed_s: float


class Crashed(NamedTuple):
    """The work raised, or its process ended; `error` is the traceback or the exit code."""

    error: str
    elapsed_s: float


class Hung(NamedTuple):
    """The work timed out; `error` has its stacks, if they could be read."""

    error: str
    elapsed_s: float


class Sandbox:
    """A child process that runs one function repeatedly, with other arguments each time.

    `work` is the pickled function; if the child cannot import it, pickle it by value with
    cloudpickle. `limit_s` applies to each run. One run at a time: it is not thread-safe.
    """

    def __init__(self, work: bytes, limits: Limits) -> None:
        self._work = work
        self._limits = limits
        self._child: _Child | None = None

    def run(self, *args: Any) -> Returned | Crashed | Hung:
        """Run the work with `args`, which must be picklable, and wait for its end.

        Raises `SandboxBroken` if no child can be started, or cannot unpickle the work.
        """
        child = self._child
        if child is None:
            child = self._child = _Child(self._work, self._limits)
        outcome = child.run(args)
        if child.is_spent:
            self.close()
        return outcome

    def close(self) -> None:
        """End the child; the next run starts a new one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Child:
    """One process; it `is_spent` after a run that ended it."""

    def __init__(self, work: bytes, limits: Limits) -> None:
        self.is_spent = False
        self._limit_s = limits.run_s
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        self._pipe, theirs = Pipe()
        try:
            self._process = _start(theirs, self._output)
        finally:
            theirs.close()
        self._pipe.send_bytes(pickle.dumps((work, limits)))
        self._await_start()

    def _await_start(self) -> None:
        try:
            if self._pipe.poll(_START_S):
                problem = self._pipe.recv_bytes().decode()
            else:
                problem = f"it does not start within {_START_S:.0f} s"
        except (EOFError, OSError):
            problem = self._end()
        if problem:
            self.kill()
            raise SandboxBroken(f"a child process for isolated work does not start: {problem}")

    def run(self, args: tuple[Any, ...]) -> Returned | Crashed | Hung:
        self._forget_output()
        start = monotonic()
        try:
            self._pipe.send_bytes(pickle.dumps(args))
            if not self._pipe.poll(self._limit_s + _LAST_WORDS_S):
                self.is_spent = True
                return Hung(self._where(), monotonic() - start)
            error, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self.is_spent = True
            return Crashed(self._end(), monotonic() - start)
        elapsed_s = monotonic() - start
        return Crashed(error, elapsed_s) if error else Returned(value, elapsed_s)

    def _where(self) -> str:
        return f"no end within {self._limit_s:g} s\n{self._last_words()}".rstrip()

    def _end(self) -> str:
        """Return how the process ended; its pipe is already closed."""
        code = self._process.wait(_START_S)
        how = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        return f"its process ended: {how}\n{self._last_words()}".rstrip()

    def _forget_output(self) -> None:
        self._output.seek(0)
        self._output.truncate()

    def _last_words(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _LAST_WORDS_SIZE))
        return self._output.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """Kill the process and free its resources."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()
        self._output.close()


def _start(pipe: Connection, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start an interpreter with the module path of this one, including archives added by Spark."""
    fd = pipe.fileno()
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "requite.sim.kernel.sandboxed", str(fd)],
        stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(fd,),
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
