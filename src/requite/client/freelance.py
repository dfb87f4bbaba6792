"""Clients of the Freelance pattern: connected to several equal servers, of which one answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from requite.client.stacks import CallEngine, ClientSettings, Stack
from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.policy import (
    ATTEMPT_S_DEFAULT,
    ATTEMPTS_DEFAULT,
    PING_DEFAULT,
    ClientPolicy,
)
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.protocols.freelance.wire import Model
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.keeping import Endpoint
from requite.shell.link import LinkLimits
from requite.shell.wires import Wires
from requite.transport.address import Address

LANES_MAX: Final = 8
"""How many requests of model one a server may have at a time: each needs a connection of its own,
and these are opened in advance."""

# As long as libzmq gives a peer.
LINK_LIMITS: Final = LinkLimits(handshake_timeout_s=30.0)

_ENGINES: Final[dict[Model, Callable[..., CallEngine]]] = {
    Model.FAILOVER: FailoverClient,
    Model.SHOTGUN: ShotgunClient,
    Model.AGENT: AgentClient,
}
_SOCKETS: Final = {
    Model.FAILOVER: SocketType.REQ,
    Model.SHOTGUN: SocketType.DEALER,
    Model.AGENT: SocketType.ROUTER,
}


@dataclass(frozen=True, slots=True)
class _Abilities:
    """A request has frames, and one reply; there are no names and no keys."""

    model: Model

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Anything but a plain call takes a protocol with a header."""
        if partials:
            raise ConfigurationError(
                "Freelance has one reply per request and no partial ones: use call (MDP can stream)"
            )
        if key:
            raise ConfigurationError("Freelance carries no idempotency key (MDP 0.3 does)")
        if not idempotent and self.model is Model.SHOTGUN:
            raise ConfigurationError(
                "the shotgun asks all servers at once, so that a request runs several times; for"
                " one that must not, use another model"
            )

    def check_service(self, service: str) -> None:
        """Whoever is connected serves everything."""
        if service:
            raise ConfigurationError(
                f"Freelance names no services, so {service!r} cannot be asked for: dial the servers"
                " that serve it (MDP has named services)"
            )

    def check_frames(self, count: int) -> None:
        """Servers have a limit, too."""
        if count > BODY_FRAMES_MAX:
            raise ConfigurationError(
                f"the body has {count} frames; peers take {BODY_FRAMES_MAX} at most"
            )


def stack(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack of a client that dials all servers. Raises `ConfigurationError`."""
    if reach.binds:
        raise ConfigurationError("a Freelance client dials its servers; only these listen (bind)")
    if settings.dialect is not None:
        raise ConfigurationError("Freelance has no dialects (MDP has): leave `dialect` out")
    model = model_of(reach)
    addresses = [*dict.fromkeys(address for url in reach.dials for address in url.addresses)]
    policy = _policy(model, settings, len(addresses))
    limits = Limits.for_bodies(settings.message_size_max)
    framing = partial(Zmtp, _SOCKETS[model], limits=limits)
    lanes = min(settings.connections, LANES_MAX) if model is Model.FAILOVER else 1
    return Stack(
        lambda origin, chronicle: _ENGINES[model](policy, origin=origin, chronicle=chronicle),
        Wires(
            keep=[_endpoint(address, framing) for address in addresses for _ in range(lanes)],
            limits=LINK_LIMITS,
            read_first=model is Model.FAILOVER,
        ),
        _Abilities(model),
        holds=True,
    )


def model_of(reach: Reach) -> Model:
    """Return the one model that all URLs name. Raises `ConfigurationError`."""
    models = {Model(url.options.get("model", Model.AGENT)) for url in reach.dials + reach.binds}
    if len(models) > 1:
        raise ConfigurationError(
            "the URLs of one endpoint differ in the option 'model': it holds for all of them"
        )
    return models.pop()


def _endpoint(address: Address, framing: Callable[[], Zmtp]) -> Endpoint:
    return Endpoint(address, framing, place=str(address))


def _policy(model: Model, settings: ClientSettings, servers: int) -> ClientPolicy:
    return ClientPolicy(
        servers=servers,
        slots=settings.slots,
        retry=_retry(model, settings.retry, servers),
        ping=_ping(model, settings.heartbeat),
    )


def _retry(model: Model, given: RetryPolicy | None, servers: int) -> RetryPolicy:
    match model:
        case Model.FAILOVER:
            retry = given or RetryPolicy(attempts=ATTEMPTS_DEFAULT if servers == 1 else servers)
            if retry.attempt_timeout is None:
                retry = replace(retry, attempt_timeout=ATTEMPT_S_DEFAULT)
            return retry
        case Model.SHOTGUN:
            if given is not None:
                raise ConfigurationError(
                    "the shotgun asks all servers at once, and nobody is left to try again: leave"
                    " `retry` out"
                )
            return RetryPolicy(attempts=ATTEMPTS_DEFAULT)
        case Model.AGENT:
            return given or RetryPolicy(attempts=max(ATTEMPTS_DEFAULT, servers))


def _ping(model: Model, given: HeartbeatPolicy | float | None) -> HeartbeatPolicy:
    if given is not None and model is not Model.AGENT:
        raise ConfigurationError(
            f"the model {model} has no pings (agent has): leave `heartbeat` out"
        )
    return heartbeat_of(given, PING_DEFAULT)
