"""What a URL makes of a client: which engine, which framing, and what the protocol can do.

One function per protocol, one row in `_STACKS`, and one in `requite.url` for its scheme.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from requite.chronicle import Chronicle
from requite.engine import Engine
from requite.errors import CallError, ConfigurationError, LocalViolation, RemoteViolation
from requite.framing import Framing, Limits, Mechanism, Null, PlainClient, SocketType, Zmtp
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version, check_service_name
from requite.protocols.majordomo.wire import Dialect
from requite.request import RetryPolicy
from requite.url import ServiceUrl

DIALECT_DEFAULT: Final = "0.3"
_KEY_SIZE_MAX: Final = 255
_SEQUENCES: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a user may set on a client, as it was given; None: not given."""

    retry: RetryPolicy
    slots: int
    heartbeat: HeartbeatPolicy | float | None
    dialect: str | None
    connections: int
    message_size_max: int


class Abilities(Protocol):
    """What a protocol can promise for a call; what it cannot is refused, never dropped."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Raise `ConfigurationError` for what is asked of a call and cannot be had."""

    def check_service(self, service: str) -> None:
        """Raise `ConfigurationError` for a name that no service can have."""


class CallEngine(Engine, Protocol):
    """The engine of a client."""

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because this engine, which must
        not be used any more, was given up."""


class Stack(NamedTuple):
    """A protocol made ready for one client. Each has a fresh engine, and may be made again.

    `make_engine(origin, chronicle)`: `origin` is the first half of its call ids (8 bytes, random).
    """

    make_engine: Callable[[bytes, Chronicle | None], CallEngine]
    make_framing: Callable[[], Framing]
    abilities: Abilities


def stack_for(url: ServiceUrl, settings: ClientSettings) -> Stack:
    """Make the stack that a URL stands for. Raises `ConfigurationError` for what cannot work."""
    return _STACKS[url.protocol](url, settings)


# --- Majordomo ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _MajordomoAbilities:
    dialect: Dialect

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Idempotency needs a header to say it in; partial replies exist from 0.2 on."""
        if partials and not self.dialect.has_partials:
            self._refuse("has no partial replies: use call")
        if key and not self.dialect.has_ids:
            self._refuse("does not carry idempotency keys")
        if not idempotent and not self.dialect.has_ids:
            self._refuse("cannot tell the broker that a request must not run twice")
        if len(key) > _KEY_SIZE_MAX:
            raise ConfigurationError(f"an idempotency key has at most {_KEY_SIZE_MAX} bytes")

    def check_service(self, service: str) -> None:
        """A name has 1 to 255 bytes of UTF-8 without control characters."""
        try:
            check_service_name(service.encode())
        except (RemoteViolation, UnicodeEncodeError) as error:
            raise ConfigurationError(str(error)) from None

    def _refuse(self, why: str) -> None:
        raise ConfigurationError(f"MDP {self.dialect.version} {why} (MDP 0.3 can)")


def _majordomo(url: ServiceUrl, settings: ClientSettings) -> Stack:
    dialect = by_version(settings.dialect or url.options.get("dialect", DIALECT_DEFAULT))
    policy = ClientPolicy(
        slots=settings.slots,
        retry=settings.retry,
        heartbeat=_heartbeat(settings.heartbeat, dialect),
        connections_max=settings.connections,
    )
    mechanism = _mechanism(url)
    limits = Limits.for_bodies(settings.message_size_max)
    return Stack(
        lambda origin, chronicle: client_engine(
            dialect,
            policy,
            rng=random.random,
            first_sequence=random.SystemRandom().randrange(_SEQUENCES),
            origin=origin,
            chronicle=chronicle,
        ),
        lambda: Zmtp(SocketType.DEALER, mechanism=mechanism, limits=limits),
        _MajordomoAbilities(dialect),
    )


def _heartbeat(given: HeartbeatPolicy | float | None, dialect: Dialect) -> HeartbeatPolicy:
    if given is None:
        return HeartbeatPolicy()
    if not dialect.has_ids:
        raise ConfigurationError(
            f"MDP {dialect.version} has no heartbeats between client and broker (MDP 0.3 has):"
            " a broker that fell silent is found out by the timeout alone"
        )
    return given if isinstance(given, HeartbeatPolicy) else HeartbeatPolicy(interval_s=given)


def _mechanism(url: ServiceUrl) -> Mechanism:
    if url.user is None or url.password is None:
        return Null()
    try:
        return PlainClient(url.user, url.password)
    except LocalViolation as violation:
        raise ConfigurationError(str(violation)) from None


_STACKS: Final[dict[str, Callable[[ServiceUrl, ClientSettings], Stack]]] = {"mdp": _majordomo}
