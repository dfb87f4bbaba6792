"""`requite broker`: run a broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Group, Parameter

from requite.cli.credentials import CREDENTIALS_FILE_VARIABLE, read_users
from requite.cli.options import QUIET, JournalFolder, Logging
from requite.cli.output import complain, say
from requite.cli.pairing import ALONE, Pairing
from requite.cli.retention import JournalRetain, JournalShip, journal_option
from requite.cli.titanic.options import (
    DEFAULTS,
    IN_MEMORY,
    Attempts,
    AttemptTimeout,
    Chosen,
    DiskMax,
    Expire,
    Folder,
    Memory,
    Replica,
    ReplicaMode,
    Standby,
)
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits as FramingLimits
from requite.protocols.majordomo.policy import LEGACY_IDLE_S, BrokerPolicy, PartialsFor01
from requite.titanic.settings import TitanicSettings

_LIVENESS: Final = Group("Liveness", sort_key=10)
_REQUESTS: Final = Group("Requests", sort_key=20)
_LIMITS: Final = Group("Limits", sort_key=30)
_PEERS: Final = Group("Peers", sort_key=40)

_DEFAULT_BIND: Final = ("tcp://127.0.0.1:5555",)
_DEFAULTS: Final = BrokerPolicy()
_FRAMING: Final = FramingLimits()
_MIB: Final = 1024 * 1024


def _in_mib(size: int) -> str:
    return f"{size // _MIB} MiB"


@Parameter(name="*", group=_LIVENESS)
@dataclass(frozen=True, slots=True)
class Liveness:
    """When a worker is counted as lost."""

    heartbeat_interval: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            help="Speak to each worker at least this often. Of the broker's and a worker's "
            "interval the longer one holds.",
        ),
    ] = _DEFAULTS.heartbeat.interval_s
    liveness: Annotated[
        int,
        Parameter(
            metavar="N",
            help="A worker silent for N intervals is lost; an idle one of MDP 0.1 or 0.2 not "
            f"before {LEGACY_IDLE_S:g} s.",
        ),
    ] = _DEFAULTS.heartbeat.liveness
    legacy_busy_timeout: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            help="Drop a busy MDP 0.1/0.2 worker after SECONDS of silence; many send no heartbeats "
            "while they work.",
        ),
    ] = _DEFAULTS.legacy_busy_timeout_s


@Parameter(name="*", group=_REQUESTS)
@dataclass(frozen=True, slots=True)
class Requests:
    """What becomes of requests when workers are lost or missing."""

    attempts: Annotated[
        int,
        Parameter(metavar="N", help="Give a request to at most N workers that are lost with it."),
    ] = _DEFAULTS.attempts_max
    service_grace: Annotated[
        float,
        Parameter(
            metavar="SECONDS",
            help="How long a request waits for a service that has no worker. Make it longer than "
            "workers need to come back after a restart.",
        ),
    ] = _DEFAULTS.service_grace_s
    service_ttl: Annotated[
        float,
        Parameter(
            metavar="SECONDS", help="When a service without workers and requests is forgotten."
        ),
    ] = _DEFAULTS.service_ttl_s
    drain_timeout: Annotated[
        float,
        Parameter(metavar="SECONDS", help="After SIGTERM: how long pending requests may go on."),
    ] = _DEFAULTS.drain_timeout_s


@Parameter(name="*", group=_LIMITS)
@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a request ends with OVERLOADED, or the broker stops reading from its client (MDP
    0.1 and 0.2); a larger message costs its connection."""

    queue_max: Annotated[
        int,
        Parameter(
            metavar="N",
            help="Requests queued per service. Beyond a limit callers get OVERLOADED; clients of "
            "MDP 0.1 and 0.2, which cannot be told, are not read from until there is room.",
        ),
    ] = _DEFAULTS.queue_max
    client_pending_max: Annotated[
        int, Parameter(metavar="N", help="Requests outstanding per client.")
    ] = _DEFAULTS.client_pending_max
    services_max: Annotated[int, Parameter(metavar="N", help="Services known.")] = (
        _DEFAULTS.services_max
    )
    message_size_max: Annotated[
        int,
        Parameter(
            metavar="BYTES",
            show_default=_in_mib,
            help="Size of a message, all frames together.",
        ),
    ] = _FRAMING.message_size_bytes_max


@Parameter(name="*", group=_PEERS)
@dataclass(frozen=True, slots=True)
class Peers:
    """Who may connect, and what peers of older dialects are told."""

    credentials_file: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            env_var=CREDENTIALS_FILE_VARIABLE,
            help="Admit only users named in FILE, one `user:password` per line. Passwords travel "
            "unencrypted (ZMTP PLAIN).",
        ),
    ] = None
    partials_for_0_1: Annotated[
        PartialsFor01,
        Parameter(
            name="--partials-for-0.1",
            help="Partial replies for clients of MDP 0.1, which knows none: joined into one reply, "
            "or the request fails.",
        ),
    ] = _DEFAULTS.partials_for_0_1
    tell_old_clients: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="Tell clients of MDP 0.1 and 0.2 about failures in a reply of two frames, also "
            "when a limit is reached. Their RFCs ask for silence.",
        ),
    ] = _DEFAULTS.tell_old_clients


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Titanic:
    """Which requests are kept until they are answered, and where."""

    titanic: Folder = None
    titanic_memory: Memory = False
    titanic_attempts: Attempts = None
    titanic_attempt_timeout: AttemptTimeout = DEFAULTS.attempt_timeout_s
    titanic_expire: Expire = None
    titanic_disk_max: DiskMax = None
    titanic_replica: Replica = None
    titanic_replica_mode: ReplicaMode = "async"
    titanic_standby: Standby = False

    def settings(self) -> TitanicSettings | None:
        """Return what the options come to; None where nothing is to be kept."""
        if self != Titanic() and self.titanic is None and not self.titanic_memory:
            raise ConfigurationError(
                "the options --titanic-... tell how requests are kept, and where is missing:"
                " give --titanic DIR or --titanic-memory"
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
            prefix="--titanic-",
        ).settings()


def broker(
    *,
    bind: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ADDRESS",
            show_default=" ".join,
            help="Where to listen: `tcp://HOST:PORT` or `ipc:///PATH`; repeat it for several. Port "
            "0 takes a free one. Others than this machine reach only what is bound to an address "
            "of the network, such as `tcp://0.0.0.0:5555`.",
        ),
    ] = _DEFAULT_BIND,
    liveness: Liveness = Liveness(),
    requests: Requests = Requests(),
    limits: Limits = Limits(),
    peers: Peers = Peers(),
    keeper: Titanic = Titanic(),
    pairing: Pairing = ALONE,
    journal: JournalFolder = None,
    journal_retain: JournalRetain = None,
    journal_ship: JournalShip = None,
    logging: Logging = QUIET,
) -> int:
    """Run a broker that clients and workers connect to.

    It prints `listening on ADDRESS` per endpoint, then nothing. Clients and
    workers of MDP 0.1, 0.2 and 0.3 may connect to the same address. Requests
    wait in memory: clients send them again when the broker was restarted.
    With --titanic it keeps those that are submitted (`requite call --submit`) on
    the disk until they are answered.

    With --primary or --backup it is one of two brokers of which one serves:
    clients and workers connect to `mdp://A:5555,B:5555`, and go where it is.

    SIGTERM or Ctrl-C drains: no new requests, pending ones are finished, exit
    code 0. A second one stops at once.

      $ requite broker --bind tcp://127.0.0.1:0 --heartbeat-interval 0.5
    """
    from requite.broker import Broker
    from requite.cli.serving import collect_rarely, run_until_stopped

    logging.start()
    if keeper.titanic_memory:
        complain(IN_MEMORY)
    pair = pairing.make()
    server = Broker(
        *bind,
        policy=_policy(liveness, requests, limits, peers),
        users=read_users(peers.credentials_file),
        message_size_max=limits.message_size_max,
        journal=journal_option(journal, journal_retain, journal_ship),
        titanic=keeper.settings(),
        pair=pair,
    )
    until_failed = None if pair is None else pair.until_failed
    collect_rarely()
    return run_until_stopped(server, lambda: _announce(server.endpoints), until_failed)


def _policy(liveness: Liveness, requests: Requests, limits: Limits, peers: Peers) -> BrokerPolicy:
    return BrokerPolicy(
        heartbeat=HeartbeatPolicy(liveness.heartbeat_interval, liveness.liveness),
        legacy_busy_timeout_s=liveness.legacy_busy_timeout,
        attempts_max=requests.attempts,
        service_grace_s=requests.service_grace,
        service_ttl_s=requests.service_ttl,
        drain_timeout_s=requests.drain_timeout,
        queue_max=limits.queue_max,
        client_pending_max=limits.client_pending_max,
        services_max=limits.services_max,
        partials_for_0_1=peers.partials_for_0_1,
        tell_old_clients=peers.tell_old_clients,
    )


def _announce(endpoints: list[str]) -> None:
    for endpoint in endpoints:
        say(f"listening on {endpoint}")
