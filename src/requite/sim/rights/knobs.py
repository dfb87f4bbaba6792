"""The parameters of a run with principals, beside those of every run with a broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from requite.principal import Credential
from requite.sim.majordomo.knobs import Knobs

LIMITS: Final = ("requests", "bytes", "requests_per_s", "services", "connections")
"""The limits of a user's quota in a run; 0: none."""


@dataclass(frozen=True, slots=True)
class UserSpec:
    """One user of the access file: its rights, as globs, and its quota."""

    name: str
    call: tuple[str, ...] = ()
    serve: tuple[str, ...] = ()
    anonymous: bool = False
    requests: int = 0
    bytes: int = 0
    requests_per_s: int = 0
    services: int = 0
    connections: int = 0


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One process: its user ("": none of the file), and whether it announces the features of MDP
    0.3 that concern rights. `has_credential`: it shows one."""

    name: str
    user: str
    features: bool = True
    has_credential: bool = True

    @property
    def credential(self) -> Credential | None:
        """What its handshake proves."""
        return Credential("tls", (f"CN={self.name}",)) if self.has_credential else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsKnobs(Knobs):
    """A run. `users` is the access file before any change, `members` the processes."""

    one_by_one = frozenset({"clients", "workers", "users", "members"})

    users: tuple[UserSpec, ...]
    members: tuple[MemberSpec, ...]

    def member(self, process: str) -> MemberSpec:
        """Return the member of that name."""
        return next(member for member in self.members if member.name == process)


def access_file(users: Iterable[UserSpec], members: Sequence[MemberSpec]) -> bytes:
    """Return the content of an access file."""
    return "".join(line for user in users for line in _tables(user, members)).encode()


def _tables(user: UserSpec, members: Sequence[MemberSpec]) -> Iterator[str]:
    limits = {limit: getattr(user, limit) for limit in LIMITS if getattr(user, limit)}
    credentials = [
        member.credential.names[0]
        for member in members
        if member.user == user.name and member.credential is not None
    ]
    yield f"[user.{user.name}]\n"
    for key, values in (("tls", credentials), ("call", user.call), ("serve", user.serve)):
        yield f"{key} = {json.dumps(list(values))}\n"
    if user.anonymous:
        yield "anonymous = true\n"
    if limits:
        yield f'quota = "of-{user.name}"\n[quota.of-{user.name}]\n'
        yield from (f"{limit} = {value}\n" for limit, value in limits.items())
