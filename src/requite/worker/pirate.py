"""Workers of the Pirates: the REP server of Lazy Pirates, and those that sign up at a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.core.liveness import heartbeat_of
from requite.errors import ConfigurationError
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.pirate.policy import LINK_HANDSHAKE_S, ServerPolicy, WorkerPolicy
from requite.protocols.pirate.server import PirateServer
from requite.protocols.pirate.wire import Pattern
from requite.protocols.pirate.worker import PirateWorker
from requite.reach import Reach
from requite.shell.keeping import Endpoint
from requite.shell.link import LinkLimits
from requite.shell.wires import Wires
from requite.worker.handler import Service
from requite.worker.stacks import CAPACITY_DEFAULT, Part, Unanswered, WorkerSettings

_LINKS: Final = LinkLimits(handshake_timeout_s=LINK_HANDSHAKE_S)
_UNANSWERED: Final = Unanswered(
    "has not answered READY: is it the back of a paranoid queue? (`?protocol=simple` is for the"
    " other kind)",
    3.0,  # its heartbeats are the answer
)
_CAPACITY_MAX: Final = 1024
_IDS_PER_CONNECTION: Final = 1 << 48  # in the journal


def parts(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make the parts: one for a server; for a worker at a queue, one per connection, since each has
    one request at a time. Raises `ConfigurationError`."""
    _check(services, settings)
    [service] = services
    if reach.binds and reach.dials:
        raise ConfigurationError(
            "a worker of the Pirates is a server that listens (bind), or dials a queue: not both"
        )
    if reach.binds:
        return [_server(reach, service, settings)]
    url = reach.only_dialled()
    capacity = _capacity(settings, 1)
    pattern = Pattern(url.options.get("protocol", Pattern.PARANOID))
    if settings.heartbeat is not None and not pattern.beats:
        raise ConfigurationError("a Simple Pirate has no heartbeats (a Paranoid one has)")
    socket = SocketType.REQ if pattern is Pattern.SIMPLE else SocketType.DEALER
    limits = Limits.for_bodies(settings.message_size_max)
    wires = Wires(lambda: Zmtp(socket, limits=limits), dial_to=url.addresses, limits=_LINKS)
    threads = settings.threads or 1
    if threads > 1:
        raise ConfigurationError(
            "each connection to a queue has one request at a time, and a thread for it: give"
            " `capacity`, the number of connections"
        )
    return [
        Part(
            service,
            _worker(pattern, service, settings, n),
            wires,
            1,
            1,
            BODY_FRAMES_MAX,
            holds=True,
            unanswered=_UNANSWERED,
        )
        for n in range(capacity)
    ]


def _server(reach: Reach, service: Service, settings: WorkerSettings) -> Part:
    if settings.heartbeat is not None:
        raise ConfigurationError(
            "a Lazy Pirate's server has no heartbeats (a worker of a paranoid queue has)"
        )
    capacity = _capacity(settings, CAPACITY_DEFAULT)
    policy = ServerPolicy(capacity=capacity, reply_size_max=settings.message_size_max)
    engine = PirateServer(
        policy, service=service.name, instance=settings.name, chronicle=settings.chronicle
    )
    limits = Limits.for_bodies(settings.message_size_max)
    listen = [
        Endpoint(address, lambda: Zmtp(SocketType.REP, limits=limits))
        for url in reach.binds
        for address in url.addresses
    ]
    wires = Wires(listen=listen, limits=_LINKS)
    threads = settings.threads or capacity
    return Part(service, engine, wires, capacity, threads, BODY_FRAMES_MAX, holds=True)


def _worker(
    pattern: Pattern, service: Service, settings: WorkerSettings, number: int
) -> PirateWorker:
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
        raise ConfigurationError(f"capacity is 1 to {_CAPACITY_MAX}, not {capacity}")
    return capacity


def _check(services: Sequence[Service], settings: WorkerSettings) -> None:
    if len(services) > 1:
        raise ConfigurationError(
            "the Pirates name no services, so a worker has one: give each of the others a worker"
            " and a place of its own (MDP has named services)"
        )
    for name, can in (
        ("dialect", "no dialects (MDP has)"),
        ("hops", "no limit of hops (SP has)"),
        ("handler_timeout", "no leases (MDP 0.3 has): put asyncio.timeout into the handler"),
    ):
        if getattr(settings, name) is not None:
            raise ConfigurationError(f"the Pirates have {can}; leave `{name}` out")
