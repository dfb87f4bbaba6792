"""The `Stream` over TLS, on top of any other stream: of an event loop or of the blocking shell.

The TLS of event loops is not used: asyncio and uvloop differ in how connections end and in their
error messages, and the blocking shell would need a third implementation. An echo of 64 bytes costs
16 us on uvloop (both ends in one process), as much as with uvloop's TLS, and 21 us on asyncio,
whose own TLS takes 35 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.principal import Credential
from requite.transport.base import Owner, Stream
from requite.transport.tls_session import TlsFailure, TlsSession

# The bytes encrypted at a time. OpenSSL keeps a buffer of that size per connection.
_PIECE: Final = 256 << 10

Later = Callable[[Callable[[], object]], object]
Count = Callable[["TlsStream", bool], object]


def _ignore(_stream: TlsStream, _shakes_hands: bool) -> None:
    """Count nothing."""


class TlsStream:
    """A stream to its owner, and the owner of the stream `below`.

    `later` schedules a call after the current one. A listener passes the stream on at once, and its
    owner limits the time for the handshake; `count` is called with whether the handshake takes
    memory and is not complete. A dialler calls `shake_hands` first, and passes the
    stream on after success.
    """

    __slots__ = (
        "_below",
        "_closing",
        "_count",
        "_failure",
        "_held",
        "_later",
        "_link",
        "_over",
        "_owner",
        "_session",
        "_shaken",
    )

    def __init__(
        self, below: Stream, session: TlsSession, later: Later, count: Count = _ignore
    ) -> None:
        self._below = below
        self._session = session
        self._later = later
        self._count = count
        self._owner: Owner | None = None
        self._link: object = None
        self._shaken: Callable[[str], object] | None = None
        self._held: list[bytes] = []  # data written before the end of the handshake
        self._closing = False  # the owner has closed it: no data pass in either direction
        self._over = False  # events of the stream below are ignored
        self._failure = ""

    # --- the owner's side -------------------------------------------------------------------------
    @property
    def peer_name(self) -> str:
        """The address of the peer, for messages."""
        return self._below.peer_name

    @property
    def peer_credential(self) -> Credential | None:
        """The verified certificate of the peer."""
        return self._session.peer_credential

    def shake_hands(self, done: Callable[[str], object]) -> None:
        """Start the handshake. `done` is called with "" after success, or with the error.

        With "", `done` must `start` or `abort` the stream before it returns. `done` is also called
        for the end of a stream that was not started.
        """
        self._shaken = done
        self._begin()

    def start(self, owner: Owner, link: object) -> None:
        """Start reporting to `owner`."""
        self._owner = owner
        self._link = link
        if self._shaken is None:
            self._begin()

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that were not read; True if that is unknown."""
        return self._below.has_unread

    @property
    def read_was_full(self) -> bool:
        """Whether the read of encrypted bytes was full; see `Stream`."""
        return self._below.read_was_full

    def write(self, data: bytes) -> None:
        """Encrypt and send, or buffer until the handshake is complete."""
        if self._closing or self._over or not data:
            return
        if self._session.established:
            self._send(data)
        else:
            self._held.append(data)

    def close(self) -> None:
        """Close after all written data have been sent."""
        if self._closing:
            return
        self._closing = True
        if not (self._held or self._over):
            self._end()

    def abort(self) -> None:
        """Close at once."""
        self._closing = self._over = True
        self._held.clear()
        self._below.abort()

    def discard(self) -> None:
        """Close only the file descriptor, if the stream below supports it."""
        self._below.discard()  # type: ignore[attr-defined]  # called for blocking streams only

    def pause_reading(self) -> None:
        """Stop reading."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._below.resume_reading()

    # --- the side of the stream below: the contract of `Owner` ------------------------------------
    def received(self, _link: object, chunk: bytes) -> None:
        """Decrypt received bytes, and deliver the plain ones."""
        if self._over:
            return
        session = self._session
        was_established = session.established
        try:
            data = session.receive(chunk)
        except TlsFailure as failure:
            self.fail(str(failure))
            return
        if not was_established:
            self._count(self, session.shakes_hands)
            self._flush()
            if session.established:
                self._establish()
        elif session.has_output:  # the answer to a KeyUpdate
            self._flush()
        if data and self._owner is not None and not self._closing:
            self._owner.received(self._link, data)
        if session.peer_has_ended and not self._closing:
            self._later(self.close)  # after the replies to the last bytes have been sent

    def blocked(self, _link: object) -> None:
        """Report back-pressure."""
        if self._owner is not None:
            self._owner.blocked(self._link)

    def writable(self, _link: object) -> None:
        """Report the end of back-pressure."""
        if self._owner is not None:
            self._owner.writable(self._link)

    def closed(self, _link: object, reason: str) -> None:
        """Report the end, with the reason that TLS knows."""
        self._over = True
        self._count(self, False)
        reason = self._reason_of_end(reason)
        if self._owner is not None:
            link, self._link = self._link, None  # no reference cycle, as in `SocketStream`
            self._owner.closed(link, reason)
        elif self._shaken is not None:
            self._shaken(reason or "given up")
        self._session.free()  # at once: the streams refer to each other, and wait for collection

    # --- inside -----------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._below.start(self, None)
        self._session.begin()
        self._flush()

    def _establish(self) -> None:
        if self._owner is None:
            assert self._shaken is not None
            self._shaken("")
        for data in self._held:
            self._send(data)
        self._held.clear()
        if self._closing and not self._over:
            self._end()

    def _send(self, data: bytes) -> None:
        pieces = [data] if len(data) <= _PIECE else _cut(data)
        try:
            for piece in pieces:
                self._session.send(piece)
                self._below.write(self._session.output())
        except TlsFailure as failure:
            self.fail(str(failure))

    def _flush(self) -> None:
        if output := self._session.output():
            self._below.write(output)

    def _end(self) -> None:
        self._over = True
        if self._session.established:
            self._session.end()
            self._flush()
        self._below.close()

    def fail(self, reason: str) -> None:
        """Send the session's alert, and close; `closed` follows when the stream below has ended."""
        self._failure = reason
        self._over = True
        self._flush()
        if self._session.established:
            self._below.abort()
        else:
            self._below.close()  # within the time for the handshake

    def _reason_of_end(self, reason: str) -> str:
        if self._failure or self._closing:
            return self._failure
        if not self._session.established:
            return f"the connection ended during the TLS handshake{reason and f': {reason}'}"
        return reason or (
            "the peer closed the connection without TLS close_notify; data may be missing"
        )


def _cut(data: bytes) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
