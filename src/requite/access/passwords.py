"""Hashes of passwords (scrypt, RFC 7914), and their verification.

A hash is one string, `scrypt$LOG2N$R$P$SALT$HASH`, with salt and hash in URL-safe base 64. Hashing
takes some 50 ms and 16 MiB. A correct password is remembered as a keyed digest in this process, so
that a client that reconnects costs microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final, NamedTuple

from requite.errors import ConfigurationError
from requite.principal import Credential

_LOG2_N: Final = 14
_R: Final = 8
_P: Final = 1
_SALT_SIZE: Final = 16
_HASH_SIZE: Final = 32
_MEMORY_MAX: Final = 64 << 20
_PASSWORD_SIZE_MAX: Final = 255  # of ZMTP PLAIN
_PROVEN_MAX: Final = 1024


class PasswordHash(NamedTuple):
    """A hash with its parameters: the cost is 2^`log2_n` * `r` * `p`."""

    log2_n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    @property
    def mark(self) -> str:
        """Tells the hashes of a user apart, without a secret: the salt."""
        return self.salt.hex()

    def matches(self, password: bytes) -> bool:
        """Whether a password has this hash."""
        made = _scrypt(password, self)
        return hmac.compare_digest(made, self.digest)


def hash_password(password: str) -> str:
    """Return the hash of a password, with a new salt. Raises `ConfigurationError` for an empty
    password, and for one of more than 255 bytes, which ZMTP PLAIN cannot carry."""
    data = password.encode()
    if not 1 <= len(data) <= _PASSWORD_SIZE_MAX:
        raise ConfigurationError(
            f"a password has 1 to {_PASSWORD_SIZE_MAX} bytes of UTF-8, not {len(data)}"
        )
    form = PasswordHash(_LOG2_N, _R, _P, secrets.token_bytes(_SALT_SIZE), b"")
    parts = (form.salt, _scrypt(data, form))
    encoded = (urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return "$".join(("scrypt", str(_LOG2_N), str(_R), str(_P), *encoded))


def parse_hash(text: str) -> PasswordHash:
    """Parse a hash. Raises `ConfigurationError`, whose message does not contain the text."""
    parts = text.split("$")
    try:
        kind, log2_n, r, p, salt, digest = parts
        form = PasswordHash(int(log2_n), int(r), int(p), _decode(salt), _decode(digest))
    except ValueError:
        raise ConfigurationError(
            "it is not a hash of a password; make one with `requite access hash`"
        ) from None
    is_sane = 10 <= form.log2_n <= 20 and 1 <= form.r <= 32 and 1 <= form.p <= 16
    memory = 128 * form.r << form.log2_n if is_sane else _MEMORY_MAX + 1
    if kind != "scrypt" or memory > _MEMORY_MAX or not form.salt or len(form.digest) < 16:
        raise ConfigurationError(
            "the parameters of the hash are out of range; make one with `requite access hash`"
        )
    return form


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _scrypt(password: bytes, form: PasswordHash) -> bytes:
    return hashlib.scrypt(
        password,
        salt=form.salt,
        n=1 << form.log2_n,
        r=form.r,
        p=form.p,
        maxmem=2 * _MEMORY_MAX,
        dklen=len(form.digest) or _HASH_SIZE,
    )


class Passwords:
    """Checks passwords against a table of hashes, several per user while one is replaced.

    A wrong password costs the time of as many hashes for each user, and for an unknown one. `check`
    may run in a thread, while others call `recall`.
    """

    def __init__(self, hashes: Mapping[str, tuple[PasswordHash, ...]]) -> None:
        self._hashes = dict(hashes)
        self._most = max(map(len, self._hashes.values()), default=1)
        self._key = secrets.token_bytes(_HASH_SIZE)
        self._proven: dict[bytes, Credential] = {}  # by a digest of user and password
        self._nobody = PasswordHash(_LOG2_N, _R, _P, bytes(_SALT_SIZE), bytes(_HASH_SIZE))

    def recall(self, user: str, password: str) -> Credential | None:
        """Return what a password has proven before, in microseconds; None if it has not."""
        return self._proven.get(self._digest(user, password))

    def check(self, user: str, password: str) -> Credential | None:
        """Return what a password proves: which user, by which hash; None if it is wrong."""
        if (known := self.recall(user, password)) is not None:
            return known
        data = password.encode()
        hashes = self._hashes.get(user, ())
        found = next((each for each in hashes if each.matches(data)), None)
        if found is None:
            for _ in range(self._most - len(hashes)):
                self._nobody.matches(data)
            return None
        if len(self._proven) >= _PROVEN_MAX:
            self._proven.clear()
        proof = Credential("plain", (user, found.mark))
        self._proven[self._digest(user, password)] = proof
        return proof

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, user.encode() + b"\0" + password.encode(), "sha256")
