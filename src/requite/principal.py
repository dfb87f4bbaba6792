"""Who a peer is, and what it may do.

A handshake proves a `Credential`, such as a TLS certificate or a password. The listener's table of
users (`requite.access`) turns it into a `Principal`: a name, and its rights. All connections of a
user share one principal, so its rights can change, and its use of the broker can be counted, in one
place. A listener without such a table gives each credential a principal that may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias, final, get_args

from requite.value import Value

Verb: TypeAlias = Literal["call", "serve", "titanic", "pool", "admin", "act"]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)

# Remembered names per principal, for hot paths; a peer may ask for any number of names.
_ALLOWED_MAX: Final = 4096
_PATTERNS_MAX: Final = 1024
_RESERVED: Final = ("titanic.", "mmi.")


class Credential(NamedTuple):
    """What a handshake has proven about a peer.

    | `kind` | `names` |
    |---|---|
    | `tls` | the subject of its certificate (`CN=shop,O=Example`), its common name (`CN=shop`), the SHA-256 of its public key (`sha256:…`, in hex) |
    | `curve` | its public key, in Z85 |
    | `plain` | its user name, and which of the hashes of its passwords in an access file matched |
    | `local` | the user id of the peer of a Unix socket, in decimal |
    | `inside` | a part of the listener's own process |

    `names` has at least one name, the most specific one first; it contains no secret.
    """  # noqa: E501

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{self.names[0]}"


@dataclass(frozen=True, slots=True)
class Rights(Value):
    """The names that a principal may use, as globs, by verb. A verb includes no other one.

    - `call`, `serve`: names of services.
    - `titanic`: `submit` (submit durable requests, and fetch and close its own).
    - `pool`: names of pools that it may manage.
    - `admin`: `stats`, `kick`, `pause`, `purge`, `drain`, `switch`, `titanic`.
    - `act`: names of users for whom it may make requests, which then have the rights of that user.

    `*` matches any characters, `?` one, `[abc]` one of a set. Reserved names (`titanic.…`, `mmi.…`
    and `POOL/!…`) match only a glob that spells out their reserved part.
    """

    call: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    titanic: tuple[str, ...] = ()
    pool: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()
    act: tuple[str, ...] = ()

    def match(self, verb: Verb, name: str) -> str | None:
        """Return the first glob that grants `verb` on `name`; None if there is none."""
        globs: Iterable[str] = getattr(self, verb)
        return next((glob for glob in globs if matches(glob, name)), None)


def matches(glob: str, name: str) -> bool:
    """Whether a glob of `Rights` matches a name."""
    for prefix in _RESERVED:
        if name.startswith(prefix) and not glob.startswith(prefix):
            return False
    if "/!" in name and "/!" not in glob:
        return False
    return _compiled(glob).match(name) is not None


@lru_cache(maxsize=_PATTERNS_MAX)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@dataclass(frozen=True, slots=True)
class Quota(Value):
    """What a principal may use at a listener at a time; 0: no limit of its own.

    - `bytes`: memory of its outstanding requests, and of its incomplete messages.
    - `bytes_per_s`: received from it, over all its connections.
    - `connections`, `requests` (outstanding), `requests_per_s`.
    - `services`: services without workers that it has named.
    - `groups`: groups that its requests may start in one pool.
    """

    bytes: int = 0
    bytes_per_s: int = 0
    connections: int = 0
    requests: int = 0
    requests_per_s: int = 0
    services: int = 0
    groups: int = 0

    @property
    def limits_of_requests(self) -> list[str]:
        """Its limits of requests, and not of connections and received bytes: only a broker counts
        requests."""
        names = ("bytes", "requests", "requests_per_s", "services", "groups")
        return [name for name in names if getattr(self, name)]


NO_QUOTA: Final = Quota()
"""The quota without limits."""


@final
@dataclass(slots=True, eq=False)
class Principal:
    """The owner of a connection, shared by all its connections.

    - `name`: its user in `access.toml`; without such a file its credential, and "" if it has none.
      Tickets, idempotency keys and call ids belong to this name.
    - `rights`: None grants everything.
    - `quota`: its limits.
    - `is_revoked`: its user was removed; its connections end.
    - `allowed`: names that it may call, remembered for hot paths.

    Rights and quota may change at any time; the input `RightsChanged` tells engines so.
    """

    name: str = ""
    rights: Rights | None = None
    quota: Quota = NO_QUOTA
    is_revoked: bool = False
    allowed: set[bytes] = field(default_factory=set)

    def grant(self, rights: Rights | None, quota: Quota) -> bool:
        """Replace rights and quota; return whether they differ."""
        if rights == self.rights and quota == self.quota:
            return False
        self.rights, self.quota = rights, quota
        self.allowed.clear()
        return True

    def revoke(self) -> None:
        """Take away all rights: its user was removed."""
        self.is_revoked = True
        self.grant(Rights(), self.quota)

    def may(self, verb: Verb, name: bytes | str) -> bool:
        """Whether it has the right to `verb` on `name`."""
        if self.rights is None:
            return True
        text = name if isinstance(name, str) else name.decode(errors="replace")
        return self.rights.match(verb, text) is not None

    def may_any(self, verb: Verb) -> bool:
        """Whether it has the right to `verb` on any name."""
        return self.rights is None or bool(getattr(self.rights, verb))

    @property
    def may_serve(self) -> bool:
        """Whether it may serve any name: also those of a pool that it manages."""
        return self.may_any("serve") or self.may_any("pool")

    def remember(self, name: bytes) -> None:
        """Remember that it may call `name`."""
        if len(self.allowed) >= _ALLOWED_MAX:
            self.allowed.clear()
        self.allowed.add(name)

    def __str__(self) -> str:
        return self.name or "anonymous"


ANYONE: Final = Principal()
"""A peer without a credential, at a listener without a table of users."""

INSIDE: Final = Principal()
"""A part of the listener's own process, such as the Titanic of a broker."""
