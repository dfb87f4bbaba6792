"""SP on WebSocket (sp-websocket-mapping-01): one SP message is one binary WebSocket message.

There is no SP header and no length prefix: the opening handshake names the role of the server, and
WebSocket frames have lengths. The states of a connection:

        UPGRADE ──101, the subprotocol repeated──▶ TRAFFIC ──the peer's Close frame──▶ farewell
           └─────────────── any violation, any refusal ────┴──▶ the same error for ever

Upgrade and traffic have separate files. Both use wsproto for RFC 6455, which is imported with the
first WebSocket, so that programs without WebSockets do not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.base import NO_FEATURES, Limits, Message, Piece
from requite.framing.sp_types import subprotocol_of
from requite.principal import Credential

if TYPE_CHECKING:
    from requite.framing.websocket_traffic import Traffic
    from requite.framing.websocket_upgrade import ClientUpgrade, ServerUpgrade

_NO_LIMITS_GIVEN: Final = Limits()


class SpWebSocket:
    """The `Framing` of one WebSocket between an SP endpoint of ours and one of a peer.

    A client gives the server's `host` (as in a URL: with the port, unless it is 80 or 443) and the
    `path` ("": `/`). A server accepts requests for its `path` only ("": any), and of web pages only
    those of its own `host` (without a port) and of `origins`, in canonical form. Of `limits`, only
    the size of a message applies. `masks(size)` returns random bytes for the masks of clients; RFC
    6455 requires a strong source (section 10.3).
    """

    refusal = ""  # SP has no credentials
    login: None = None

    __slots__ = (
        "_broken",
        "_is_client",
        "_limit",
        "_masks",
        "_said",
        "_traffic",
        "_upgrade",
        "peer_credential",
        "peer_features",
        "peer_identity",
        "ready",
    )

    def __init__(
        self,
        own_type: int,
        peer_type: int,
        *,
        is_client: bool,
        host: str = "",
        path: str = "",
        origins: Collection[str] = (),
        limits: Limits = _NO_LIMITS_GIVEN,
        masks: Callable[[int], bytes] = token_bytes,
    ) -> None:
        from requite.framing.websocket_upgrade import ClientUpgrade, ServerUpgrade

        self.ready = False
        self.peer_identity = b""
        self.peer_credential: Credential | None = None
        self.peer_features = NO_FEATURES
        self._is_client = is_client
        self._limit = limits.message_size_bytes_max
        self._masks = masks
        self._said: list[bytes] = []
        self._broken: RemoteViolation | None = None
        self._traffic: Traffic | None = None
        subprotocol = subprotocol_of(peer_type if is_client else own_type)
        self._upgrade: ClientUpgrade | ServerUpgrade | None = (
            ClientUpgrade(subprotocol, host, path)
            if is_client
            else ServerUpgrade(subprotocol, path, self._said.append, own_host=host, origins=origins)
        )

    @property
    def farewell(self) -> str:
        """The text of the peer's Close frame, for people; "" before one is received."""
        return self._traffic.farewell if self._traffic is not None else ""

    @property
    def mid_message(self) -> bool:
        """Whether a message has been received in part."""
        return self._traffic is not None and self._traffic.mid_message

    @property
    def partial_size(self) -> int:
        """The bytes of the incomplete message that have arrived."""
        return self._traffic.partial_size if self._traffic is not None else 0

    def opening(self) -> bytes:
        """Return a client's HTTP request; empty for a server, which waits for it."""
        return b"" if self._upgrade is None else self._upgrade.opening()

    def receive(self, chunk: bytes) -> list[Message]:
        """Take the next bytes of the stream; return the messages that they complete."""
        if self._broken is not None:
            raise self._broken
        try:
            if self._traffic is None:
                return self._receive_early(chunk)
            return self._traffic.read(chunk)
        except RemoteViolation as violation:
            self._broken = violation
            raise

    def refuse(self, _status: str, /) -> None:
        """Do nothing: the protocol has no words for it."""

    def output(self) -> bytes:
        """Return, once, what the WebSocket itself sends: HTTP responses, pongs and Close frames."""
        if not self._said:
            return b""
        output = b"".join(self._said)
        self._said.clear()
        return output

    def encode(self, message: Sequence[Piece], out: list[Any]) -> int:
        """Append all pieces of `message` as one binary message; return the bytes added.

        The pieces of a server are appended without a copy; those of a client are masked copies.
        """
        if self._traffic is None:
            raise LocalViolation("cannot encode before the WebSocket is open")
        return self._traffic.encode(message, out)

    def closing(self) -> bytes:
        """Return a Close frame, unless one was sent or the upgrade is incomplete."""
        if self._traffic is not None:
            self._traffic.close()
        return self.output()

    def at_end(self) -> None:
        """Raise `RemoteViolation` if the stream ended inside the upgrade or a message.

        An end between two messages without a Close frame is accepted: SP peers close like that.
        """
        if self._broken is not None:
            raise self._broken
        if self._upgrade is not None:
            self._upgrade.at_end()
        if self.mid_message:
            raise RemoteViolation("the peer closed the connection in the middle of a message")

    def _receive_early(self, chunk: bytes) -> list[Message]:
        assert self._upgrade is not None
        rest = self._upgrade.receive(chunk)
        if rest is None:
            return []
        from requite.framing.websocket_traffic import Traffic

        self._upgrade = None  # with what wsproto keeps of the handshake, 3 KiB
        self._traffic = Traffic(
            is_client=self._is_client,
            limit=self._limit,
            masks=self._masks,
            say=self._said.append,
        )
        self.ready = True
        return self._traffic.read(rest)
