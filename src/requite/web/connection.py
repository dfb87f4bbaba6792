"""A connection of the HTTP server: asyncio's transport over a `Stream`, with or without TLS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from requite.transport.base import Stream
from requite.transport.sockets import queued_size
from requite.transport.stream import SocketStream

if TYPE_CHECKING:
    from starlette.responses import Response

REQUEST_S: Final = 10.0
"""The time from the first byte of a request to its last. The first request of a connection begins
when the connection is made, with the TLS handshake."""

ANSWERED: Final = "requite.answered"
"""In the `state` of the scope of a request that the server itself has answered: the status."""

STALLED_S: Final = 30.0
"""A connection is closed if its peer accepts none of the bytes that wait for it for so long."""


class HttpProtocol(H11Protocol):
    """uvicorn's protocol. It tells its transport when it has received or answered something.

    `warn` gets the warnings that a peer can cause, by kind, any number of times. `logger` gets
    uvicorn's own errors, such as exceptions of the application. `late` answers a request whose body
    does not arrive in time.
    """

    transport: HttpConnection

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        logger: logging.Logger,
        warn: Callable[[str, str], object],
        late: Response,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = logger
        self._warn: Final = warn
        self._late: Final = late

    def handle_events(self) -> None:
        """Handle received bytes, or those after a request that was just answered."""
        super().handle_events()
        self.transport.advanced()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._warn("malformed request", f"{self.transport.peer_name}: what it sent is not HTTP")
        super().send_400_response(msg)

    def expire(self) -> None:
        """Close the connection, since its request has not arrived in time. Answer first if the
        header has arrived and no answer has begun."""
        if self.conn.their_state is not h11.SEND_BODY or self.cycle.response_started:
            self.transport.abort()
            return
        self.cycle.scope["state"][ANSWERED] = self._late.status_code
        self.cycle.disconnected = True  # for the application
        self.cycle.message_event.set()
        late = self._late
        headers = [*late.raw_headers, (b"connection", b"close")]
        reason = STATUS_PHRASES[late.status_code]
        for event in (
            h11.Response(status_code=late.status_code, headers=headers, reason=reason),
            h11.Data(data=b"" if self.scope["method"] == "HEAD" else bytes(late.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class HttpConnection(asyncio.Transport):
    """The transport of uvicorn's protocol, and the owner of a `Stream`.

    `stream` is `below`, or that of TLS over it. `ended` is called with the reason of the end, and
    `filled` when writing is paused. The connection is closed if a request takes longer than
    `REQUEST_S` to arrive (`HttpProtocol.expire`), and if its peer reads nothing of an answer for
    `STALLED_S`.
    """

    active_at: float
    """When a request last began or ended, or was answered, in the time of the loop."""

    def __init__(
        self,
        below: SocketStream,
        stream: Stream,
        protocol: HttpProtocol,
        ended: Callable[[HttpConnection, str], object],
        filled: Callable[[], object],
    ) -> None:
        super().__init__()
        self._below: Final = below
        self._stream: Final = stream
        self._protocol: Final = protocol
        self._ended: Final = ended
        self._filled: Final = filled
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None  # while a request is incomplete
        self._is_closing = False
        self._written = 0
        self._watching: asyncio.TimerHandle | None = None  # while there may be unsent bytes

    def start(self) -> None:
        """Start reading."""
        self._stream.start(self, None)
        self._protocol.connection_made(self)
        self.advanced()

    @property
    def peer_name(self) -> str:
        """The address of the peer, for messages."""
        return self._stream.peer_name

    @property
    def has_requested(self) -> bool:
        """Whether the header of a request has arrived."""
        return self._protocol.scope is not None

    @property
    def unsent_size(self) -> int:
        """Written bytes that the network has not accepted yet."""
        return self._below.unsent_size

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the peer: for a whole request, or for room to answer one."""
        cycle = self._protocol.cycle
        waits = not self.has_requested or cycle.more_body or cycle.response_complete
        return waits or self._protocol.flow.write_paused

    # --- the side of the stream: the contract of `Owner` ------------------------------------------
    def received(self, _link: object, chunk: bytes) -> None:
        """Pass received bytes on."""
        if not self._is_closing:
            self._protocol.data_received(chunk)

    def blocked(self, _link: object) -> None:
        """Report back-pressure."""
        self._protocol.pause_writing()
        self._filled()

    def writable(self, _link: object) -> None:
        """Report the end of back-pressure."""
        self._protocol.resume_writing()

    def closed(self, _link: object, reason: str) -> None:
        """Report the end."""
        self._is_closing = True
        self._stop_timer()
        if self._watching is not None:
            self._watching.cancel()
        self._ended(self, reason)
        self._protocol.connection_lost(None)

    # --- the side of the protocol -----------------------------------------------------------------
    def advanced(self) -> None:
        """Note the time, and limit that of an incomplete request."""
        is_requesting = self._is_requesting()
        if is_requesting and self._timer is not None:
            return  # more bytes of a request neither give it time nor count as activity
        self.active_at = self._loop.time()
        self._stop_timer()
        if is_requesting:
            self._timer = self._loop.call_later(REQUEST_S, self._protocol.expire)

    def _is_requesting(self) -> bool:
        """Whether a request is incomplete: its body, its header, or nothing of the first one."""
        conn = self._protocol.conn
        if conn.their_state is h11.IDLE:
            return not self.has_requested or bool(conn.trailing_data[0])
        return conn.their_state is h11.SEND_BODY

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what asyncio knows; `sslcontext` is true over TLS."""
        if name == "sslcontext":
            return self._stream is not self._below
        return self._below.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        """Send, and buffer what the network does not accept yet."""
        self._written += len(data)
        self._stream.write(data)
        if self._watching is None:
            self._watch(self._written - self._unaccepted_size())

    def _watch(self, accepted: int) -> None:
        self._watching = self._loop.call_later(STALLED_S, self._look, accepted)

    def _look(self, before: int) -> None:
        """Close the connection if the peer has accepted no more bytes than before."""
        self._watching = None
        waiting = self._unaccepted_size()
        accepted = self._written - waiting  # TLS adds some bytes to those that wait
        if waiting and accepted <= before:
            self.abort()
        elif waiting:
            self._watch(accepted)

    def _unaccepted_size(self) -> int:
        return self.unsent_size + queued_size(self._below.get_extra_info("socket").fileno())

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once its buffer is sent."""
        return self._is_closing

    def close(self) -> None:
        """Close after all written data have been sent."""
        if not self._is_closing:
            self._is_closing = True
            self._stream.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._stream.abort()

    def pause_reading(self) -> None:
        """Stop reading."""
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._stream.resume_reading()
