"""Encryption of a log's records: each one by itself, with XAES-256-GCM.

    cipher = Cipher(read_key_file("requests.key"), b"TITN")
    stored = cipher.seal(b"payload", number=7)
    cipher.unseal(stored, number=7)             # b"payload"

A sealed payload has 45 bytes more than the payload:

    0xE1 | key id (4 bytes) | nonce (24 bytes) | ciphertext | tag (16 bytes)

The nonce is random. Each record has a key of its own, derived from the first half of its nonce, so
no number of records, restarts or crashes makes it likely that a nonce repeats under one key. The
purpose of the log and the number of the record are authenticated as well: a record cannot be moved.
A whole log, or the end of one, can be replaced by an older copy; only encryption is promised, not
completeness.

Source: C2SP, XAES-256-GCM; NIST SP 800-38D (GCM), SP 800-108 and 800-38B (derivation by CMAC).
Requires the package `cryptography`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from requite.errors import ConfigurationError, LogCorrupt, LogMismatch
from requite.storage.private import is_exposed

SEALED: Final = 0xE1
"""The first byte of a sealed payload. No record of Titanic or Dedup begins with it, so records that
were written before the log was encrypted can be told from sealed ones."""
KEY_SIZE: Final = 32
SEAL_SIZE: Final = 1 + 4 + 24 + 16
"""How many bytes a sealed payload has more than the payload."""

_ID_SIZE: Final = 4
_NONCE_AT: Final = 1 + _ID_SIZE
_HALF: Final = 12  # of a nonce
_TEXT_AT: Final = _NONCE_AT + 2 * _HALF
_BLOCK: Final = 16
_REDUCTION: Final = 0x87  # of the field of CMAC (SP 800-38B, section 5.3)


class Cipher:
    """Seals payloads with the first of `keys`, and opens those sealed with any of them.

    `context` names the kind of log. Raises `ConfigurationError` if `cryptography` is missing.
    """

    def __init__(self, keys: Sequence[bytes], context: bytes) -> None:
        self._context = context
        self._keys = {_id_of(key): _Key(key) for key in reversed(keys)}
        self._first = _id_of(keys[0])

    def seal(self, payload: bytes, number: int) -> bytes:
        """Encrypt the payload of the record with that number."""
        nonce = os.urandom(2 * _HALF)
        text = self._keys[self._first].seal(nonce, payload, self._bound(number))
        return b"".join((bytes((SEALED,)), self._first, nonce, text))

    def unseal(self, stored: bytes | memoryview, number: int) -> bytes:
        """Decrypt a payload; return one that is not sealed unchanged.

        Raises `LogMismatch` for a key that is not among ours, and `LogCorrupt` for a payload that
        was altered.
        """
        if stored[0:1] != bytes((SEALED,)):
            return bytes(stored)
        key = self._keys.get(bytes(stored[1:_NONCE_AT]))
        if key is None:
            raise LogMismatch(
                "the log is encrypted with a key that is not in the key file; add this key to it,"
                " after the first one"
            )
        nonce, text = bytes(stored[_NONCE_AT:_TEXT_AT]), bytes(stored[_TEXT_AT:])
        return key.unseal(nonce, text, self._bound(number))

    def is_current(self, stored: bytes | memoryview) -> bool:
        """Whether a payload is sealed with the first key."""
        return stored[0:1] == bytes((SEALED,)) and bytes(stored[1:_NONCE_AT]) == self._first

    def _bound(self, number: int) -> bytes:
        return self._context + number.to_bytes(8, "little")


class _Key:
    """One key; see the specification of XAES-256-GCM for the names."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            from cryptography.hazmat.primitives.ciphers.algorithms import AES
            from cryptography.hazmat.primitives.ciphers.modes import ECB
        except ImportError:
            raise ConfigurationError(
                "a key file requires the package cryptography: pip install 'requite[encryption]'"
            ) from None
        self._gcm = AESGCM
        self._invalid = InvalidTag
        self._aes = BlockCipher(AES(key), ECB()).encryptor()
        doubled = int.from_bytes(self._aes.update(bytes(_BLOCK)), "big") << 1
        if doubled >> 128:
            doubled = (doubled ^ _REDUCTION) & ((1 << 128) - 1)
        self._k1 = doubled

    def seal(self, nonce: bytes, payload: bytes, bound: bytes) -> bytes:
        return self._gcm(self._derived(nonce)).encrypt(nonce[_HALF:], payload, bound)

    def unseal(self, nonce: bytes, text: bytes, bound: bytes) -> bytes:
        try:
            return self._gcm(self._derived(nonce)).decrypt(nonce[_HALF:], text, bound)
        except (self._invalid, ValueError):
            raise LogCorrupt("an encrypted record was altered") from None

    def _derived(self, nonce: bytes) -> bytes:
        """Return the key for a nonce: two blocks of CMAC over a counter, `X` and half the nonce."""
        blocks = [
            (int.from_bytes(b"\0" + bytes((n,)) + b"X\0" + nonce[:_HALF], "big") ^ self._k1)
            for n in (1, 2)
        ]
        return self._aes.update(b"".join(block.to_bytes(_BLOCK, "big") for block in blocks))


def read_key_file(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the keys of a file: one per line, 64 hex digits; empty lines and `#` comments.

    New records are encrypted with the first one. Raises `ConfigurationError` if the file cannot be
    read, other users may read it, or it has no valid keys; the message contains none of it.
    """
    place = Path(path)
    try:
        with place.open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"cannot read the key file {place}: {reason}") from None
    if is_exposed(status):
        raise ConfigurationError(
            f"other users can read the key file {place}; close it: chmod 600 {place}"
        )
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    keys = [_key_of(line, place, number) for number, line in enumerate(lines, 1) if line]
    if not keys:
        raise ConfigurationError(
            f"the key file {place} has no key; make one: openssl rand -hex 32 > {place}"
        )
    return keys


def _key_of(line: str, place: Path, number: int) -> bytes:
    try:
        key = bytes.fromhex(line)
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise ConfigurationError(
            f"line {number} of the key file {place} is not a key: 64 hex digits (openssl rand"
            " -hex 32)"
        )
    return key


def _id_of(key: bytes) -> bytes:
    return sha256(b"requite key id" + key).digest()[:_ID_SIZE]


def require_plain(payload: bytes | memoryview, option: str) -> None:
    """Raise `LogMismatch` if a payload that was read without a cipher is sealed."""
    if payload[0:1] == bytes((SEALED,)):
        raise LogMismatch(f"the log is encrypted; give its key file ({option})")
