"""Clients that speak SP: the REQ end, connected to any number of REP ends and devices."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from requite.client.stacks import ClientSettings, Stack
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.protocols.scalability.policy import RETRY_DEFAULT, ReqPolicy
from requite.protocols.scalability.req import ScalabilityClient
from requite.protocols.scalability.wire import IDS
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.wires import Wires
from requite.sp.endpoints import LINK_LIMITS, Role, to_dial, to_listen
from requite.url import ServiceUrl


class _Abilities:
    """A request is one piece of bytes, and has one reply."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Anything but a plain call takes a protocol with a header."""
        if partials:
            raise ConfigurationError(
                "SP has one reply per request and no partial ones: use call (MDP can stream)"
            )
        if key:
            raise ConfigurationError("SP carries no idempotency key (MDP 0.3 does)")

    def check_service(self, service: str) -> None:
        """Whoever is connected serves everything."""
        if service:
            raise ConfigurationError(
                f"SP names no services, so {service!r} cannot be asked for: dial the place that"
                " serves it (MDP has named services)"
            )

    def check_frames(self, count: int) -> None:
        """There are no frames."""
        if count > 1:
            raise ConfigurationError(
                f"the body has {count} frames, and SP carries one: join them (MDP has frames)"
            )


def stack(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack of a client that dials and listens. Raises `ConfigurationError`."""
    if settings.heartbeat is not None:
        raise ConfigurationError("SP has no heartbeats (MDP 0.3 has): leave `heartbeat` out")
    if settings.dialect is not None:
        raise ConfigurationError("SP has no dialects (MDP has): leave `dialect` out")
    resend = _resend_of(reach.dials + reach.binds)
    if resend is not None and settings.retry is not None:
        raise ConfigurationError(
            "the URL's option 'resend' and `retry` both say when a request is sent again: give one"
            " of them (resend=5 is attempt_timeout=5 without a limit of attempts, resend=off is"
            " attempts=1)"
        )
    policy = ReqPolicy(slots=settings.slots, retry=_retry(settings.retry, resend))
    limits = Limits.for_bodies(settings.message_size_max)
    return Stack(
        lambda origin, chronicle: ScalabilityClient(
            policy,
            first_id=random.SystemRandom().randrange(IDS),
            origin=origin,
            chronicle=chronicle,
        ),
        Wires(
            keep=to_dial(reach.dials, Role.REQ, limits),
            listen=to_listen(reach.binds, Role.REQ, limits),
            limits=LINK_LIMITS,
        ),
        _Abilities(),
        holds=True,
    )


def _retry(given: RetryPolicy | None, resend: float | Literal["off"] | None) -> RetryPolicy:
    """Make it of `retry` or of what the URLs say; at most one of them is given."""
    if resend == "off":
        return RetryPolicy(attempts=1)
    if resend is not None:
        return replace(RETRY_DEFAULT, attempt_timeout=resend)
    return given or RETRY_DEFAULT


def _resend_of(urls: Iterable[ServiceUrl]) -> float | Literal["off"] | None:
    """Return what the URLs say of resending; it is the client's, so they may not differ."""
    found = {url.resend for url in urls if url.resend is not None}
    if len(found) > 1:
        raise ConfigurationError(
            "the URLs of one client differ in the option 'resend': it holds for all of them"
        )
    return found.pop() if found else None
