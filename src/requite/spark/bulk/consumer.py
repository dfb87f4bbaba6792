"""Who reads what a task gives out: Spark's JVM, at the other end of a socket.

Spark tells a Python worker nothing when its task is cancelled. The thread in the JVM that reads the
worker's output looks for that when something arrives, and closes the socket then; otherwise the
worker is killed two to four seconds later. So a task that waits for replies gives out an empty
batch from time to time, has it sent at once, and looks whether anybody is still there.

The socket is not handed to user code. It is found in the frames of the worker that called us, by
what it is; where it is not found, tasks end as Spark ends them.
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

_ENDED: Final = "Spark has ended this task: the requests that are out are cancelled"
_GONE: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


# How often a task looks whether it is still wanted. A cancelled one sends nothing half a second
# later: a beat until the JVM hears something and closes the socket, and a beat to see that.
BEAT_S: Final = 0.05


class TaskEnded(RequiteError):
    """Spark has ended the task: nobody wants the rest of its rows."""


class Consumer:
    """The reader of a task's output; `out` is the buffered writer to it, None: nobody known."""

    def __init__(self, out: io.BufferedWriter | None) -> None:
        self._out = out
        self._next_at = 0.0
        self._poll: select.poll | None = None
        if out is not None:
            self._poll = select.poll()
            self._poll.register(out.fileno(), _GONE)

    def beat(self, now: float) -> None:
        """Send what has been given out, rather than when the buffer is full, once per beat.

        Raises `TaskEnded` where nobody is there to read it.
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
    """Return whoever reads the output of the task that calls this."""
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
