"""The replies to one streaming call, until its user takes them. No I/O, shared by both clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from requite.errors import CallError
from requite.request import Partial, Reply


class Incoming:
    """The token of a streaming call; `on_ready` is called when `take` has something to give.

    Nothing pushes back on a single call, so partial replies that are not taken are held.
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
        """Whether it has ended and everything has been taken."""
        return self._is_over and not self._held and self._error is None

    def set_result(self, what: Partial | Reply) -> None:
        """Take a partial reply, or the final one."""
        self._held.append(what)
        if what.__class__ is Reply:
            self._is_over = True
        self._on_ready()

    def set_exception(self, error: CallError) -> None:
        """End the call with an error; what came before is still given first."""
        self._error = error
        self._is_over = True
        self._on_ready()

    def take(self) -> list[Partial | Reply]:
        """Return what has come; raise the call's error when that is what comes next."""
        if not self._held and self._error is not None:
            error, self._error = self._error, None
            raise error
        taken = list(self._held)
        self._held.clear()
        return taken
