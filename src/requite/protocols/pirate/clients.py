"""Connections that requests come by: what the queue and the REP server have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from requite.core.turns import ClientPeer
from requite.engine import Peer

InHand = TypeVar("InHand")


class AddressedClient(ClientPeer, Generic[InHand]):
    """A client. `address` is how a worker's reply names it (b"": it is not named); `in_hand` are
    its requests that were handed on and have no reply yet."""

    __slots__ = ("address", "in_hand")

    def __init__(self, peer: Peer, address: bytes = b"") -> None:
        super().__init__(peer)
        self.address = address
        self.in_hand: dict[InHand, None] = {}
