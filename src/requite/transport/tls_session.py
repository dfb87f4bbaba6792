"""The TLS session of one connection, without I/O: it decrypts received and encrypts sent bytes.

Records pass through memory buffers, so one implementation serves each event loop and the blocking
shell, with the same error messages.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any, Final

from requite.principal import Credential
from requite.transport.certificate import credential_of

_RECORD_SIZE: Final = 1 << 14  # RFC 8446, section 5.1: the maximum size of a record
# RFC 8446, section 5.1: the first record of a TLS peer is a handshake or an alert.
_FIRST_BYTES: Final = (0x15, 0x16)
# X509_V_ERR: self-signed, self-signed in the chain, no issuer found, no first link of the chain.
_UNKNOWN_ISSUER: Final = (18, 19, 20, 21)
_ALERT: Final = "_ALERT_"


class TlsFailure(Exception):  # an event of the connection, not a programming error
    """TLS has failed; the text has the reason."""


class TlsSession:
    """The TLS state of a connection. `server_name`: the dialled host; None for a server.

    After each call, also after a failure, the bytes that `output` returns have to be sent; a
    failure sends an alert. Raises `ValueError` for an invalid `server_name`.
    """

    __slots__ = (
        "_heard",
        "_incoming",
        "_outgoing",
        "_tls",
        "established",
        "peer_credential",
        "peer_has_ended",
    )

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self.established = False  # the handshake is complete: `send` may be called
        self.peer_credential: Credential | None = None  # its verified certificate
        self.peer_has_ended = False  # it has sent close_notify
        self._heard = False  # any bytes were received
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )

    def begin(self) -> None:
        """Start the handshake, on the dialling end only."""
        self._shake_hands()

    def receive(self, chunk: bytes) -> bytes:
        """Decrypt received bytes; return the plain ones. Raises `TlsFailure`."""
        if not self._heard:
            self._heard = True
            if chunk[0] not in _FIRST_BYTES:
                raise TlsFailure("the peer does not speak TLS")
        self._incoming.write(chunk)
        if not self.established:
            self._shake_hands()
        return self._read() if self.established else b""

    def send(self, data: bytes | memoryview) -> None:
        """Encrypt `data` (at least one byte). Raises `TlsFailure`."""
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error

    def end(self) -> None:
        """Send close_notify."""
        with suppress(ssl.SSLError):  # the peer has not sent its close_notify
            self._tls.unwrap()

    def output(self) -> bytes:
        """Return, once, the bytes to send."""
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error
        self.peer_credential = self._read_certificate()
        self.established = True

    def _read_certificate(self) -> Credential | None:
        """Return what the certificate of the peer proves; None without one.

        An authority may sign what neither the `ssl` module nor this package can read.
        """
        try:
            found: Any = self._tls.getpeercert()
            if not found:  # no certificate, or none that was verified
                return None
            return credential_of(found["subject"], self._tls.getpeercert(binary_form=True) or b"")
        except (ssl.SSLError, ValueError) as error:
            raise TlsFailure(f"cannot read the peer's certificate: {error}") from error

    def _read(self) -> bytes:
        """Decrypt all complete records; one read returns one record."""
        parts: list[bytes] = []
        try:
            while self._incoming.pending or self._tls.pending():
                data = self._tls.read(_RECORD_SIZE)
                if not data:
                    self.peer_has_ended = True
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass  # the last record is incomplete
        except ssl.SSLZeroReturnError:  # raised instead of an empty read after our own close_notify
            self.peer_has_ended = True
        except ssl.SSLError as error:
            raise TlsFailure(_in_words(error)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _in_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the peer's certificate is not valid: {error.verify_message.rstrip('.')}"
        if error.verify_code in _UNKNOWN_ISSUER:
            text += "; set `ca` to the file with the certificate of the authority that signed it"
        return text
    reason = error.reason or str(error)
    if _ALERT in reason:
        return f"the peer refused TLS: {_plain(reason.partition(_ALERT)[2])}"
    return f"TLS failed: {_plain(reason)}"


def _plain(reason: str) -> str:
    return reason.replace("_", " ").lower()
