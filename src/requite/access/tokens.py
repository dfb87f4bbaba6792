"""Tokens: secrets of 256 random bits, of which the access file has the SHA-256.

Such a secret cannot be guessed, so it needs no slow hash, as passwords do.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Final

from requite.principal import Credential

KIND: Final = "token"
_PREFIX: Final = "sha256:"


def new_token() -> str:
    """Return a new token."""
    return f"rq_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """Return the value of `token` for the access file."""
    return _PREFIX + sha256(token.encode()).hexdigest()


def token_credential(token: str) -> Credential:
    """Return what a token proves; it contains no secret."""
    return Credential(KIND, (hash_token(token),))


def is_hash(value: str) -> bool:
    """Whether a text is what `hash_token` returns."""
    digits = value.removeprefix(_PREFIX)
    return value != digits and len(digits) == 64 and not set(digits) - set("0123456789abcdef")
