"""The child processes of a run: started, waited for, and always ended."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from requite.cli.show.leash import PROGRAM
from requite.cli.show.processes import Child, ShowFailed

TAIL_LINES = 40


class WatchedChild(Child):
    """A child whose output, stderr included, is read at once; the last lines are kept.

    `wait_for` takes the place of `read_line` and `read_all`.
    """

    def __init__(self, command: Sequence[str], *, name: str) -> None:
        super().__init__(name, PROGRAM, *command, mixed=True)
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str, timeout_s: float) -> re.Match[str]:
        """Return the match of the first line in which `pattern` is found.

        Raises `ShowFailed` when the child ends without such a line, or the time is over.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._find(pattern), timeout_s)
            if found := self._find(pattern):
                return found
        what = "ended" if self._ended else f"said nothing like {pattern!r} for {timeout_s:.0f} s"
        raise ShowFailed(f"{self.name} {what}")

    def last_words(self) -> str:
        """Return the last lines it printed, and how it ended if it has."""
        if self._ended:  # its output has: it is about to be gone
            self._process.wait(1)
        status = self._process.poll()
        state = "is running" if status is None else f"ended with status {status}"
        with self._changed:
            return "\n    ".join([f"{self.name} {state}, its output:", *self._lines])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _close(self) -> None:
        self._reader.join()  # it reads until the end: closing the pipe under it is an error
        super()._close()

    def _find(self, pattern: str) -> re.Match[str] | None:
        return next((found for line in self._lines if (found := re.search(pattern, line))), None)


class Children:
    """The processes of one run, ended in reverse order when the block is left, however it is."""

    def __init__(self) -> None:
        self._children: list[WatchedChild] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in reversed(self._children):
            child.end()

    def start(self, command: Sequence[str], *, name: str) -> WatchedChild:
        """Start one more."""
        child = WatchedChild(command, name=name)
        self._children.append(child)
        return child

    def last_words(self) -> str:
        """Return what each of them printed last."""
        return "\n".join(child.last_words() for child in self._children)
