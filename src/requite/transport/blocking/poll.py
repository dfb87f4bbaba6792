"""The interfaces between sockets and the owner of their poll."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, Protocol

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT


class Pollable(Protocol):
    """An object that a `Poll` calls when its socket is ready; `events` may include errors."""

    def ready(self, events: int) -> None:
        """Read, write, connect or accept, as far as possible without blocking."""

    def discard(self) -> None:
        """Close and forget the file descriptor, without any callback."""


class Poll(Protocol):
    """The services of the poll's owner for its sockets."""

    def watch(self, fd: int, what: Pollable, events: int) -> None:
        """Watch `fd` for these events (0: only for errors)."""

    def forget(self, fd: int) -> None:
        """Stop watching `fd`."""

    def later(self, act: Callable[[], object]) -> None:
        """Call `act` after the current callback."""
