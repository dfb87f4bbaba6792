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
_HEADER_SIZE: Final = 5
# RFC 8446, section 5.1: the first record of a TLS peer is a handshake or an alert.
_FIRST_BYTES: Final = (0x15, 0x16)
# RFC 8446, section 6: the fatal alert unexpected_message. It tells a peer without TLS, whose
# framing knows the first bytes, what it has connected to.
_NOT_TLS: Final = bytes.fromhex("15 0303 0002 02 0a")
# Received bytes without data, such as KeyUpdate messages (11 to 22 us each) and padding, beyond
# which a connection ends. A record without its last byte has half as many. Each byte of data
# excuses several: one byte in a record of its own comes with 22 others.
_OVERHEAD_MAX: Final = 32 << 10
_OVERHEAD_PER_BYTE: Final = 32
# X509_V_ERR: self-signed, self-signed in the chain, no issuer found, no first link of the chain.
_UNKNOWN_ISSUER: Final = (18, 19, 20, 21)
_ALERT: Final = "_ALERT_"


class TlsFailure(Exception):  # an event of the connection, not a programming error
    """TLS has failed; the text has the reason."""


class TlsSession:
    """The TLS state of a connection. `server_name`: the dialled host; None for a server.

    After each call, also after a failure, the bytes that `output` returns have to be sent; a
    failure sends an alert. Raises `ValueError` for an invalid `server_name`.

    A server allocates OpenSSL's 45 KiB when the first record of its peer is complete.
    """

    __slots__ = (
        "_beginning",
        "_context",
        "_incoming",
        "_is_server",
        "_outgoing",
        "_overhead",
        "_tls",
        "established",
        "peer_credential",
        "peer_has_ended",
    )

    _tls: ssl.SSLObject

    def __init__(self, context: ssl.SSLContext, server_name: str | None) -> None:
        self.established = False  # the handshake is complete: `send` may be called
        self.peer_credential: Credential | None = None  # its verified certificate
        self.peer_has_ended = False  # it has sent close_notify
        self._beginning: bytes | None = b""  # the incomplete first record
        self._overhead = 0  # received bytes without data, less those that data excuse
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context = context
        self._is_server = server_name is None
        if not self._is_server:
            self._tls = self._make(server_name)

    def _make(self, server_name: str | None = None) -> ssl.SSLObject:
        return self._context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=self._is_server,
            server_hostname=server_name,
        )

    def begin(self) -> None:
        """Start the handshake; a listener waits for its peer."""
        if not self._is_server:
            self._shake_hands()

    def receive(self, chunk: bytes) -> bytes:
        """Decrypt received bytes; return the plain ones. Raises `TlsFailure`."""
        if not self.established:
            if self._beginning is not None and not (chunk := self._first_record(chunk)):
                return b""
            self._incoming.write(chunk)
            return self._read() if self._shake_hands() else b""
        self._incoming.write(chunk)
        data = self._read()
        overhead = self._overhead + len(chunk) - _OVERHEAD_PER_BYTE * len(data)
        if overhead <= 0:
            self._overhead = 0
        elif overhead <= _OVERHEAD_MAX:
            self._overhead = overhead
        else:
            raise TlsFailure(f"the peer sent {overhead} bytes of TLS messages without data")
        return data

    def send(self, data: bytes | memoryview) -> None:
        """Encrypt `data` (at least one byte). Raises `TlsFailure`."""
        try:
            sent = self._tls.write(data)
            while sent < len(data):
                sent += self._tls.write(memoryview(data)[sent:])
        except ssl.SSLError as error:
            raise TlsFailure(in_words(error)) from error

    def end(self) -> None:
        """Send close_notify, once the session is established."""
        if self.established:
            with suppress(ssl.SSLError):  # the peer has not sent its close_notify
                self._tls.unwrap()

    @property
    def shakes_hands(self) -> bool:
        """Whether it has memory of OpenSSL, and its handshake is not complete."""
        return self._beginning is None and not self.established

    @property
    def has_output(self) -> bool:
        """Whether there are bytes to send."""
        return self._outgoing.pending > 0

    def free(self) -> None:
        """Release OpenSSL's memory; after that only `peer_credential` and `established` remain."""
        if not self._is_server or self._beginning is None:
            del self._tls
        del self._incoming, self._outgoing

    def output(self) -> bytes:
        """Return, once, the bytes to send."""
        return self._outgoing.read()

    def _first_record(self, chunk: bytes) -> bytes:
        """Return all received bytes once the first record is complete; before that, b""."""
        assert self._beginning is not None
        beginning = self._beginning = self._beginning + chunk
        if beginning[0] not in _FIRST_BYTES:
            if self._is_server:
                self._outgoing.write(_NOT_TLS)
            raise TlsFailure("the peer does not speak TLS")
        size = int.from_bytes(beginning[3:_HEADER_SIZE], "big")
        # OpenSSL refuses a record that is too large.
        if len(beginning) < _HEADER_SIZE + min(size, _RECORD_SIZE):
            return b""
        self._beginning = None
        if self._is_server:
            self._tls = self._make()
        return beginning

    def _shake_hands(self) -> bool:
        """Go on with the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsFailure(in_words(error)) from error
        self.peer_credential = self._read_certificate()
        self.established = True
        return True

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
        """Decrypt all complete records; one read returns one whole record."""
        read, incoming = self._tls.read, self._incoming
        parts: list[bytes] = []
        try:
            while incoming.pending:
                data = read(_RECORD_SIZE)
                if not data:
                    self.peer_has_ended = True
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass  # the last record is incomplete
        except ssl.SSLZeroReturnError:  # raised instead of an empty read after our own close_notify
            self.peer_has_ended = True
        except ssl.SSLError as error:
            raise TlsFailure(in_words(error)) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)


def in_words(error: ssl.SSLError) -> str:
    """Return why TLS failed, and for an unknown authority what to set."""
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
