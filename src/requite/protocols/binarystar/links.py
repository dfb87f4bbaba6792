"""The connections of one server of a pair, to the other server and to operators.

Both servers listen and dial, so there may be two connections between them. A heartbeat is sent on
both with one number, and the receiver counts it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.engine import Peer
from requite.protocols.binarystar.wire import Word

# Operators ask a few times and disconnect. Beyond this limit, the connection that was silent for
# longest is closed, so that idle connections cannot lock out the other server or its operators.
LINKS_MAX: Final = 64
# How long an accepted connection may be silent.
_STRANGER_S: Final = 30.0


class PeerLink:
    """One connection. `is_peer`: it leads to the other server, because we dialled it or because a
    heartbeat came over it. `is_dialled`: it leads to the configured address of the other server,
    while anybody can dial us. `instance` is the process that sent the heartbeat."""

    __slots__ = ("heard_at", "instance", "is_dialled", "is_peer", "peer")

    def __init__(self, peer: Peer, is_dialled: bool, now: float) -> None:
        self.peer = peer
        self.is_peer = self.is_dialled = is_dialled
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
        """Return an open connection; None if it is closed."""
        return self._links.get(peer)

    def add(self, peer: Peer, is_dialled: bool, now: float) -> Peer | None:
        """Add a connection, and return the one to close if there are too many, else None. It is the
        new one itself if all others lead to the other server."""
        self._links[peer] = PeerLink(peer, is_dialled, now)
        if len(self._links) <= LINKS_MAX or is_dialled:
            return None
        strangers = [link for link in self._links.values() if not link.is_peer]
        outdone = min(strangers, key=lambda link: link.heard_at).peer
        self.remove(outdone)
        return outdone

    def remove(self, peer: Peer) -> None:
        """Remove a closed connection."""
        self._links.pop(peer, None)

    def to_peer(self) -> list[Peer]:
        """Return the connections to the other server."""
        return [link.peer for link in self._links.values() if link.is_peer]

    def take_outdated(self, word: Word) -> list[Peer]:
        """Remove and return connections of an earlier process of the other server, whose unread
        messages are outdated."""
        return self._take(lambda link: link.instance not in (0, word.instance))

    def take_silent(self, now: float) -> list[Peer]:
        """Remove and return connections that were silent for too long. A dead connection, for
        example after a router's restart, would otherwise stay open for minutes."""
        return self._take(lambda link: now >= link.heard_at + self._limit_s(link))

    def excuse(self, now: float) -> None:
        """Restart all silence timers after a pause of this process, whose input is still unread."""
        for link in self._links.values():
            link.heard_at = now

    def _limit_s(self, link: PeerLink) -> float:
        return self._patience_s if link.is_peer else max(self._patience_s, _STRANGER_S)

    def _take(self, is_due: Callable[[PeerLink], bool]) -> list[Peer]:
        due = [peer for peer, link in self._links.items() if is_due(link)]
        for peer in due:
            del self._links[peer]
        return due
