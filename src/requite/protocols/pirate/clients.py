"""The clients of a queue or a REP server."""

from __future__ import annotations

from typing import Generic, TypeVar

from requite.core.turns import ClientPeer
from requite.engine import Peer

RequestT = TypeVar("RequestT")


class AddressedClient(ClientPeer, Generic[RequestT]):
    """A client. `address` identifies it in workers' replies (b"": not needed); `in_flight` are its
    requests that were passed on and have no reply yet."""

    __slots__ = ("address", "in_flight")

    def __init__(self, peer: Peer, address: bytes = b"", principal: str = "") -> None:
        super().__init__(peer, principal)
        self.address = address
        self.in_flight: dict[RequestT, None] = {}
