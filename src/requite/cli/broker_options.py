"""The options of `requite broker`, by their groups in its help, and the settings they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.access.options import AccessFile, Insecure, ZapDomain, ZapHandler
from requite.cli.credentials import CREDENTIALS_FILE_VARIABLE, CURVE_KEY_FILE_VARIABLE
from requite.cli.options import INTERVAL, LIMITS, LIVENESS, POSITIVE, Validator, in_mib, within
from requite.cli.titanic.options import (
    DEFAULTS,
    OWNER_REQUESTS_MAX,
    Attempts,
    AttemptTimeout,
    Chosen,
    DiskMax,
    Expire,
    Folder,
    KeyFile,
    Memory,
    OwnerBytes,
    OwnerRequests,
    Replica,
    ReplicaMode,
    Standby,
)
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits as FramingLimits
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy, PartialsFor01
from requite.shell.link import LinkLimits
from requite.titanic.settings import TitanicSettings

_LIVENESS: Final = Group("Liveness", sort_key=10)
_REQUESTS: Final = Group("Requests", sort_key=20)
_PEERS: Final = Group("Peers", sort_key=40)

_DEFAULTS: Final = BrokerPolicy()
_FRAMING: Final = FramingLimits()
_LINKS: Final = LinkLimits()


def _in_policy(setting: str) -> Validator:
    return within(lambda value: BrokerPolicy(**{setting: value}))


@Parameter(name="*", group=_LIVENESS)
@dataclass(frozen=True, slots=True)
class Liveness:
    """When the broker counts a worker as lost."""

    heartbeat_interval: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=INTERVAL,
            help="Send each worker a heartbeat after this time without a message. The longer of "
            "the broker's and the worker's interval applies.",
        ),
    ] = _DEFAULTS.heartbeat.interval_s
    liveness: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=LIVENESS,
            help="Count a worker as lost after N silent intervals; an idle worker of MDP 0.1 or "
            f"0.2 after {LEGACY_IDLE_S:g} s at the earliest.",
        ),
    ] = _DEFAULTS.heartbeat.liveness
    legacy_busy_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_in_policy("legacy_busy_timeout_s"),
            help="Drop a busy MDP 0.1/0.2 worker after SECONDS of silence; many send no heartbeats "
            "while they work.",
        ),
    ] = _DEFAULTS.legacy_busy_timeout_s
    worker_expired_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("worker_expired_max"),
            help="Disconnect an MDP 0.3 worker that lets N requests in a row expire without any "
            "answer.",
        ),
    ] = _DEFAULTS.worker_expired_max


@Parameter(name="*", group=_REQUESTS)
@dataclass(frozen=True, slots=True)
class Requests:
    """Redelivery and waiting of requests when workers are lost or missing."""

    attempts: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("attempts_max"),
            help="Fail a request when N workers have been lost with it.",
        ),
    ] = _DEFAULTS.attempts_max
    service_grace: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_in_policy("service_grace_s"),
            help="How long a request waits for a service without workers. Set it longer than "
            "workers take to restart.",
        ),
    ] = _DEFAULTS.service_grace_s
    service_ttl: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_in_policy("service_ttl_s"),
            help="Forget a service after this time without workers and requests.",
        ),
    ] = _DEFAULTS.service_ttl_s
    drain_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            validator=_in_policy("drain_timeout_s"),
            help="After SIGTERM: time for pending requests to finish.",
        ),
    ] = _DEFAULTS.drain_timeout_s


@Parameter(name="*", group=LIMITS)
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits. A request beyond one fails with OVERLOADED, or the broker stops reading from its
    client (MDP 0.1 and 0.2). A message beyond its limit closes the connection."""

    queue_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("queue_max"),
            help="Requests queued per service. Beyond this and the next five limits, requests fail "
            "with OVERLOADED. MDP 0.1 and 0.2 have no such reply: the broker stops reading from "
            "their clients until there is room.",
        ),
    ] = _DEFAULTS.queue_max
    client_pending_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("client_pending_max"),
            help="Requests outstanding per client.",
        ),
    ] = _DEFAULTS.client_pending_max
    client_pending_bytes_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=_in_policy("client_pending_bytes_max"),
            show_default=in_mib,
            help="Memory of a client's outstanding requests: their bodies and 1 KiB each. One "
            "request of any size fits.",
        ),
    ] = _DEFAULTS.client_pending_bytes_max
    pending_bytes_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=_in_policy("pending_bytes_max"),
            show_default=in_mib,
            help="Memory of the outstanding requests of all clients.",
        ),
    ] = _DEFAULTS.pending_bytes_max
    services_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("services_max"),
            help="Services. Workers may register for as many, whatever clients have named.",
        ),
    ] = _DEFAULTS.services_max
    client_services_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("client_services_max"),
            help="Services without workers that a client has named.",
        ),
    ] = _DEFAULTS.client_services_max
    worker_capacity_max: Annotated[
        int,
        Parameter(
            metavar="N",
            validator=_in_policy("worker_capacity_max"),
            help="Requests that a worker gets at a time, whatever it announces.",
        ),
    ] = _DEFAULTS.worker_capacity_max
    message_size_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=POSITIVE,
            show_default=in_mib,
            help="Size of a message, the sum of its frames. A larger one closes its connection.",
        ),
    ] = _FRAMING.message_size_bytes_max
    partial_size_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=POSITIVE,
            show_default=in_mib,
            help="Memory of incomplete messages of all peers, at least one message. Beyond this, "
            "the broker drops the peer with the largest one.",
        ),
    ] = _LINKS.partial_size_max


@Parameter(name="*", group=_PEERS)
@dataclass(frozen=True, slots=True)
class Peers:
    """Users, keys and rights, and replies to clients of older dialects."""

    access: AccessFile = None
    zap: ZapHandler = None
    zap_domain: ZapDomain = "requite"
    insecure: Insecure = False
    credentials_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var=CREDENTIALS_FILE_VARIABLE,
            help="Admit only users in FILE, one `user:password` per line. ZMTP PLAIN does not "
            "encrypt passwords; TLS does.",
        ),
    ] = None
    curve_key_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var=CURVE_KEY_FILE_VARIABLE,
            help="Encrypt connections (ZMTP CURVE). FILE has the broker's secret key, or several "
            "that are all valid, one per line in Z85; it is read again when it changes. Requires "
            "--curve-clients.",
        ),
    ] = None
    curve_clients: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Admit only clients and workers with a public key in FILE, one per line in Z85; "
            "it is read again when it changes.",
        ),
    ] = None
    partials_for_0_1: Annotated[
        PartialsFor01,
        Parameter(
            name="--partials-for-0.1",
            help="Partial replies for clients of MDP 0.1, which has none: join them into one "
            "reply, or fail the request.",
        ),
    ] = _DEFAULTS.partials_for_0_1
    tell_old_clients: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Reply to clients of MDP 0.1 and 0.2 with two frames when a request fails or "
            "exceeds a limit. Their RFCs have no such reply.",
        ),
    ] = _DEFAULTS.tell_old_clients


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Titanic:
    """Store of durable requests (Titanic)."""

    titanic: Folder = None
    titanic_memory: Memory = False
    titanic_attempts: Attempts = None
    titanic_attempt_timeout: AttemptTimeout = DEFAULTS.attempt_timeout_s
    titanic_expire: Expire = None
    titanic_disk_max: DiskMax = None
    titanic_owner_requests_max: OwnerRequests = OWNER_REQUESTS_MAX
    titanic_owner_bytes_max: OwnerBytes = None
    titanic_key_file: KeyFile = None
    titanic_replica: Replica = None
    titanic_replica_mode: ReplicaMode = "async"
    titanic_standby: Standby = False

    def settings(self) -> TitanicSettings | None:
        """Return the settings of the store; None without a store."""
        if self != Titanic() and self.titanic is None and not self.titanic_memory:
            raise ConfigurationError(
                "the --titanic-... options require a store: give --titanic DIR or --titanic-memory"
            )
        return Chosen(
            self.titanic,
            self.titanic_memory,
            self.titanic_attempts,
            self.titanic_attempt_timeout,
            self.titanic_expire,
            self.titanic_disk_max,
            self.titanic_replica,
            self.titanic_replica_mode,
            self.titanic_standby,
            self.titanic_owner_requests_max,
            self.titanic_owner_bytes_max,
            self.titanic_key_file,
            prefix="--titanic-",
        ).settings()


def broker_policy(
    liveness: Liveness, requests: Requests, limits: Limits, peers: Peers
) -> BrokerPolicy:
    """Return the policy of a broker with these options."""
    return BrokerPolicy(
        heartbeat=HeartbeatPolicy(liveness.heartbeat_interval, liveness.liveness),
        legacy_busy_timeout_s=liveness.legacy_busy_timeout,
        worker_expired_max=liveness.worker_expired_max,
        worker_capacity_max=limits.worker_capacity_max,
        attempts_max=requests.attempts,
        service_grace_s=requests.service_grace,
        service_ttl_s=requests.service_ttl,
        drain_timeout_s=requests.drain_timeout,
        queue_max=limits.queue_max,
        client_pending_max=limits.client_pending_max,
        client_pending_bytes_max=limits.client_pending_bytes_max,
        pending_bytes_max=limits.pending_bytes_max,
        services_max=limits.services_max,
        client_services_max=limits.client_services_max,
        partials_for_0_1=peers.partials_for_0_1,
        tell_old_clients=peers.tell_old_clients,
    )
