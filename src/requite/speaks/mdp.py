"""MDP with a broker.

    mdp://host:5555/echo                        Majordomo over TCP; the port is optional
    mdp://a:5555,b:5555/echo                    several brokers, one of them active, tried in turn
    mdp://user:password@host/echo?dialect=0.2   PLAIN credentials; an older dialect of MDP
    mdp+tls://host:5555/echo?ca=ca.pem          over TLS; also certificate=, certificate_key=
    mdp://host/echo?curve=KEY&curve_key_file=F  keys of CURVE: the broker's, and the own one
    mdp+ipc:///run/broker.sock?service=echo     over a Unix socket; its path is the URL's path
    mdp+inproc://name/echo                      within one event loop
    mdp://host:5555?pool=core&key=42            a group of a pool of workers

The path (or the option `service`) names the service. A client has one engine on one connection (in
0.1 and 0.2, one connection per request), a worker an engine and a connection per service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.errors import ConfigurationError, RemoteViolation
from requite.framing import BODY_FRAMES_MAX, Limits, SocketType, Zmtp
from requite.protocols.majordomo.dialects import by_version, check_service_name
from requite.protocols.majordomo.keyed import service_of
from requite.protocols.majordomo.wire import CLOSES_EARLY, FEATURES, Dialect
from requite.request import RetryPolicy
from requite.shell import entropy
from requite.shell.connections import Connections
from requite.speaks.curve import DIALLING, check_curve, dialling_mechanism
from requite.speaks.endpoints import Endpoints
from requite.speaks.plans import (
    CAPACITY_DEFAULT,
    Carries,
    ClientPlan,
    ClientSettings,
    S,
    ServicePlan,
    Unanswered,
    WorkerSettings,
    check_body_frames,
)
from requite.speaks.tls import check_files, read_tls, tls_of
from requite.speaks.url import (
    KEY_OPTIONS,
    Places,
    Scheme,
    ServiceUrl,
    check_can_be_dialled,
    check_password_is_private,
    read_inproc,
    read_ipc,
    refuse,
    split_authority,
)
from requite.transport.address import parse_tcp

PORT: Final = 5555
DIALECT_DEFAULT: Final = "0.3"
_KEY_SIZE_MAX: Final = 255
_SEQUENCES: Final = 1 << 32
_HEARTBEAT_OF_OTHERS_S: Final = 3.0  # and a little more


# --- URLs -----------------------------------------------------------------------------------------
def _read_tcp(body: str, shown: str) -> Places:
    hosts, path = split_authority(body, shown)
    return Places(tuple(parse_tcp(host, shown, PORT) for host in hosts), path)


def _read_tls(body: str, shown: str) -> Places:
    return read_tls(body, shown, PORT)


_OPTIONS: Final = ("dialect", "service", "pool", "key", *DIALLING)
# A pool's key is any text, even empty.
SCHEMES: Final = {
    "mdp": Scheme(_read_tcp, _OPTIONS, ("key",)),
    "mdp+tls": Scheme(_read_tls, (*_OPTIONS, *KEY_OPTIONS), ("key",)),
    "mdp+ipc": Scheme(read_ipc, _OPTIONS, ("key",)),
    "mdp+inproc": Scheme(read_inproc, _OPTIONS, ("key",)),
}


def check_url(url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
    """Add the service name of a pool's group. Raises `ConfigurationError` for bad options."""
    if listening:
        refuse(shown, "only a broker listens at such a URL: requite broker --bind tcp://host:port")
    check_can_be_dialled(url, shown)
    check_curve(url, listening=False, shown=shown)
    check_password_is_private(url, shown)
    url = replace(url, tls=tls_of(url, listening=False, shown=shown))
    pool, key = url.options.get("pool"), url.options.get("key")
    if pool is None and key is None:
        return url
    if pool is None or key is None:
        hint = "; the file of a private key is certificate_key=FILE" if url.tls else ""
        refuse(shown, f"a group of a pool requires both options, pool=NAME and key=KEY{hint}")
    if url.service:
        refuse(shown, f"it names both a service, {url.service!r}, and a group of a pool")
    try:
        return replace(url, service=service_of(pool, key))
    except ConfigurationError as error:
        refuse(shown, str(error))


# --- clients --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Traits:
    dialect: Dialect

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Refuse idempotency keys and flags before 0.3, and partial replies before 0.2."""
        if partials and not self.dialect.has_partials:
            self.refuse("has no partial replies; use call")
        if key and not self.dialect.has_ids:
            self.refuse("does not carry idempotency keys")
        if not idempotent and not self.dialect.has_ids:
            self.refuse("cannot mark a request as not idempotent")
        if len(key) > _KEY_SIZE_MAX:
            raise ConfigurationError(
                f"the idempotency key has more than {_KEY_SIZE_MAX} bytes, the maximum"
            )

    def check_service(self, service: str) -> None:
        """Refuse a name unless it is 1 to 255 bytes of UTF-8 without control characters."""
        if not service:
            raise ConfigurationError(
                "the service of the call is missing; add it to the URL (mdp://host/echo),"
                " or pass service="
            )
        try:
            check_service_name(service.encode())
        except (RemoteViolation, UnicodeEncodeError) as error:
            raise ConfigurationError(str(error)) from None

    def check_frames(self, count: int) -> None:
        """Refuse a body with more frames than brokers and workers accept."""
        check_body_frames(count)

    def refuse(self, why: str) -> None:
        raise ConfigurationError(f"MDP {self.dialect.version} {why}; MDP 0.3 can")


def carries(endpoints: Endpoints, dialect: str | None) -> Carries:
    """Return what messages carry: only 0.3 has negative replies, and a group of a pool is one
    service."""
    options = endpoints.only_dialled().options
    spoken = by_version(dialect or options.get("dialect", DIALECT_DEFAULT))
    return Carries("pool" not in options, refusals=spoken.has_ids, partials=spoken.has_partials)


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Plan a client that dials one broker. Raises `ConfigurationError`."""
    from requite.protocols.majordomo.calls import ClientPolicy
    from requite.protocols.majordomo.client import client_engine

    url = endpoints.only_dialled()
    dialect = by_version(settings.dialect or url.options.get("dialect", DIALECT_DEFAULT))
    policy = ClientPolicy(
        slots=settings.slots,
        retry=settings.retry or RetryPolicy(),
        heartbeat=_heartbeat(settings.heartbeat, dialect),
        connections_max=settings.connections,
        hold_back=_hold_back(settings.hold_back, dialect),
    )
    return ClientPlan(
        lambda origin, chronicle: client_engine(
            dialect,
            policy,
            rng=entropy.jitter,
            first_sequence=entropy.source.randrange(_SEQUENCES),
            origin=origin,
            chronicle=chronicle,
        ),
        connections_to(url, settings.message_size_max),
        _Traits(dialect),
    )


def connections_to(url: ServiceUrl, message_size_max: int) -> Connections:
    """Return the connections to a broker. Raises `ConfigurationError` for credentials, keys or
    files of TLS that cannot be used."""
    check_files(url.tls, listening=False)
    mechanism = dialling_mechanism(url)
    limits = Limits.for_bodies(message_size_max)
    return Connections(
        lambda: Zmtp(
            SocketType.DEALER,
            mechanism=mechanism(),
            limits=limits,
            closes_early=CLOSES_EARLY,
            features=FEATURES,
        ),
        dial_to=url.addresses,
        tls=url.tls,
    )


def _hold_back(share: float | None, dialect: Dialect) -> float:
    if share and not dialect.has_ids:
        raise ConfigurationError(
            f"MDP {dialect.version} does not send deadlines to brokers; remove hold_back, or use"
            " MDP 0.3"
        )
    return share or 0.0


def _heartbeat(given: HeartbeatPolicy | float | None, dialect: Dialect) -> HeartbeatPolicy:
    if given is not None and not dialect.has_ids:
        raise ConfigurationError(
            f"MDP {dialect.version} has no heartbeats between client and broker; remove heartbeat,"
            " or use MDP 0.3. Only timeouts detect a silent broker"
        )
    return heartbeat_of(given)


# --- workers --------------------------------------------------------------------------------------
def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Plan one connection per service. Raises `ConfigurationError`."""
    url = endpoints.only_dialled()
    names = _names(url, services)
    if settings.hops is not None:
        raise ConfigurationError(
            "an MDP broker does not forward requests to other brokers; remove hops (SP has it)"
        )
    dialect = by_version(settings.dialect or url.options.get("dialect", DIALECT_DEFAULT))
    connections = connections_to(url, settings.message_size_max)
    return [
        _plan(each, name, dialect, connections, settings)
        for each, name in zip(services, names, strict=True)
    ]


def _names(url: ServiceUrl, services: Sequence[S]) -> Sequence[str]:
    """Return the names to register: those of the services, or that of the pool's group."""
    if "pool" not in url.options:
        if url.service:
            raise ConfigurationError(
                f"a worker's URL must not name a service; remove {url.service!r}"
            )
        return [each.name for each in services]
    if len(services) > 1:
        raise ConfigurationError(
            "a group of a pool has one service; start a worker for each service"
        )
    return [url.service]


def _plan(
    each: S, name: str, dialect: Dialect, connections: Connections, settings: WorkerSettings
) -> ServicePlan[S]:
    from requite.protocols.majordomo.jobs import WorkerPolicy, clients_call_id
    from requite.protocols.majordomo.worker import MajordomoWorker

    capacity = settings.capacity
    if capacity is None:
        capacity = CAPACITY_DEFAULT if dialect.has_ids else 1
    threads = settings.threads or capacity
    policy = WorkerPolicy(
        capacity=capacity,
        heartbeat=heartbeat_of(settings.heartbeat),
        lease_s=settings.handler_timeout or 0.0,
    )
    if each.in_thread and policy.lease_s:
        policy = replace(policy, capacity=min(capacity, threads))
    engine = MajordomoWorker(
        dialect,
        name,
        policy,
        rng=entropy.jitter,
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    plan = ServicePlan(
        each,
        engine,
        connections,
        policy.capacity,
        threads,
        BODY_FRAMES_MAX,
        unanswered=_unanswered(dialect),
    )
    return plan._replace(call_id=clients_call_id) if dialect.has_ids else plan


def _unanswered(dialect: Dialect) -> Unanswered:
    """Return the warning for a broker that does not acknowledge READY. MDP 0.3 brokers answer at
    once; older ones send only the next heartbeat, after 2.5 s in brokers based on the Guide."""
    text = (
        f"has not answered READY: check that it is a broker of MDP {dialect.version}"
        " (`--dialect` sets another version)"
    )
    return Unanswered(text) if dialect.has_ids else Unanswered(text, _HEARTBEAT_OF_OTHERS_S)
