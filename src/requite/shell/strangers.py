"""Accepted connections without a handshake or a first message, by deadline.

        opened ──handshake done──► mute ──first message──► known
           └── dropped when its time is over

The handshake has a time limit. A peer that has shaken hands may stay mute for as long as it likes:
clients of ZeroMQ connect long before they ask. But where places run short, those that are mute give
theirs up, after those that have not even shaken hands, and those that have waited longest first. A
peer with something to say has said it by then, and dials again.
"""

from __future__ import annotations

from math import inf

from requite.core.timers import Timers
from requite.shell.link import Link
from requite.shell.waiting import Waiting


class Strangers:
    """See above. `limit_s`: how long the handshake of any link may take."""

    __slots__ = ("_greeting", "_hurried", "_mute")

    def __init__(self, limit_s: float) -> None:
        self._greeting = Waiting(limit_s)
        self._hurried: Timers[Link] = Timers()  # those that have less time for their handshake
        self._mute: dict[Link, None] = {}  # a set that keeps its order

    def __len__(self) -> int:
        return len(self._greeting) + len(self._hurried) + len(self._mute)

    def add(self, link: Link, now: float, patience_s: float) -> float:
        """Let the time of a new link begin, or `patience_s` if that is less; return its end."""
        at = self._greeting.add(link, now)
        if now + patience_s < at:
            at = now + patience_s
            self._hurried.set(link, at)
        return at

    def shook_hands(self, link: Link) -> None:
        """Note that the handshake is done. Whom we have dialled ourselves we know then."""
        self._greeting.discard(link)
        self._hurried.clear(link)
        if link.accepted:
            link.mute = True
            self._mute[link] = None

    def spoke(self, link: Link) -> None:
        """Note the first message of a mute peer."""
        link.mute = False
        self._mute.pop(link, None)

    def forget(self, link: Link) -> None:
        """Note that a link has ended."""
        self._greeting.discard(link)
        self._hurried.clear(link)
        self._mute.pop(link, None)

    def next_at(self) -> float:
        """Return when the time of the next link is over (`inf`: no link is waited for)."""
        hurried = self._hurried.next()
        return min(self._greeting.next_at(), inf if hurried is None else hurried)

    def take_due(self, now: float) -> list[tuple[Link, str]]:
        """Remove the links whose time is over, and return them with what they did wrong."""
        due = [(link, "takes connections and does not answer") for link in self._hurried.due(now)]
        for link, _ in due:
            self._greeting.discard(link)
        said = f"said too little within {self._greeting.limit_s:g} s"
        return due + [(link, said) for link in self._greeting.take_due(now)]

    def who_gives_way(self, newcomer: Link) -> Link:
        """Return whom to drop when a newcomer finds no place: itself where all others are known."""
        greeting = (link for link in self._greeting if link.accepted and link is not newcomer)
        mute = (link for link in self._mute if link is not newcomer)
        return next(greeting, None) or next(mute, None) or newcomer
