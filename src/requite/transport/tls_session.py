"""One connection's TLS, sans I/O: encrypted bytes in, plain bytes out, and back.

The records go through memory, so the same session serves every event loop and the blocking shell,
and fails everywhere in the same words.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

_RECORD_SIZE: Final = 1 << 14  # RFC 8446, section 5.1: the most that one record holds
# RFC 8446, section 5.1: what a TLS peer sends first is a record with a handshake, or an alert.
_FIRST_BYTES: Final = (0x15, 0x16)
# X509_V_ERR: self-signed, self-signed in the chain, no issuer found, no first link of the chain.
_UNKNOWN_ISSUER: Final = (18, 19, 20, 21)
_ALERT: Final = "_ALERT_"


class TlsFailure(Exception):  # it is what happened to a connection, told in words
    """TLS cannot go on; the text says why, for people."""


class TlsSession:
    """The state of TLS between two ends. `server_name`: whom we dial; None on the server's side.

    After each call, what `output` returns has to be sent; after a failure, too: it tells the peer.
    Raises `ValueError` for a `server_name` that can be none.
    """

    __slots__ = ("_heard", "_incoming", "_outgoing", "_tls", "established", "peer_has_ended")

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self.established = False  # both ends have shaken hands: `send` may be called
        self.peer_has_ended = False  # it will send nothing more, and has said so
        self._heard = False  # anything at all
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )

    def begin(self) -> None:
        """Say what the dialling end says first; the server's waits for that."""
        self._shake_hands()

    def receive(self, chunk: bytes) -> bytes:
        """Take what came over the connection; return what it holds for us. Raises `TlsFailure`."""
        if not self._heard:
            self._heard = True
            if chunk[0] not in _FIRST_BYTES:
                raise TlsFailure("the peer does not speak TLS")
        self._incoming.write(chunk)
        if not self.established:
            self._shake_hands()
        return self._read() if self.established else b""

    def send(self, data: bytes | memoryview) -> None:
        """Encrypt `data`, at least one byte of it. Raises `TlsFailure`."""
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error

    def end(self) -> None:
        """Say that we send nothing more."""
        with suppress(ssl.SSLError):  # the peer has not said so yet, or had no time to
            self._tls.unwrap()

    def output(self) -> bytes:
        """Return, once, what has to be sent."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error
        self.established = True

    def _read(self) -> bytes:
        """Read all records that are complete; one read takes one record."""
        parts: list[bytes] = []
        try:
            while self._incoming.pending or self._tls.pending():
                data = self._tls.read(_RECORD_SIZE)
                if not data:
                    self.peer_has_ended = True
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass  # the last record is not complete
        except ssl.SSLZeroReturnError:  # in place of no data, where we have ended, too
            self.peer_has_ended = True
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _in_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the peer's certificate is not valid: {error.verify_message.rstrip('.')}"
        if error.verify_code in _UNKNOWN_ISSUER:
            text += "; name the file of who signed it with ca"
        return text
    reason = error.reason or str(error)
    if _ALERT in reason:
        return f"the peer refused TLS: {_plain(reason.partition(_ALERT)[2])}"
    return f"TLS failed: {_plain(reason)}"


def _plain(reason: str) -> str:
    return reason.replace("_", " ").lower()
