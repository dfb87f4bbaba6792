"""Buffer the replies to one streaming call. No I/O; shared by both clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from requite.errors import CallError
from requite.request import Partial, Reply


class Incoming:
    """The token of a streaming call; calls `on_ready` when `take` has something to return.

    A single call has no back-pressure, so the buffer of partial replies is unbounded.
    """

    __slots__ = ("_error", "_held", "_is_over", "_on_ready")

    def __init__(self, on_ready: Callable[[], object]) -> None:
        self._on_ready = on_ready
        self._held: deque[Partial | Reply] = deque()
        self._error: CallError | None = None
        self._is_over = False

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._is_over

    @property
    def is_through(self) -> bool:
        """Whether the call has ended and the buffer is empty."""
        return self._is_over and not self._held and self._error is None

    def set_result(self, what: Partial | Reply) -> None:
        """Buffer a partial reply, or the final one."""
        self._held.append(what)
        if what.__class__ is Reply:
            self._is_over = True
        self._on_ready()

    def set_exception(self, error: CallError) -> None:
        """End the call with an error; `take` returns the buffered replies first."""
        self._error = error
        self._is_over = True
        self._on_ready()

    def take(self) -> list[Partial | Reply]:
        """Return the buffered replies; raise the call's error if none are left."""
        if not self._held and self._error is not None:
            error, self._error = self._error, None
            raise error
        taken = list(self._held)
        self._held.clear()
        return taken
