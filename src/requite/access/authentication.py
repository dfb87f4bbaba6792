"""A hook of the user that may refuse a peer that the access file admits.

host ──ask──► Authenticator ──await──► hook
  ▲                  │
  └──────answer──────┘   None: admitted; a `RemoteViolation`: refused, and why
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from requite.errors import RemoteViolation
from requite.principal import Credential


class Authentication(NamedTuple):
    """A peer that the access file admits, and that a hook may still refuse. It has no secret.

    - `user`: its user in the access file.
    - `credential`: what it has proven; None for the user with `anonymous`.
    - `address`: where it connects from, such as `tcp://192.0.2.7:40022` or `ipc:///run/socket`.
    - `identity`: the identity that it announced; b"" if none.
    """

    user: str
    credential: Credential | None
    address: str
    identity: bytes = b""

    @property
    def mechanism(self) -> str:
        """How the credential was proven: PLAIN, CURVE, TLS (a certificate), LOCAL (the user id of a
        Unix socket's peer), or NULL: there is none."""
        return "NULL" if self.credential is None else self.credential.kind.upper()


Authenticate: TypeAlias = Callable[[Authentication], Awaitable[bool]]
"""A hook: `async def hook(peer: Authentication) -> bool`. Only True admits the peer."""

Answer: TypeAlias = Callable[[RemoteViolation | None], object]
"""Gets why a peer is refused; None: it is admitted."""

Ask: TypeAlias = Callable[[Authentication, Answer], Callable[[], object]]
"""Asks about a peer; the answer comes later, once. Returns what withdraws the question."""


class AuthenticationUnavailable(RemoteViolation):
    """Nobody can say now whether to admit the peer, which may try again."""
