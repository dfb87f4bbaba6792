"""The TLS of a listener: it reads changed files again, and limits incomplete handshakes."""

from __future__ import annotations

import time
from typing import Final

from requite.transport.base import Stream
from requite.transport.tls import TlsSettings, WatchedContext
from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import Later, TlsStream

CHECK_EVERY_S: Final = 1.0
"""Files are checked at a handshake, if the last check is longer ago than this."""

HANDSHAKES_MAX: Final = 1024
"""Incomplete handshakes of a listener, of 54 KiB each. Beyond it the oldest one is dropped. The
handshake of a client takes milliseconds, so an attacker has to begin 100,000 per second to drop it.
"""


class TlsListener:
    """Makes the stream of each accepted connection, with the certificates that the files have now
    (see `WatchedContext`). Open connections stay as they are.

    `later` is that of `TlsStream`. Raises `ConfigurationError` for files that cannot be used at the
    start.
    """

    def __init__(self, settings: TlsSettings, later: Later) -> None:
        self._later = later
        self._handshakes: dict[TlsStream, None] = {}  # incomplete ones, the oldest first
        self._watched = WatchedContext(settings, TlsSettings.listening_context)
        self._context = self._watched.current()
        self._checked_at = time.monotonic()

    def stream(self, below: Stream) -> TlsStream:
        """Make the stream over an accepted connection."""
        return TlsStream(below, self.session(), self._later, self._count)

    def session(self) -> TlsSession:
        """Make the session of an accepted connection."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            self._context = self._watched.current()
        return TlsSession(self._context, None)

    def _count(self, stream: TlsStream, shakes_hands: bool) -> None:
        """Record whether a stream has an incomplete handshake."""
        if not shakes_hands:
            self._handshakes.pop(stream, None)
            return
        self._handshakes[stream] = None
        if len(self._handshakes) > HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.fail(f"more than {HANDSHAKES_MAX:,} TLS handshakes are incomplete")
