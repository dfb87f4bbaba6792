"""A TLS 1.3 peer that sends what no library does: floods of KeyUpdate and of empty records.

The handshake is that of the `ssl` module. Its key log has the secret of the connection, with which
records are then encrypted by hand (RFC 8446, sections 5.2, 7.1 and 7.2).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsSession

APPLICATION_DATA = 23
HANDSHAKE = 22
_KEY_UPDATE = bytes((24, 0, 0, 1))  # section 4.6.3: type and size; the request follows
_LOGGED = "CLIENT_TRAFFIC_SECRET_0"


class Tls13Writer:
    """Encrypts records under the secret of one direction."""

    def __init__(self, secret: bytes) -> None:
        self._hash = hashes.SHA384() if len(secret) == 48 else hashes.SHA256()
        self._use(secret)

    def record(self, content: bytes, kind: int = APPLICATION_DATA) -> bytes:
        """Return a record of this content (RFC 8446, section 5.2)."""
        inner = content + bytes((kind,))
        header = bytes((APPLICATION_DATA, 3, 3)) + (len(inner) + 16).to_bytes(2, "big")
        nonce = (int.from_bytes(self._iv, "big") ^ self._count).to_bytes(12, "big")
        self._count += 1
        return header + self._cipher.encrypt(nonce, inner, header)

    def key_update(self, asks: bool = False) -> bytes:
        """Return a KeyUpdate, and go on with the next key; `asks`: the peer must change its own."""
        record = self.record(_KEY_UPDATE + bytes((asks,)), HANDSHAKE)
        self._use(self._expand(self._secret, b"traffic upd", self._hash.digest_size))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        size = 32 if isinstance(self._hash, hashes.SHA384) else 16
        self._cipher = AESGCM(self._expand(secret, b"key", size))
        self._iv = self._expand(secret, b"iv", 12)
        self._count = 0

    def _expand(self, secret: bytes, label: bytes, size: int) -> bytes:
        """Return HKDF-Expand-Label without a context (section 7.1)."""
        full = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes((len(full),)) + full + b"\0"
        return HKDFExpand(self._hash, size, info).derive(secret)


def writer_from(log: Path) -> Tls13Writer:
    """Return the writer of the dialling end whose key log is in a file."""
    lines = [line.split() for line in log.read_text().splitlines()]
    [secret] = [line[2] for line in lines if line[0] == _LOGGED]
    return Tls13Writer(bytes.fromhex(secret))


def context_with_log(settings: TlsSettings, log: Path) -> ssl.SSLContext:
    """Return a new context to dial with, which logs the secrets of its connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=settings.ca)
    context.keylog_filename = str(log)
    return context


def established(settings: TlsSettings, server: TlsSession, log: Path) -> Tls13Writer:
    """Do the handshake with a listener's session; return the writer of the dialling end."""
    client = TlsSession(context_with_log(settings, log), "localhost")
    client.begin()
    for chunk in _exchange(client, server):
        server.receive(chunk)
    assert server.established
    return writer_from(log)


def _exchange(client: TlsSession, server: TlsSession) -> Iterator[bytes]:
    while chunk := client.output():
        yield chunk
        if answer := server.output():
            client.receive(answer)
