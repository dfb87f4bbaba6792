"""Clients that are Lazy Pirates: REQ, against a REP server or the front of a queue."""

from __future__ import annotations

from dataclasses import replace

from requite.client.stacks import ClientSettings, Stack
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.pirate.client import LazyPirate
from requite.protocols.pirate.policy import ATTEMPT_TIMEOUT_S, LINK_HANDSHAKE_S, ClientPolicy
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.link import LinkLimits
from requite.shell.wires import Wires


class _Abilities:
    """A request is some frames, and has one reply."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Anything but a plain call takes a protocol with a header."""
        if partials:
            raise ConfigurationError(
                "a Lazy Pirate has one reply per request and no partial ones: use call (MDP can"
                " stream)"
            )
        if key:
            raise ConfigurationError("a Lazy Pirate carries no idempotency key (MDP 0.3 does)")

    def check_service(self, service: str) -> None:
        """Whoever is connected serves everything."""
        if service:
            raise ConfigurationError(
                f"the Pirates name no services, so {service!r} cannot be asked for: dial the place"
                " that serves it (MDP has named services)"
            )

    def check_frames(self, count: int) -> None:
        """Servers and queues have a limit, too."""
        if count > BODY_FRAMES_MAX:
            raise ConfigurationError(
                f"the body has {count} frames; peers take {BODY_FRAMES_MAX} at most"
            )


def stack(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack of a client that dials one place. Raises `ConfigurationError`."""
    url = reach.only_dialled()
    if "protocol" in url.options:
        raise ConfigurationError(
            f"the option 'protocol' means nothing here ({url}): it is for workers; the clients of"
            " every queue are the same"
        )
    if settings.heartbeat is not None:
        raise ConfigurationError(
            "a Lazy Pirate has no heartbeats (MDP 0.3 has): it asks again when"
            " retry=RetryPolicy(attempt_timeout=...) is over"
        )
    if settings.dialect is not None:
        raise ConfigurationError("the Pirates have no dialects (MDP has): leave `dialect` out")
    policy = ClientPolicy(
        slots=settings.slots,
        retry=_retry(settings.retry),
        connections_max=settings.connections,
    )
    limits = Limits.for_bodies(settings.message_size_max)
    return Stack(
        lambda origin, chronicle: LazyPirate(policy, origin=origin, chronicle=chronicle),
        Wires(
            lambda: Zmtp(SocketType.REQ, limits=limits),
            dial_to=url.addresses,
            limits=LinkLimits(handshake_timeout_s=LINK_HANDSHAKE_S),
            read_first=True,
        ),
        _Abilities(),
        holds=True,
    )


def _retry(given: RetryPolicy | None) -> RetryPolicy:
    """Take the Guide's policy, and its time for a try where none is given."""
    if given is None:
        return ClientPolicy().retry
    if given.attempt_timeout is None and given.attempts > 1:
        return replace(given, attempt_timeout=ATTEMPT_TIMEOUT_S)
    return given
