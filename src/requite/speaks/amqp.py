"""RPC over AMQP 0.9.1, at a RabbitMQ.

    amqp://user:password@host:5672/vhost?queue=echo     amqps: over TLS
    amqps://host/vhost?pool=core&key=42                 a group of a pool of workers

The path is the virtual host, `/` where there is none. The options `queue`, or `pool` and `key`,
name the service; `confirm` and `reply` are for clients, `id` and `activity` for workers. Those of
TLS are `ca`, `certificate`, `certificate_key` and `server_name`. A client has one connection, a
worker one per service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ssl import TLSVersion
from typing import Final

from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError
from requite.framing.amqp import Amqp, AmqpSettings
from requite.protocols.amqp.assignment import Assignment, pool_assignment, service_assignment
from requite.protocols.amqp.jobs import Job
from requite.protocols.amqp.policy import (
    HEARTBEAT_DEFAULT,
    PREFETCH_MAX,
    CallerPolicy,
    ResponderPolicy,
    heartbeat_to_announce_s,
)
from requite.protocols.amqp.topology import Destination, Pool, check_queue
from requite.request import RetryPolicy
from requite.shell.connections import Connections, Endpoint
from requite.speaks.endpoints import Endpoints
from requite.speaks.plans import (
    CAPACITY_DEFAULT,
    NO_DIALECTS,
    NO_HOLD_BACK,
    NO_LEASES,
    Carries,
    ClientPlan,
    ClientSettings,
    S,
    ServicePlan,
    Unanswered,
    WorkerSettings,
    refuse_given,
)
from requite.speaks.tls import tls_of
from requite.speaks.url import (
    KEY_OPTIONS,
    Places,
    Scheme,
    ServiceUrl,
    check_can_be_dialled,
    refuse,
    split_authority,
)
from requite.transport.address import TlsAddress, parse_tcp

# The AMQP 0.9.1 URI Specification of RabbitMQ, section 5.
PORT: Final = 5672
SECURE_PORT: Final = 5671

DEFAULT_USER: Final = "guest"
_FOR_WORKERS: Final = ("id", "activity")
_REPLIES: Final = ("queue", "direct")
_CONFIRMS: Final = {"yes": True, "no": False}
_UNANSWERED: Final = Unanswered(
    "does not deliver requests yet: RabbitMQ has not confirmed the consumer"
)
_FOR_CLIENTS: Final = ("confirm", "reply")
_ABSENT_FOR_CLIENTS: Final = {
    "dialect": NO_DIALECTS,
    "hold_back": NO_HOLD_BACK,
}
_ABSENT_FOR_WORKERS: Final = {
    "dialect": NO_DIALECTS,
    "handler_timeout": NO_LEASES,
    "hops": "no devices (SP has)",
}


# --- URLs -----------------------------------------------------------------------------------------
def _read_plain(body: str, shown: str) -> Places:
    host, vhost = _split(body, shown)
    return Places((parse_tcp(host, shown, PORT),), vhost)


def _read_secure(body: str, shown: str) -> Places:
    host, vhost = _split(body, shown)
    place = parse_tcp(host, shown, SECURE_PORT)
    return Places((TlsAddress(place.host, place.port),), vhost)


def _split(body: str, shown: str) -> tuple[str, str]:
    """Return the host and the virtual host, which is one path segment."""
    hosts, vhost = split_authority(body, shown)
    if len(hosts) > 1:
        refuse(shown, "only one host is possible; for a cluster, use a load balancer or a DNS name")
    if "/" in vhost:
        refuse(shown, "the path is the virtual host; write %2F for a / in its name")
    return hosts[0], vhost


_OPTIONS: Final = ("queue", "pool", "key", "confirm", "reply", "id", "activity")
# A pool's key is any text, even empty.
SCHEMES: Final = {
    "amqp": Scheme(_read_plain, _OPTIONS, ("key",)),
    "amqps": Scheme(_read_secure, (*_OPTIONS, *KEY_OPTIONS), ("key",)),
}


def check_url(url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
    """Read the virtual host from the path and the service from the options. Raises
    `ConfigurationError` for what AMQP does not support."""
    if listening:
        refuse(shown, "only RabbitMQ listens at such a URL; clients and workers connect to it")
    check_can_be_dialled(url, shown)
    options = {**url.options, "vhost": url.service or "/"}
    if "key" in options and "pool" not in options:
        refuse(shown, "the option 'key' requires pool=NAME")
    if "activity" in options and "pool" not in options:
        refuse(shown, "the option 'activity' requires pool=NAME")
    # RabbitMQ on an Erlang/OTP before 24 has no TLS 1.3.
    tls = tls_of(url, listening=False, shown=shown, minimum_version=TLSVersion.TLSv1_2)
    service = options.get("key" if "pool" in options else "queue", "")
    return replace(url, service=service, options=options, tls=tls)


# --- clients --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Traits:
    """A request has one body, and may have an idempotency key and partial replies.

    `has_key`: the URL names a group of the pool, perhaps that of the empty key.
    """

    pool: Pool | None
    has_key: bool

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Accept all call options."""

    def check_service(self, service: str) -> None:
        """Check the name of a queue, or the key of a pool's group."""
        if self.pool is None:
            check_queue(service)
        elif not (service or self.has_key):
            raise ConfigurationError(
                "a call to a pool needs a key; put key=... into the URL, or pass service=..."
            )
        else:
            self.pool.check_key(service)

    def check_frames(self, count: int) -> None:
        """Refuse a body with several frames."""
        if count > 1:
            raise ConfigurationError(
                f"the body has {count} frames, but AMQP carries only one; join them, or use MDP"
            )


def carries(endpoints: Endpoints, _dialect: str | None) -> Carries:
    """Return what messages carry: a queue of the URL, or a group of a pool, is one service."""
    options = endpoints.only_dialled().options
    return Carries("pool" not in options and "queue" not in options, refusals=True, partials=True)


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Plan a client of RabbitMQ. Raises `ConfigurationError`."""
    from requite.protocols.amqp.caller import AmqpCaller

    url = endpoints.only_dialled()
    refuse_given(settings, "AMQP has", _ABSENT_FOR_CLIENTS)
    for name in _FOR_WORKERS:
        if name in url.options:
            raise ConfigurationError(
                f"the URL option {name!r} is only for workers; remove it from the client's URL"
            )
    pool = _pool_of(url)
    if pool is not None and "queue" in url.options:
        raise ConfigurationError(
            "the URL has both pool= and queue=; a call to a pool takes key= instead of queue="
        )
    heartbeat = heartbeat_of(settings.heartbeat, HEARTBEAT_DEFAULT)
    policy = _policy(url, settings, heartbeat, persistent=pool is not None)
    destination = Destination() if pool is None else pool.destination

    return ClientPlan(
        lambda origin, chronicle: AmqpCaller(
            policy,
            destination,
            origin=origin,
            first_sequence=int.from_bytes(origin[:4], "big"),
            chronicle=chronicle,
        ),
        _connections_to(url, heartbeat, settings.message_size_max),
        _Traits(pool, "key" in url.options),
    )


def _pool_of(url: ServiceUrl) -> Pool | None:
    """Return the pool in a URL, or None. Raises `ConfigurationError`."""
    name = url.options.get("pool")
    return None if name is None else Pool(name)


def _connections_to(url: ServiceUrl, heartbeat: HeartbeatPolicy, body_size_max: int) -> Connections:
    """Return the persistent connection to RabbitMQ."""
    entry = AmqpSettings(
        vhost=url.options["vhost"],
        user=DEFAULT_USER if url.user is None else url.user,
        password=DEFAULT_USER if url.password is None else url.password,
        heartbeat_s=heartbeat_to_announce_s(heartbeat),
        body_size_max=body_size_max,
    )
    [address] = url.addresses
    return Connections(keep=[Endpoint(address, lambda: Amqp(entry), tls=url.tls)])


def _policy(
    url: ServiceUrl, settings: ClientSettings, heartbeat: HeartbeatPolicy, *, persistent: bool
) -> CallerPolicy:
    return CallerPolicy(
        slots=settings.slots,
        retry=settings.retry or RetryPolicy(),
        heartbeat=heartbeat,
        confirms=_one_of(url, "confirm", tuple(_CONFIRMS), "no") == "yes",
        direct_reply=_one_of(url, "reply", _REPLIES, "queue") == "direct",
        persistent=persistent,
    )


def _one_of(url: ServiceUrl, name: str, values: tuple[str, ...], default: str) -> str:
    value = url.options.get(name, default)
    if value not in values:
        raise ConfigurationError(
            f"the option {name!r} of the URL must be {' or '.join(values)}, not {value!r}"
        )
    return value


# --- workers --------------------------------------------------------------------------------------
def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Plan one connection per service. Raises `ConfigurationError`."""
    url = endpoints.only_dialled()
    _check_worker(url, services, settings)
    return [_plan(url, service, settings) for service in services]


def _plan(url: ServiceUrl, service: S, settings: WorkerSettings) -> ServicePlan[S]:
    from requite.protocols.amqp.responder import AmqpResponder

    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    if not 1 <= capacity <= PREFETCH_MAX:
        raise ConfigurationError(f"capacity must be 1 to {PREFETCH_MAX}, not {capacity}")
    heartbeat = heartbeat_of(settings.heartbeat, HEARTBEAT_DEFAULT)
    assignment = _assignment(url, service, settings)
    policy = ResponderPolicy(prefetch=capacity, heartbeat=heartbeat)
    if (
        not assignment.declares
    ):  # a pool's queue counts attempts, and its manager reads dead letters
        policy = ResponderPolicy(prefetch=capacity, heartbeat=heartbeat, attempts_max=None)
    engine = AmqpResponder(
        assignment,
        policy,
        service=service.name,
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    return ServicePlan(
        service,
        engine,
        _connections_to(url, heartbeat, settings.message_size_max),
        capacity,
        settings.threads or capacity,
        1,
        call_id=_call_id,
        unanswered=_UNANSWERED,
    )


def _assignment(url: ServiceUrl, service: S, settings: WorkerSettings) -> Assignment:
    options = url.options
    worker_id = options.get("id", settings.name.hex())
    pool = _pool_of(url)
    if pool is None:
        return service_assignment(options.get("queue", service.name), worker_id)
    queue, activity = options.get("queue", ""), options.get("activity", "")
    return pool_assignment(pool, options["key"], worker_id, queue, activity)


def _check_worker(url: ServiceUrl, services: Sequence[S], settings: WorkerSettings) -> None:
    options = url.options
    for name in _FOR_CLIENTS:
        if name in options:
            raise ConfigurationError(
                f"the URL option {name!r} is only for clients; remove it from the worker's URL"
            )
    if "pool" in options and "key" not in options:
        raise ConfigurationError("a worker of a pool needs a key; put key=... into the URL")
    if len(services) > 1 and ("pool" in options or "queue" in options):
        raise ConfigurationError(
            "a queue has one service; start a worker for each service, or remove queue= and"
            " pool= from the URL, so that each service has a queue of its name"
        )
    refuse_given(settings, "AMQP has", _ABSENT_FOR_WORKERS)


def _call_id(job: Job) -> bytes:
    return job.call_id
