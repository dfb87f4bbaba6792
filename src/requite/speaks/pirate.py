"""The Pirates of the Guide: Lazy, Simple and Paranoid.

    pirate://host:5555                          a Lazy Pirate's server, or a queue's front
    pirate://queue:5556?protocol=simple         a queue's back, for workers; else paranoid
    pirate+tls://host:5555?ca=ca.pem            over TLS; also certificate=, key=, server_name=
    pirate+ipc:///run/service.sock              over a Unix socket; or pirate+inproc://name

A client is a Lazy Pirate: a REQ socket connected to a REP server or the front of a queue. A worker
is a REP server for Lazy Pirates, or registers with a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from requite.core.liveness import heartbeat_of
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.pirate.policy import (
    ATTEMPT_TIMEOUT_S,
    LINK_HANDSHAKE_S,
    ClientPolicy,
    ServerPolicy,
    WorkerPolicy,
)
from requite.protocols.pirate.wire import Pattern
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
    Carries,
    ClientPlan,
    ClientSettings,
    PlainTraits,
    S,
    ServicePlan,
    Unanswered,
    WorkEngine,
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

_LINKS: Final = LinkLimits(handshake_timeout_s=LINK_HANDSHAKE_S)
_UNANSWERED: Final = Unanswered(
    "has not answered READY: check that it is the back of a paranoid queue (for a simple"
    " queue, add `?protocol=simple`)",
    3.0,  # its heartbeats are the answer
)
_CAPACITY_MAX: Final = 1024
_IDS_PER_CONNECTION: Final = 1 << 48  # in the journal
_ABSENT_FOR_CLIENTS: Final = {
    "dialect": NO_DIALECTS,
    "hold_back": NO_HOLD_BACK,
    "heartbeat": "no heartbeats (MDP 0.3 has): it retries after"
    " retry=RetryPolicy(attempt_timeout=...)",
}
_ABSENT_FOR_WORKERS: Final = {
    "dialect": NO_DIALECTS,
    "hops": "no limit of hops (SP has)",
    "handler_timeout": NO_LEASES,
}


# --- URLs -----------------------------------------------------------------------------------------
_OPTIONS: Final = ("protocol", *CURVE_OPTIONS)
_QUEUES: Final = ("simple", "paranoid")
SCHEMES: Final = {
    "pirate": Scheme(read_tcp, _OPTIONS),
    "pirate+tls": Scheme(read_tls, (*_OPTIONS, *TLS_OPTIONS)),
    "pirate+ipc": Scheme(read_ipc, _OPTIONS),
    "pirate+inproc": Scheme(read_inproc, _OPTIONS),
}


def check_url(url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
    """Check the option, which only workers have. Raises `ConfigurationError` for what the Pirates
    do not support."""
    if url.user is not None:
        refuse(shown, "the Pirate protocols have no user name and password (MDP has)")
    if url.service:
        refuse(
            shown,
            "the Pirate protocols have no service names, so nothing may follow the address"
            " (MDP has them)",
        )
    check_curve(url, listening=listening, shown=shown)
    queue = url.options.get("protocol")
    if listening and queue is not None:
        refuse(shown, "the option 'protocol' is only for workers that connect to a queue")
    if queue not in (None, *_QUEUES):
        refuse(shown, f"the option 'protocol' must be {' or '.join(_QUEUES)}")
    if not listening:
        check_can_be_dialled(url, shown)
    return replace(url, tls=tls_of(url, listening=listening, shown=shown))


# --- clients --------------------------------------------------------------------------------------
_TRAITS: Final = PlainTraits("a Lazy Pirate", "the address of its server")


def carries(_endpoints: Endpoints, _dialect: str | None) -> Carries:
    """Return that messages carry only bodies."""
    return BODIES


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Plan a client that dials one address. Raises `ConfigurationError`."""
    from requite.protocols.pirate.client import LazyPirate

    url = endpoints.only_dialled()
    if "protocol" in url.options:
        raise ConfigurationError(
            f"only workers have the URL option 'protocol'; remove it from the client's URL {url}"
        )
    refuse_given(settings, "a Lazy Pirate has", _ABSENT_FOR_CLIENTS)
    policy = ClientPolicy(
        slots=settings.slots,
        retry=_retry(settings.retry),
        connections_max=settings.connections,
    )
    check_files(url.tls, listening=False)
    limits = Limits.for_bodies(settings.message_size_max)
    mechanism = dialling_mechanism(url)
    return ClientPlan(
        lambda origin, chronicle: LazyPirate(policy, origin=origin, chronicle=chronicle),
        Connections(
            lambda: Zmtp(SocketType.REQ, mechanism=mechanism(), limits=limits),
            dial_to=url.addresses,
            limits=_LINKS,
            read_first=True,
            tls=url.tls,
        ),
        _TRAITS,
        holds=True,
    )


def _retry(given: RetryPolicy | None) -> RetryPolicy:
    """Return `given`, with the Guide's policy and attempt timeout as defaults."""
    if given is None:
        return ClientPolicy().retry
    if given.attempt_timeout is None and given.attempts > 1:
        return replace(given, attempt_timeout=ATTEMPT_TIMEOUT_S)
    return given


# --- workers --------------------------------------------------------------------------------------
def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Plan one server; at a queue, one connection per concurrent request. Raises
    `ConfigurationError`."""
    _check_worker(services, settings)
    [service] = services
    if endpoints.binds and endpoints.dials:
        raise ConfigurationError(
            "a Pirate worker either listens (`bind`) or connects to a queue, not both"
        )
    if endpoints.binds:
        return [_server(endpoints, service, settings)]
    url = endpoints.only_dialled()
    capacity = _capacity(settings, 1)
    pattern = Pattern(url.options.get("protocol", Pattern.PARANOID))
    if settings.heartbeat is not None and not pattern.beats:
        raise ConfigurationError(
            "a Simple Pirate worker sends no heartbeats; remove heartbeat, or use"
            " ?protocol=paranoid"
        )
    check_files(url.tls, listening=False)
    socket = SocketType.REQ if pattern is Pattern.SIMPLE else SocketType.DEALER
    limits = Limits.for_bodies(settings.message_size_max)
    mechanism = dialling_mechanism(url)
    connections = Connections(
        lambda: Zmtp(socket, mechanism=mechanism(), limits=limits),
        dial_to=url.addresses,
        limits=_LINKS,
        tls=url.tls,
    )
    threads = settings.threads or 1
    if threads > 1:
        raise ConfigurationError(
            "a connection to a queue carries one request at a time; set `capacity`, the"
            " number of connections, instead of `threads`"
        )
    return [
        ServicePlan(
            service,
            _worker(pattern, service, settings, n),
            connections,
            1,
            1,
            BODY_FRAMES_MAX,
            holds=True,
            unanswered=_UNANSWERED,
        )
        for n in range(capacity)
    ]


def _server(endpoints: Endpoints, service: S, settings: WorkerSettings) -> ServicePlan[S]:
    if settings.heartbeat is not None:
        raise ConfigurationError(
            "a Lazy Pirate server sends no heartbeats; remove heartbeat, or connect the worker to a"
            " Paranoid Pirate queue"
        )
    from requite.protocols.pirate.server import PirateServer

    capacity = _capacity(settings, CAPACITY_DEFAULT)
    policy = ServerPolicy(capacity=capacity, reply_size_max=settings.message_size_max)
    engine = PirateServer(
        policy, service=service.name, instance=settings.name, chronicle=settings.chronicle
    )
    for url in endpoints.binds:
        check_files(url.tls, listening=True)
    limits = Limits.for_bodies(settings.message_size_max)
    listen = [
        Endpoint(address, partial(_listen, mechanism, limits), tls=url.tls)
        for url in endpoints.binds
        for mechanism in [listening_mechanism(url)]
        for address in url.addresses
    ]
    connections = Connections(listen=listen, limits=_LINKS.for_messages(settings.message_size_max))
    threads = settings.threads or capacity
    return ServicePlan(service, engine, connections, capacity, threads, BODY_FRAMES_MAX, holds=True)


def _listen(mechanism: MakeMechanism, limits: Limits) -> Zmtp:
    return Zmtp(SocketType.REP, mechanism=mechanism(), limits=limits)


def _worker(pattern: Pattern, service: S, settings: WorkerSettings, number: int) -> WorkEngine:
    from requite.protocols.pirate.worker import PirateWorker

    return PirateWorker(
        pattern,
        WorkerPolicy(
            heartbeat=heartbeat_of(settings.heartbeat), reply_size_max=settings.message_size_max
        ),
        service=service.name,
        instance=settings.name,
        first_number=number * _IDS_PER_CONNECTION,
        chronicle=settings.chronicle,
    )


def _capacity(settings: WorkerSettings, default: int) -> int:
    capacity = default if settings.capacity is None else settings.capacity
    if not 1 <= capacity <= _CAPACITY_MAX:
        raise ConfigurationError(f"capacity must be 1 to {_CAPACITY_MAX}, not {capacity}")
    return capacity


def _check_worker(services: Sequence[S], settings: WorkerSettings) -> None:
    if len(services) > 1:
        raise ConfigurationError(
            "the Pirate protocols have no service names, so a worker has one service; start a"
            " worker for each, or use MDP"
        )
    refuse_given(settings, "the Pirates have", _ABSENT_FOR_WORKERS)
