"""What sockets and the owner of the poll that they are in tell each other."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, Protocol

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT


class Pollable(Protocol):
    """What a `Poll` calls when its socket is ready; `events` may hold errors as well."""

    def ready(self, events: int) -> None:
        """Do what can be done."""

    def discard(self) -> None:
        """Close the file descriptor and forget it, saying nothing to anybody."""


class Poll(Protocol):
    """What the owner of the poll offers to the sockets in it."""

    def watch(self, fd: int, what: Pollable, events: int) -> None:
        """Wait for these events at `fd` from now on (0: for errors alone)."""

    def forget(self, fd: int) -> None:
        """Wait for nothing at `fd` any more."""

    def later(self, act: Callable[[], object]) -> None:
        """Do something as soon as nothing else is being done."""
