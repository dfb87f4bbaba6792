"""Child processes of a run: started, waited for, and always ended."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType

TAIL_LINES = 40
_PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None)


class ChildFailed(Exception):
    """A child ended, or stayed silent, before it had done its part."""


class Child:
    """One process. All that it prints is read at once; the last lines are kept."""

    def __init__(self, command: Sequence[str], *, name: str) -> None:
        self.name = name
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._changed = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_die_with_parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_for(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Return the match of the first line in which `pattern` is found.

        Raises `ChildFailed` when the child ends without such a line, or the time is over.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(pattern), timeout_s)
            if found := self._find(pattern):
                return found
        what = "ended" if self._ended else f"said nothing like {pattern!r} for {timeout_s:.0f} s"
        raise ChildFailed(f"{self.name} {what}")

    def last_words(self) -> str:
        """Return the last lines it printed, and how it ended if it has."""
        if self._ended:  # its output has: it is about to be gone
            self._process.wait(1)
        status = self._process.poll()
        state = "is running" if status is None else f"ended with status {status}"
        with self._changed:
            return "\n    ".join([f"{self.name} {state}, its output:", *self._lines])

    def stop(self, patience_s: float = 1.0) -> None:
        """End the process: politely, then not."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next((found for line in self._lines if (found := re.search(pattern, line))), None)


class Children:
    """The processes of one run, ended in reverse order when the block is left, however it is."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in reversed(self._children):
            child.stop()

    def start(self, command: Sequence[str], *, name: str) -> Child:
        """Start one more."""
        child = Child(command, name=name)
        self._children.append(child)
        return child

    def last_words(self) -> str:
        """Return what each of them printed last."""
        return "\n".join(child.last_words() for child in self._children)


def _die_with_parent() -> None:
    """Make the kernel end this child even if the runner is killed outright."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
