"""Clients that speak MDP with a broker."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from requite.client.stacks import ClientSettings, Stack
from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError, RemoteViolation
from requite.framing import (
    BODY_FRAMES_MAX,
    Limits,
    SocketType,
    Zmtp,
    mechanism_to_show,
)
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version, check_service_name
from requite.protocols.majordomo.wire import WHO_HANGS_UP, Dialect
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.wires import Wires

DIALECT_DEFAULT: Final = "0.3"
_KEY_SIZE_MAX: Final = 255
_SEQUENCES: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class _Abilities:
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
        if not service:
            raise ConfigurationError(
                "no service is named: put it into the URL (mdp://host/echo) or pass service=..."
            )
        try:
            check_service_name(service.encode())
        except (RemoteViolation, UnicodeEncodeError) as error:
            raise ConfigurationError(str(error)) from None

    def check_frames(self, count: int) -> None:
        """Brokers and workers have a limit, too."""
        if count > BODY_FRAMES_MAX:
            raise ConfigurationError(
                f"the body has {count} frames; peers take {BODY_FRAMES_MAX} at most"
            )

    def _refuse(self, why: str) -> None:
        raise ConfigurationError(f"MDP {self.dialect.version} {why} (MDP 0.3 can)")


def stack(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack of a client that dials one broker. Raises `ConfigurationError`."""
    url = reach.only_dialled()
    dialect = by_version(settings.dialect or url.options.get("dialect", DIALECT_DEFAULT))
    policy = ClientPolicy(
        slots=settings.slots,
        retry=settings.retry or RetryPolicy(),
        heartbeat=_heartbeat(settings.heartbeat, dialect),
        connections_max=settings.connections,
        hold_back=_hold_back(settings.hold_back, dialect),
    )
    mechanism = mechanism_to_show(url.user, url.password)
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
        Wires(
            lambda: Zmtp(
                SocketType.DEALER, mechanism=mechanism, limits=limits, who_hangs_up=WHO_HANGS_UP
            ),
            dial_to=url.addresses,
        ),
        _Abilities(dialect),
    )


def _hold_back(share: float, dialect: Dialect) -> float:
    if share and not dialect.has_ids:
        raise ConfigurationError(
            f"MDP {dialect.version} does not tell brokers of deadlines (MDP 0.3 does):"
            " leave hold_back out"
        )
    return share


def _heartbeat(given: HeartbeatPolicy | float | None, dialect: Dialect) -> HeartbeatPolicy:
    if given is not None and not dialect.has_ids:
        raise ConfigurationError(
            f"MDP {dialect.version} has no heartbeats between client and broker (MDP 0.3 has):"
            " a broker that fell silent is found out by the timeout alone"
        )
    return heartbeat_of(given)
