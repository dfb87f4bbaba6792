"""`requite broker`: run a broker."""

from __future__ import annotations

import asyncio
import logging as std_logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.access.options import AccessFile, Insecure, ZapDomain, ZapHandler
from requite.cli.config import DEFAULT_SETUP, Setup
from requite.cli.credentials import (
    CREDENTIALS_FILE_VARIABLE,
    CURVE_KEY_FILE_VARIABLE,
    curve_listener,
    read_users,
)
from requite.cli.options import (
    INTERVAL,
    LIVENESS,
    POSITIVE,
    QUIET,
    JournalFolder,
    Logging,
    Validator,
    complete_ones,
    within,
)
from requite.cli.output import complain, counted, say
from requite.cli.pairing import ALONE, Pairing
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.titanic.options import (
    DEFAULTS,
    IN_MEMORY,
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
from requite.cli.tls import NO_TLS, Tls
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits as FramingLimits
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy, PartialsFor01
from requite.shell.link import LinkLimits
from requite.titanic.settings import TitanicSettings

if TYPE_CHECKING:
    from requite.broker import Broker
    from requite.cli.serving import Reload
    from requite.zap import Zap

_LIVENESS: Final = Group("Liveness", sort_key=10)
_REQUESTS: Final = Group("Requests", sort_key=20)
_LIMITS: Final = Group("Limits", sort_key=30)
_PEERS: Final = Group("Peers", sort_key=40)

_DEFAULT_BIND: Final = ("tcp://127.0.0.1:5555",)
_DEFAULTS: Final = BrokerPolicy()
_FRAMING: Final = FramingLimits()
_LINKS: Final = LinkLimits()
_MIB: Final = 1024 * 1024
_log = std_logging.getLogger("requite.cli")


def _in_mib(size: int) -> str:
    return f"{size // _MIB} MiB"


def _broker_at(addresses: tuple[str, ...]) -> None:
    from requite.broker import Broker

    Broker(*complete_ones(addresses), insecure=True)


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


@Parameter(name="*", group=_LIMITS)
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
            show_default=_in_mib,
            help="Memory of a client's outstanding requests: their bodies and 1 KiB each. One "
            "request of any size fits.",
        ),
    ] = _DEFAULTS.client_pending_bytes_max
    pending_bytes_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=_in_policy("pending_bytes_max"),
            show_default=_in_mib,
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
            show_default=_in_mib,
            help="Size of a message, the sum of its frames. A larger one closes its connection.",
        ),
    ] = _FRAMING.message_size_bytes_max
    partial_size_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            validator=POSITIVE,
            show_default=_in_mib,
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


def broker(
    *,
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ADDRESS",
            validator=within(_broker_at),
            show_default=" ".join,
            help="Listen here: `tcp://HOST:PORT`, `tls://HOST:PORT` or `ipc:///PATH`; repeatable. "
            "Port 0 chooses a free port. For other machines, bind to an address of the network, "
            "such as `tls://0.0.0.0:5555`.",
        ),
    ] = _DEFAULT_BIND,
    liveness: Liveness = Liveness(),
    requests: Requests = Requests(),
    limits: Limits = Limits(),
    peers: Peers = Peers(),
    tls: Tls = NO_TLS,
    store: Titanic = Titanic(),
    pairing: Pairing = ALONE,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    logging: Logging = QUIET,
    setup: Setup = DEFAULT_SETUP,
) -> int:
    """Run a broker that clients and workers connect to.

    It prints `listening on ADDRESS` for each endpoint. Clients and workers of MDP
    0.1, 0.2 and 0.3 may connect to the same address. Requests wait in memory;
    after a restart of the broker, clients send them again. With --titanic the
    broker stores submitted requests (`requite call --submit`) on disk until they
    are answered.

    --primary or --backup makes it one of two brokers, of which one is active.
    Clients and workers connect to `mdp://A:5555,B:5555`, and use the active one.

    SIGTERM or Ctrl-C drains: the broker accepts no new requests, finishes pending
    ones, and exits with 0. A second signal stops it at once. SIGHUP reads
    --access and --credentials-file again; it drains a broker whose terminal was
    closed.

      $ requite broker --bind tcp://127.0.0.1:0 --heartbeat-interval 0.5
    """
    from requite.broker import Broker
    from requite.cli.serving import collect_rarely, run_until_stopped

    logging.start()
    if store.titanic_memory:
        complain(IN_MEMORY)
    file = peers.credentials_file
    users = None if file is None else read_users(file)
    binds, links = tls.complete(bind, pairing.links)
    pair = pairing.make(links, insecure=peers.insecure)
    server = Broker(
        *binds,
        policy=_policy(liveness, requests, limits, peers),
        access=peers.access,
        authenticate=_authenticator(peers),
        insecure=peers.insecure,
        users=users,
        curve=curve_listener(peers.curve_key_file, peers.curve_clients, peers.access),
        message_size_max=limits.message_size_max,
        links=LinkLimits(partial_size_max=limits.partial_size_max),
        journal=journal_option(journal, journal_retain, journal_ship),
        titanic=store.settings(),
        pair=pair,
    )
    if setup.check:
        return setup.report(
            f"the broker would listen on {' and '.join(bind)}",
            None if pair is None else f"as one of a pair, linked by {pairing.pair_bind}",
            None if users is None else f"for {counted(len(users), 'user')} of {file}",
            None if peers.access is None else f"for the users of {peers.access}",
            None if peers.zap is None else f"asking the ZAP handler at {peers.zap}",
            folders={"--titanic": store.titanic, "--journal": journal},
        )
    until_failed = None if pair is None else pair.until_failed
    collect_rarely()
    return run_until_stopped(
        server,
        lambda: _announce(server.endpoints),
        until_failed,
        server.until_over,
        _reloader(server, peers),
    )


def _authenticator(peers: Peers) -> Zap | None:
    if peers.zap is None:
        return None
    if peers.access is None:
        raise ConfigurationError("--zap requires --access: the handler may only refuse its users")
    from requite.zap import Zap

    return Zap(peers.zap, domain=peers.zap_domain, insecure=peers.insecure)


def _reloader(server: Broker, peers: Peers) -> Reload | None:
    """Return what SIGHUP does: read the file of users again, if there is one."""
    file = peers.credentials_file
    if file is not None:
        return lambda: _admit(server, file)
    return None if peers.access is None else lambda: _read_access(server)


async def _read_access(server: Broker) -> None:
    """Read the access file again; keep the users as they were if it is bad."""
    try:
        await server.read_access()
    except ConfigurationError as error:
        _log.warning("SIGHUP: the users and their rights remain as they were: %s", error)


async def _admit(server: Broker, file: Path) -> None:
    """Read the users again, for new connections; keep the old ones if the file is bad."""
    try:
        users = await asyncio.to_thread(read_users, file)
        server.admit(users)
    except ConfigurationError as error:
        _log.warning("SIGHUP: the users remain as they were: %s", error)
    else:
        _log.info("SIGHUP: read %s of %s", counted(len(users), "user"), file)


def _policy(liveness: Liveness, requests: Requests, limits: Limits, peers: Peers) -> BrokerPolicy:
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


def _announce(endpoints: list[str]) -> None:
    for endpoint in endpoints:
        say(f"listening on {endpoint}")
