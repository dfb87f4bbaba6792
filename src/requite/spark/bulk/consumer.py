"""Detects that Spark has cancelled a task, at the socket that carries its output to the JVM.

Spark does not notify a Python worker when its task is cancelled. The JVM thread that reads the
worker's output checks for cancellation when data arrives, and then closes the socket; without data,
Spark kills the worker two to four seconds later. So a task that waits for replies yields an empty
batch at intervals, flushes it, and checks whether the socket is still open.

User code does not receive the socket. It is found by its type in the stack frames of the calling
worker; if it is not found, tasks end when Spark kills the worker.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from typing import Any, Final

from requite.errors import RequiteError

_ENDED: Final = "Spark has ended this task: its requests in flight are cancelled"
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


# Interval of the check for cancellation. A cancelled task has stopped sending within half a second:
# one beat until the JVM receives data and closes the socket, and one beat to detect that.
BEAT_S: Final = 0.05


class TaskEnded(RequiteError):
    """Spark has ended the task; the rest of its rows is not needed."""


class Consumer:
    """The reader of a task's output; `out` is the buffered writer to it, None if not found."""

    def __init__(self, out: io.BufferedWriter | None) -> None:
        self._out = out
        self._next_at = 0.0
        self._poll: select.poll | None = None
        if out is not None:
            self._poll = select.poll()
            self._poll.register(out.fileno(), _GONE)

    def beat(self, now: float) -> None:
        """Flush the output, at most once per `BEAT_S`.

        Raises `TaskEnded` if the reader has closed the socket.
        """
        if self._out is None or now < self._next_at:
            return
        self._next_at = now + BEAT_S
        try:
            self._out.flush()
        except ConnectionError as error:
            raise TaskEnded(_ENDED) from error
        if self._poll is not None and self._poll.poll(0):
            raise TaskEnded(_ENDED)


def this_consumer() -> Consumer:
    """Return the consumer of the calling task's output."""
    return Consumer(next(_sockets_of_callers(), None))


def _sockets_of_callers() -> Iterator[io.BufferedWriter]:
    frame: Any = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            if type(value) is io.BufferedWriter and not value.closed and _is_socket(value):
                yield value
        frame = frame.f_back


def _is_socket(writer: io.BufferedWriter) -> bool:
    return stat.S_ISSOCK(os.fstat(writer.fileno()).st_mode)
