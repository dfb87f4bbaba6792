"""Identities of the peers of a ROUTER socket (RFC 28, and libzmq where that leaves room)."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from requite.errors import RemoteViolation

P = TypeVar("P")

_COUNTER_MASK: Final = 0xFFFF_FFFF


class Admission(NamedTuple, Generic[P]):
    """A peer's identity, and the peer that it displaced and that must be closed, if any."""

    identity: bytes
    displaced: P | None


class IdentityTable(Generic[P]):
    """Maps identities to peers, and assigns identities to peers that announce none.

    An assigned identity is a zero byte and an incrementing u32. Peers may not announce identities
    that begin with a zero byte, so the two kinds never collide. `start` is the first number
    (libzmq's is random, so that a restarted router does not answer its former peers). With
    `handover`, a newcomer takes an identity over from its holder; without, it is refused.
    """

    __slots__ = ("_handover", "_next", "_peers")

    def __init__(self, *, start: int, handover: bool = False) -> None:
        self._peers: dict[bytes, P] = {}
        self._next = start & _COUNTER_MASK
        self._handover = handover

    def __len__(self) -> int:
        return len(self._peers)

    def find(self, identity: bytes) -> P | None:
        """Return the peer that holds `identity` now."""
        return self._peers.get(identity)

    def admit(self, peer: P, announced: bytes) -> Admission[P]:
        """Add a peer under its announced identity, or under an assigned one if that is b"".

        Raises `RemoteViolation` if the identity is in use and `handover` is False.
        """
        identity = announced or self._fresh()
        displaced = self._peers.get(identity)
        if displaced is not None and not self._handover:
            raise RemoteViolation(f"the identity {identity!r} is in use by another peer")
        self._peers[identity] = peer
        return Admission(identity, displaced)

    def forget(self, identity: bytes, peer: P) -> None:
        """Remove a disconnected peer, unless another peer holds the identity now."""
        if self._peers.get(identity) is peer:
            del self._peers[identity]

    def _fresh(self) -> bytes:
        """Return the next identity that is not in use; the counter wraps at 2^32."""
        while True:
            identity = b"\0" + self._next.to_bytes(4, "big")
            self._next = (self._next + 1) & _COUNTER_MASK
            if identity not in self._peers:
                return identity
