"""Accepted connections without a handshake or a first message, by deadline.

        opened ──handshake done──► mute ──first message──► known
           └── dropped at its time limit

The handshake has a time limit. After it, a peer may stay mute without limit: clients of ZeroMQ
connect long before they send. When connections run short, the host drops the oldest link without a
handshake, or else the oldest mute link. A client that still needs its connection dials again.
"""

from __future__ import annotations

from math import inf

from requite.core.timers import Timers
from requite.shell.link import Link
from requite.shell.waiting import Waiting


class PendingLinks:
    """Tracks links without a handshake or a first message. `limit_s`: time limit of handshakes."""

    __slots__ = ("_greeting", "_hurried", "_mute")

    def __init__(self, limit_s: float) -> None:
        self._greeting = Waiting(limit_s)
        self._hurried: Timers[Link] = Timers()  # links with a shorter limit
        self._mute: dict[Link, None] = {}  # an ordered set

    def __len__(self) -> int:
        return len(self._greeting) + len(self._hurried) + len(self._mute)

    def add(self, link: Link, now: float, patience_s: float) -> float:
        """Start a new link's time limit, `patience_s` if that is less; return its deadline."""
        at = self._greeting.add(link, now)
        if now + patience_s < at:
            at = now + patience_s
            self._hurried.set(link, at)
        return at

    def handshake_done(self, link: Link) -> None:
        """Record a completed handshake. An accepted link becomes mute, a dialled one known."""
        self._greeting.discard(link)
        self._hurried.clear(link)
        if link.accepted:
            link.mute = True
            self._mute[link] = None

    def first_message(self, link: Link) -> None:
        """Record the first message of a mute peer."""
        link.mute = False
        self._mute.pop(link, None)

    def forget(self, link: Link) -> None:
        """Remove a link that has ended."""
        self._greeting.discard(link)
        self._hurried.clear(link)
        self._mute.pop(link, None)

    def next_at(self) -> float:
        """Return the deadline of the next link (`inf`: none)."""
        hurried = self._hurried.next()
        return min(self._greeting.next_at(), inf if hurried is None else hurried)

    def take_due(self, now: float) -> list[tuple[Link, str]]:
        """Remove the overdue links, and return them with the reason."""
        due = [
            (link, "accepted the connection, but sent nothing") for link in self._hurried.due(now)
        ]
        for link, _ in due:
            self._greeting.discard(link)
        said = f"did not complete the handshake within {self._greeting.limit_s:g} s"
        return due + [(link, said) for link in self._greeting.take_due(now)]

    def choose_dropped(self, newcomer: Link) -> Link:
        """Return the link to drop for a newcomer: the newcomer itself if all others are known."""
        return (
            next((each for each in self._greeting if each.accepted and each is not newcomer), None)
            or next((each for each in self._mute if each is not newcomer), None)
            or newcomer
        )
