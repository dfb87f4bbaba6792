"""The `Stream` over TLS, above any other stream: of an event loop's, of the blocking shell's.

Event loops have TLS of their own. It is not used: asyncio's and uvloop's differ in how they end and
in what they say when they fail, and the blocking shell would need a third one. An echo of 64 bytes
costs 16 us here on uvloop (both ends in one process), as with its own, and 21 us on asyncio, where
its own takes 35.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from requite.transport.base import Owner, Stream
from requite.transport.tls_session import TlsFailure, TlsSession

# Encrypted and handed on at a time: the memory that OpenSSL takes for it is kept by the connection.
_PIECE: Final = 256 << 10

Later = Callable[[Callable[[], object]], object]


class TlsStream:
    """A stream to its owner, and the owner of the stream `below`.

    `later` does something after what is being done now. Who listens hands the stream on at once:
    its owner bounds the time for the handshake, as for its own. Who dials calls `shake_hands` first
    and hands it on when that has succeeded.
    """

    __slots__ = (
        "_below",
        "_closing",
        "_failure",
        "_held",
        "_later",
        "_link",
        "_over",
        "_owner",
        "_session",
        "_shaken",
    )

    def __init__(self, below: Stream, session: TlsSession, later: Later) -> None:
        self._below = below
        self._session = session
        self._later = later
        self._owner: Owner | None = None
        self._link: object = None
        self._shaken: Callable[[str], object] | None = None
        self._held: list[bytes] = []  # written before hands were shaken
        self._closing = False  # by our owner: nothing goes up or comes down any more
        self._over = False  # nothing that comes from below matters
        self._failure = ""

    # --- the owner's side -------------------------------------------------------------------------
    @property
    def peer_name(self) -> str:
        """The other end, for people."""
        return self._below.peer_name

    def shake_hands(self, done: Callable[[str], object]) -> None:
        """Begin, and call `done` with "" when hands are shaken, or with why there was an end.

        With "", `done` must `start` or `abort` the stream before it returns; it hears of the end of
        a stream that it did not start.
        """
        self._shaken = done
        self._begin()

    def start(self, owner: Owner, link: object) -> None:
        """Begin to report."""
        self._owner = owner
        self._link = link
        if self._shaken is None:
            self._begin()

    def write(self, data: bytes) -> None:
        """Encrypt and send, or keep until hands are shaken."""
        if self._closing or self._over or not data:
            return
        if self._session.established:
            self._send(data)
        else:
            self._held.append(data)

    def close(self) -> None:
        """Close when everything written has left."""
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
        """Close the file descriptor alone, where the stream below can."""
        self._below.discard()  # type: ignore[attr-defined]  # only asked of blocking ones

    def pause_reading(self) -> None:
        """Read no more."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._below.resume_reading()

    # --- the side of the stream below: the contract of `Owner` ------------------------------------
    def received(self, _link: object, chunk: bytes) -> None:
        """Decrypt what came, and hand it on."""
        if self._over:
            return
        was_established = self._session.established
        try:
            data = self._session.receive(chunk)
        except TlsFailure as failure:
            self._fail(str(failure))
            return
        self._flush()
        if not was_established and self._session.established:
            self._establish()
        if data and self._owner is not None and not self._closing:
            self._owner.received(self._link, data)
        if self._session.peer_has_ended and not self._closing:
            self._later(self.close)  # what the last bytes are answered with leaves before

    def blocked(self, _link: object) -> None:
        """Pass on that the peer pushes back."""
        if self._owner is not None:
            self._owner.blocked(self._link)

    def writable(self, _link: object) -> None:
        """Pass on that the peer takes more."""
        if self._owner is not None:
            self._owner.writable(self._link)

    def closed(self, _link: object, reason: str) -> None:
        """Report the end, and what TLS knows of it."""
        self._over = True
        reason = self._reason_of_end(reason)
        if self._owner is not None:
            self._owner.closed(self._link, reason)
        elif self._shaken is not None:
            self._shaken(reason or "given up")

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
            self._fail(str(failure))

    def _flush(self) -> None:
        if output := self._session.output():
            self._below.write(output)

    def _end(self) -> None:
        self._over = True
        if self._session.established:
            self._session.end()
            self._flush()
        self._below.close()

    def _fail(self, reason: str) -> None:
        """Tell the peer, in an alert, and end; our owner hears of it when the stream has ended."""
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
            return f"the handshake of TLS was cut short{reason and f': {reason}'}"
        return reason or "the peer hung up without an end of TLS"


def _cut(data: bytes) -> list[memoryview]:
    view = memoryview(data)
    return [view[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
