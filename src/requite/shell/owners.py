"""Who owns the accepted links of a host, and how many links each owner has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeAlias

from requite.errors import RemoteViolation
from requite.framing.base import CredentialsRefused
from requite.principal import ANYONE, INSIDE, Credential, Principal
from requite.shell.link import Link

_NAMED_MAX: Final = 1024  # principals, without a table of users

Identify: TypeAlias = Callable[[Credential | None, str, Any], Principal]
"""Returns the principal of a credential, given the peer's name for messages and the place at which
it connects (`Link.place`). Raises `CredentialsRefused`."""


Identified: TypeAlias = Callable[[Principal, Credential | None, str, str], object]
"""Is told who owns a new link, by which credential, the peer's name, and why it may not connect
nevertheless ("": it may)."""


class QuotaReached(RemoteViolation):
    """The principal has as many connections as its quota allows. `status` is what the peer is
    told: its credentials are right, so it is not that of `CredentialsRefused`."""

    status: ClassVar[str] = "too-many-connections"


def unrestricted(credential: Credential | None, _peer_name: str, _place: Any) -> Principal:
    """Return a principal that may do everything: there is no table of users."""
    if credential is None:
        return ANYONE
    return INSIDE if credential.kind == "inside" else _named(str(credential))


@lru_cache(maxsize=_NAMED_MAX)
def _named(name: str) -> Principal:
    """Return one principal for all connections with a credential; it takes 300 bytes."""
    return Principal(name)


class Owners:
    """Finds the owner of each accepted link by its credential."""

    __slots__ = ("_counts", "_identified", "_identify")

    def __init__(self, identify: Identify, identified: Identified) -> None:
        self._identify = identify
        self._identified = identified
        self._counts: Counter[Principal] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def admit(self, link: Link) -> None:
        """Set the principal of a link whose handshake is complete.

        Raises `CredentialsRefused` or `QuotaReached` if it may not connect.
        """
        principal = self._owner(link)
        maximum = principal.quota.connections
        refusal = ""
        if maximum and self._counts[principal] >= maximum:
            refusal = (
                f"{principal} has {maximum} connections, the maximum (connections of its quota)"
            )
        self._identified(principal, link.credential, link.stream.peer_name, refusal)
        if refusal:
            raise QuotaReached(refusal)
        link.principal = principal
        self._counts[principal] += 1  # even without a limit: its quota may change

    def forget(self, link: Link) -> None:
        """Remove a link that has ended."""
        principal = link.principal
        if principal in self._counts:
            self._counts[principal] -= 1
            if self._counts[principal] <= 0:
                del self._counts[principal]

    def no_longer_admitted(self, links: Iterable[Link]) -> list[tuple[Link, str]]:
        """Return the links whose credential belongs to nobody or to another user now, and why."""
        ends: list[tuple[Link, str]] = []
        for link in links:
            if not (link.accepted and link.framing.ready) or link.ended:
                continue
            try:
                if self._owner(link) is not link.principal:
                    ends.append((link, f"its credential is not {link.principal}'s any more"))
            except CredentialsRefused as refusal:
                ends.append((link, str(refusal)))
        return ends

    def _owner(self, link: Link) -> Principal:
        return self._identify(link.credential, link.stream.peer_name, link.place)
