"""A minimal `Poll` for tests of blocking streams, and a stream owner that records its callbacks."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Any

from requite.transport.blocking import Pollable


class HandPoll:
    """A `Poll` that a test drives: each `turn` handles the ready sockets, then the calls scheduled
    with `later`."""

    def __init__(self) -> None:
        self.watched: dict[int, tuple[Pollable, int]] = {}
        self._later: deque[Callable[[], object]] = deque()

    def watch(self, fd: int, what: Pollable, events: int) -> None:
        self.watched[fd] = (what, events)

    def forget(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def later(self, act: Callable[[], object]) -> None:
        self._later.append(act)

    def settle(self) -> None:
        while self._later:
            self._later.popleft()()

    def turn(self, wait_s: float = 5.0) -> None:
        self.settle()
        poll = select.poll()
        for fd, (_, events) in self.watched.items():
            poll.register(fd, events)
        for fd, events in poll.poll(wait_s * 1000):
            if fd in self.watched:
                self.watched[fd][0].ready(events)
        self.settle()

    def turns(self, until: Callable[[], Any]) -> None:
        for _ in range(100_000):
            self.settle()
            if until():
                return
            self.turn()
        raise AssertionError("it never came")


class Owner:
    """The owner of a stream whose link is "link"; records data and events."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.events: list[str] = []
        self.reason = ""

    def received(self, link: object, chunk: bytes) -> None:
        assert link == "link"
        assert chunk
        self.data += chunk

    def blocked(self, link: object) -> None:
        self.events.append("blocked")

    def writable(self, link: object) -> None:
        self.events.append("writable")

    def closed(self, link: object, reason: str) -> None:
        self.events.append("closed")
        self.reason = reason
