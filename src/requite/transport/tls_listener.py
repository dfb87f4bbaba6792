"""The TLS of a listener: it reads changed files again, and limits incomplete handshakes."""

from __future__ import annotations

import logging
import time
from typing import Final

from requite.errors import ConfigurationError
from requite.transport.base import Stream
from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsSession
from requite.transport.tls_stream import Later, TlsStream

CHECK_EVERY_S: Final = 1.0
"""Files are checked at a handshake, if the last check is longer ago than this."""

HANDSHAKES_MAX: Final = 1024
"""Incomplete handshakes of a listener, of 54 KiB each. Beyond it the oldest one is dropped. The
handshake of a client takes milliseconds, so an attacker has to begin 100,000 per second to drop it.
"""

_logger: Final = logging.getLogger("requite.transport")


class TlsListener:
    """Makes the stream of each accepted connection, with the certificates that the files have now.

    If changed files cannot be used, it logs a warning that names the file, and goes on with the
    certificates that it has. Open connections stay as they are.

    `later` is that of `TlsStream`. Raises `ConfigurationError` for files that cannot be used at the
    start.
    """

    def __init__(self, settings: TlsSettings, later: Later) -> None:
        self._settings = settings
        self._later = later
        self._handshakes: dict[TlsStream, None] = {}  # incomplete ones, the oldest first
        self._stamps = settings.stamps()
        self._context = settings.listening_context()
        self._checked_at = time.monotonic()
        self._trouble = ""  # with the files as they are now

    def stream(self, below: Stream) -> TlsStream:
        """Make the stream over an accepted connection."""
        return TlsStream(below, self.session(), self._later, self._count)

    def session(self) -> TlsSession:
        """Make the session of an accepted connection."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            self._read_changed_files()
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

    def _read_changed_files(self) -> None:
        try:
            stamps = self._settings.stamps()
            if stamps == self._stamps:
                self._trouble = ""
                return
            self._stamps = stamps  # files that cannot be used are read again when they change
            self._context = self._settings.listening_context()
        except ConfigurationError as error:
            self._warn(str(error))
        else:
            self._trouble = ""
            _logger.info("new connections use the changed files of TLS")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            _logger.warning("%s; the certificates from before remain in use", trouble)
