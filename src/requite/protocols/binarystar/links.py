"""The connections of one server of a pair: which of them lead to the other, and which to operators.

Both servers listen and both dial, so there may be two connections between them; either will do.
What is said goes out on both, under one number, and counts once where it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from requite.engine import Peer
from requite.protocols.binarystar.wire import Word

# Operators' commands ask a few times and leave. With more than this, whoever has been silent for
# longest goes: a crowd that says nothing must not keep the other server out, nor its operators.
LINKS_MAX: Final = 64
# How long somebody who has dialled us may say nothing.
_STRANGER_S: Final = 30.0


class PeerLink:
    """One connection. `is_peer`: the other server is at its end, as far as anybody can tell:
    because we dialled it, or because it has said so. `instance` is the process that has spoken."""

    __slots__ = ("heard_at", "instance", "is_peer", "peer")

    def __init__(self, peer: Peer, is_dialled: bool, now: float) -> None:
        self.peer = peer
        self.is_peer = is_dialled
        self.instance = 0
        self.heard_at = now


class PeerLinks:
    """All connections of one server."""

    __slots__ = ("_links", "_patience_s")

    def __init__(self, patience_s: float) -> None:
        self._links: dict[Peer, PeerLink] = {}
        self._patience_s = patience_s  # how long a connection to the other server may be silent

    def __len__(self) -> int:
        return len(self._links)

    def find(self, peer: Peer) -> PeerLink | None:
        """Return a connection that stands."""
        return self._links.get(peer)

    def add(self, peer: Peer, is_dialled: bool, now: float) -> Peer | None:
        """Take a connection, and return the one that has to make room for it (None: none has). That
        is the new one itself where all the others lead to the other server."""
        self._links[peer] = PeerLink(peer, is_dialled, now)
        if len(self._links) <= LINKS_MAX or is_dialled:
            return None
        strangers = (link for link in self._links.values() if not link.is_peer)
        outdone = min(strangers, key=lambda link: link.heard_at).peer
        self.remove(outdone)
        return outdone

    def remove(self, peer: Peer) -> None:
        """Forget a connection that has ended."""
        self._links.pop(peer, None)

    def to_peer(self) -> Iterator[Peer]:
        """Yield those over which to speak to the other server."""
        return (link.peer for link in self._links.values() if link.is_peer)

    def take_outdated(self, word: Word) -> list[Peer]:
        """Remove and return those that a former process of the other server has spoken over: what
        is still to be read from them is from a life that has ended."""
        return self._take(lambda link: link.instance not in (0, word.instance))

    def take_silent(self, now: float) -> list[Peer]:
        """Remove and return those over which nothing has come for too long. One that leads nowhere
        any more, as after a router's restart, would otherwise stand for minutes."""
        return self._take(lambda link: now >= link.heard_at + self._limit_s(link))

    def excuse(self, now: float) -> None:
        """Count a pause of our own as heard: what has come meanwhile is still unread."""
        for link in self._links.values():
            link.heard_at = now

    def _limit_s(self, link: PeerLink) -> float:
        return self._patience_s if link.is_peer else max(self._patience_s, _STRANGER_S)

    def _take(self, is_due: Callable[[PeerLink], bool]) -> list[Peer]:
        due = [peer for peer, link in self._links.items() if is_due(link)]
        for peer in due:
            del self._links[peer]
        return due
