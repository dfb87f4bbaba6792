"""The options of a call in the fields of an HTTP request."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.gateway.problems import Problem

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from requite.gateway.policy import GatewayPolicy

TIMEOUT_FIELD: Final = "X-Request-Timeout"
"""The seconds until the deadline of the call, as a decimal number: `2.5`."""
KEY_FIELD: Final = "Idempotency-Key"
"""Printable ASCII characters, perhaps in quotes. Source: draft-ietf-httpapi-idempotency-key-header,
section 2."""

KEY_SIZE_MAX: Final = 128
_OWNED_SIZE_MAX: Final = 255  # of MDP 0.3
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_KEY: Final = re.compile(r'"([\x20\x21\x23-\x7e]+)"|([\x21\x23-\x7e]+)')


class Options(NamedTuple):
    """The deadline of a call, on the clock of this process, and its idempotency key."""

    until: float
    key: bytes

    def arguments(self, now: float) -> dict[str, Any]:
        """Return the arguments of a client's call. A request without a key is not sent to another
        worker once it may have run."""
        return {
            "timeout": max(self.until - now, 0.001),
            "idempotent": bool(self.key),
            "idempotency_key": self.key,
        }


def read_options(headers: Headers, policy: GatewayPolicy, owner: str, now: float) -> Options:
    """Read the options of a request that arrived at `now`. Raises `Problem` for invalid ones.

    Keys belong to the user `owner`: a broker that does not know users takes all calls of the
    gateway for those of one user.
    """
    until = now + _timeout(headers.get(TIMEOUT_FIELD, ""), policy)
    key = headers.get(KEY_FIELD)
    return Options(until, b"" if key is None else _key(key, owner))


def _timeout(field: str, policy: GatewayPolicy) -> float:
    if not field:
        return policy.timeout
    seconds = float(field) if _NUMBER.fullmatch(field) else 0.0
    if not 0 < seconds <= policy.timeout_max:
        raise Problem(
            "BadRequest",
            f"{TIMEOUT_FIELD} is a number of seconds, above 0 and at most {policy.timeout_max:g}",
        )
    return seconds


def _key(field: str, owner: str) -> bytes:
    found = _KEY.fullmatch(field.strip())
    if found is None or len(field) > KEY_SIZE_MAX:
        raise Problem(
            "BadRequest",
            f"{KEY_FIELD} has 1 to {KEY_SIZE_MAX} printable characters of ASCII, without quotes"
            " inside",
        )
    key = found[1] or found[2]
    if not owner:
        return key.encode()
    owned = f"{owner}/{key}".encode()
    return owned if len(owned) <= _OWNED_SIZE_MAX else sha256(owned).digest()
