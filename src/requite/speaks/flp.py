"""Freelance (10/FLP, and the Guide's models one and two): several equal servers, without a broker.

    flp://a:5555,b:5555                         several servers, one of which answers
    flp+tls://a:5555?ca=ca.pem                  over TLS; also certificate=, key=, server_name=
    flp+ipc:///run/server.sock                  over a Unix socket; flp+inproc within one event loop

The options are `model` (agent, failover or shotgun), the keys of `speaks/curve.py` and, to listen,
`public`: the endpoint that clients dial (tcp://host:port or tls://host:port). A client connects to
all servers; a server listens, and is identified by the endpoint that clients dial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError, LocalViolation
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.freelance.policy import (
    ATTEMPT_S_DEFAULT,
    ATTEMPTS_DEFAULT,
    PING_DEFAULT,
    ClientPolicy,
    ServerPolicy,
)
from requite.protocols.freelance.wire import Model
from requite.request import RetryPolicy
from requite.shell.connections import Connections, Endpoint
from requite.shell.link import LinkLimits
from requite.speaks.curve import (
    CURVE_OPTIONS,
    MakeMechanism,
    check_curve,
    dialling_mechanism,
    listening_mechanism,
)
from requite.speaks.endpoints import Endpoints
from requite.speaks.plans import (
    BODIES,
    CAPACITY_DEFAULT,
    NO_DIALECTS,
    NO_HOLD_BACK,
    NO_LEASES,
    CallEngine,
    Carries,
    ClientPlan,
    ClientSettings,
    PlainTraits,
    S,
    ServicePlan,
    WorkerSettings,
    refuse_given,
)
from requite.speaks.tls import check_files, read_tls, tls_of
from requite.speaks.url import (
    TLS_OPTIONS,
    Scheme,
    ServiceUrl,
    check_can_be_dialled,
    read_inproc,
    read_ipc,
    read_tcp,
    refuse,
)
from requite.transport.address import Address, HostAddress, parse_address

LANES_MAX: Final = 8
"""How many requests of model one a server may have at a time: each needs a separate connection,
opened in advance."""

# The handshake timeout of libzmq.
LINK_LIMITS: Final = LinkLimits(handshake_timeout_s=30.0)

_SOCKETS: Final = {
    Model.FAILOVER: SocketType.REQ,
    Model.SHOTGUN: SocketType.DEALER,
    Model.AGENT: SocketType.ROUTER,
}
_ABSENT_FOR_CLIENTS: Final = {
    "dialect": NO_DIALECTS,
    "hold_back": NO_HOLD_BACK,
}
_ABSENT_FOR_WORKERS: Final = {
    "heartbeat": "no heartbeats to set, since its clients send pings",
    "dialect": NO_DIALECTS,
    "handler_timeout": NO_LEASES,
    "hops": "no devices (SP has)",
}


# --- URLs -----------------------------------------------------------------------------------------
_OPTIONS: Final = ("model", "public", *CURVE_OPTIONS)
SCHEMES: Final = {
    "flp": Scheme(read_tcp, _OPTIONS),
    "flp+tls": Scheme(read_tls, (*_OPTIONS, *TLS_OPTIONS)),
    "flp+ipc": Scheme(read_ipc, _OPTIONS),
    "flp+inproc": Scheme(read_inproc, _OPTIONS),
}


def check_url(url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
    """Check the options. Raises `ConfigurationError` for what Freelance does not support."""
    if url.user is not None:
        refuse(shown, "Freelance has no user name and password")
    if url.service:
        refuse(shown, "Freelance has no service names, so nothing may follow the address")
    if url.options.get("model", Model.AGENT) not in tuple(Model):
        refuse(shown, f"the option 'model' must be one of {', '.join(Model)}")
    url = replace(url, tls=tls_of(url, listening=listening, shown=shown))
    check_curve(url, listening=listening, shown=shown)
    if listening:
        _check_public(url, shown)
        model = url.options.get("model")
        return replace(url, peer_query=f"?model={model}" if model else "")
    if "public" in url.options:
        refuse(
            shown, "the option 'public' is only for servers: the address to which clients connect"
        )
    check_can_be_dialled(url, shown)
    return url


def _check_public(url: ServiceUrl, shown: str) -> None:
    """Check that the server knows the endpoint that clients dial, which identifies it."""
    public = url.options.get("public")
    scheme = "tcp" if url.tls is None else "tls"
    if public is not None:
        if len(url.addresses) > 1:
            refuse(shown, "the option 'public' is one address, but the URL has several")
        try:
            address = parse_address(public, (scheme,))
        except ConfigurationError as error:
            refuse(shown, f"the option 'public': {error}")
        if isinstance(address, HostAddress) and address.is_wildcard:
            refuse(
                shown, "the option 'public' must name one host and port, to which clients connect"
            )
    elif any(isinstance(each, HostAddress) and each.is_wildcard for each in url.addresses):
        refuse(
            shown,
            f"host * requires public={scheme}://HOST:PORT, the address to which clients connect",
        )


def _model_of(endpoints: Endpoints) -> Model:
    """Return the model of the URLs. Raises `ConfigurationError` if they differ."""
    models = {
        Model(url.options.get("model", Model.AGENT)) for url in endpoints.dials + endpoints.binds
    }
    if len(models) > 1:
        raise ConfigurationError(
            "the URLs have different values of the option 'model'; give all the same one"
        )
    return models.pop()


# --- clients --------------------------------------------------------------------------------------
_TRAITS: Final = PlainTraits("Freelance", "the servers that serve it")


@dataclass(frozen=True, slots=True)
class _ShotgunTraits(PlainTraits):
    """Traits that also refuse `idempotent=False`, since each server runs the request."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Refuse what the protocol lacks, and requests that must not run twice."""
        PlainTraits.check(self, key=key, partials=partials, idempotent=idempotent)
        if not idempotent:
            raise ConfigurationError(
                "the `shotgun` model sends each request to all servers, so it runs several times;"
                " for idempotent=False use another model"
            )


_SHOTGUN_TRAITS: Final = _ShotgunTraits("Freelance", _TRAITS.whom)


def carries(_endpoints: Endpoints, _dialect: str | None) -> Carries:
    """Return that messages carry only bodies."""
    return BODIES


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Plan a client that dials all servers. Raises `ConfigurationError`."""
    if endpoints.binds:
        raise ConfigurationError(
            "a Freelance client connects to its servers and cannot listen; pass the URLs without"
            " `bind`"
        )
    refuse_given(settings, "Freelance has", _ABSENT_FOR_CLIENTS)
    model = _model_of(endpoints)
    for url in endpoints.dials:
        check_files(url.tls, listening=False)
    servers = {
        address: (url.tls, mechanism)
        for url in endpoints.dials
        for mechanism in [dialling_mechanism(url)]
        for address in url.addresses
    }
    policy = _policy(model, settings, len(servers))
    limits = Limits.for_bodies(settings.message_size_max)

    def framing(mechanism: MakeMechanism) -> Zmtp:
        return Zmtp(_SOCKETS[model], mechanism=mechanism(), limits=limits)

    lanes = min(settings.connections, LANES_MAX) if model is Model.FAILOVER else 1
    return ClientPlan(
        lambda origin, chronicle: _engine_of(model)(policy, origin=origin, chronicle=chronicle),
        Connections(
            keep=[
                Endpoint(address, partial(framing, mechanism), str(address), tls)
                for address, (tls, mechanism) in servers.items()
                for _ in range(lanes)
            ],
            limits=LINK_LIMITS,
            read_first=model is Model.FAILOVER,
        ),
        _TRAITS if model is not Model.SHOTGUN else _SHOTGUN_TRAITS,
        holds=True,
    )


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
                    "the `shotgun` model sends each request to all servers at once and never"
                    " retries; remove `retry`, or use another model"
                )
            return RetryPolicy(attempts=ATTEMPTS_DEFAULT)
        case Model.AGENT:
            return given or RetryPolicy(attempts=max(ATTEMPTS_DEFAULT, servers))


def _ping(model: Model, given: HeartbeatPolicy | float | None) -> HeartbeatPolicy:
    if given is not None and model is not Model.AGENT:
        raise ConfigurationError(
            f"the `{model}` model does not send heartbeats; remove `heartbeat`, or use the `agent`"
            " model"
        )
    return heartbeat_of(given, PING_DEFAULT)


def _engine_of(model: Model) -> Callable[..., CallEngine]:
    """Import and return the engine of a model."""
    match model:
        case Model.FAILOVER:
            from requite.protocols.freelance.failover import FailoverClient

            return FailoverClient
        case Model.SHOTGUN:
            from requite.protocols.freelance.shotgun import ShotgunClient

            return ShotgunClient
        case Model.AGENT:
            from requite.protocols.freelance.agent import AgentClient

            return AgentClient


# --- servers --------------------------------------------------------------------------------------
class _Binding:
    """An address to listen at, and the identity announced there: the server's public endpoint as
    clients dial it (10/FLP, "Request and Reply Routing")."""

    def __init__(
        self, url: ServiceUrl, address: Address, mechanism: MakeMechanism, limits: Limits
    ) -> None:
        public = url.options.get("public")
        self.address = address
        self.tls = url.tls
        self._mechanism = mechanism
        self._public = parse_address(public) if public is not None else address
        self._limits = limits
        self._identity = str(self._public).encode()
        self.framing()  # refuses an identity that is too long

    def bound(self, address: Address) -> None:
        """Record the bound address: its port, if a free one was requested."""
        public = self._public
        if isinstance(public, HostAddress) and not public.port and isinstance(address, HostAddress):
            public = replace(public, port=address.port)
        elif not isinstance(public, HostAddress):
            public = address  # a free name was requested
        self._identity = str(public).encode()

    def framing(self) -> Zmtp:
        """Make the framing of a connection."""
        return Zmtp(
            SocketType.ROUTER,
            identity=self._identity,
            mechanism=self._mechanism(),
            limits=self._limits,
        )


def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Plan the server. Raises `ConfigurationError`."""
    from requite.protocols.freelance.server import FreelanceServer

    _check_server(endpoints, services, settings)
    [service] = services
    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    policy = ServerPolicy(
        model=_model_of(endpoints), capacity=capacity, reply_size_max=settings.message_size_max
    )
    engine = FreelanceServer(
        policy, service=service.name, instance=settings.name, chronicle=settings.chronicle
    )
    limits = Limits.for_bodies(settings.message_size_max)
    bindings = [binding for url in endpoints.binds for binding in _bindings(url, limits)]
    connections = Connections(
        listen=[Endpoint(each.address, each.framing, tls=each.tls) for each in bindings],
        limits=LINK_LIMITS.for_messages(settings.message_size_max),
    )

    def bound(addresses: Sequence[Address]) -> None:
        for binding, address in zip(bindings, addresses, strict=True):
            binding.bound(address)

    threads = settings.threads or capacity
    return [
        ServicePlan(
            service,
            engine,
            connections,
            capacity,
            threads,
            BODY_FRAMES_MAX,
            holds=True,
            bound=bound,
        )
    ]


def _bindings(url: ServiceUrl, limits: Limits) -> list[_Binding]:
    check_files(url.tls, listening=True)
    mechanism = listening_mechanism(url)
    try:
        return [_Binding(url, address, mechanism, limits) for address in url.addresses]
    except LocalViolation as violation:
        raise ConfigurationError(
            f"the address of a Freelance server cannot be its identity: {violation}"
        ) from None


def _check_server(endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings) -> None:
    if endpoints.dials:
        raise ConfigurationError(
            "a Freelance server listens, and its clients connect; pass its URL as `bind`"
        )
    if len(services) > 1:
        raise ConfigurationError(
            "Freelance has no service names, so a server has one service; start a server for each,"
            " or use MDP"
        )
    refuse_given(settings, "Freelance has", _ABSENT_FOR_WORKERS)
    if settings.capacity is not None and not isinstance(settings.capacity, int):
        raise ConfigurationError(f"capacity must be a whole number, not {settings.capacity!r}")
