"""`Queue`: distributes the requests of Lazy Pirate clients to the workers that are ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from requite.access.exposure import check_exposure
from requite.access.guard import AccessOption, AuthenticateOption, lacks_any, make_guard
from requite.chronicle import WriterRole
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits, SocketType, Zmtp
from requite.principal import Principal
from requite.protocols.pirate.jobs import QueueSnapshot
from requite.protocols.pirate.policy import BACK, FRONT, LINK_HANDSHAKE_S, QueuePolicy
from requite.protocols.pirate.queue import PirateQueue
from requite.protocols.pirate.wire import Pattern
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections, Endpoint
from requite.shell.daemon import Daemon
from requite.shell.guarding import guarded_by
from requite.shell.journaling import (
    JournalOption,
    access_record,
    chronicle_of,
    journal_in,
    new_name,
)
from requite.shell.link import LinkLimits
from requite.speaks.curve import MakeMechanism, listening_mechanism, no_keys
from requite.speaks.endpoints import bound_at
from requite.speaks.registry import parse_url
from requite.speaks.tls import Place, check_files, read_place

# Loopback only; other interfaces need an explicit address. The ports are the Guide's.
DEFAULT_FRONT: Final = "tcp://127.0.0.1:5555"
DEFAULT_BACK: Final = "tcp://127.0.0.1:5556"
_SCHEMES: Final = ("tcp", "tls", "ipc", "inproc")
_ADDRESSES: Final = 1 << 32


class Queue(Daemon):
    """A queue between clients at its front and workers at its back.

        Queue("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5556", protocol="paranoid").run()

    Clients are Lazy Pirates (`Client("pirate://127.0.0.1:5555")`) or any REQ socket of ZeroMQ.
    Workers speak the queue's protocol. For "simple" that is
    `Worker("pirate://127.0.0.1:5556?protocol=simple", echo)` or a REQ socket; for "paranoid" it is
    `Worker("pirate://127.0.0.1:5556", echo)` or a DEALER that speaks 6/PPP.

    The queue stores no requests and gives none to a second worker: clients resend them.

    - `front`, `back`: addresses to listen at, for clients and for workers: `tcp://host:port` (port
      0: a free one), `ipc:///path` or `tls://host:port?certificate=FILE&key=FILE`, one or several;
      `ca=FILE` to accept only peers with a certificate signed by that authority. The URLs by which
      peers dial them (`pirate://host:port`, `pirate+ipc:///path`) are accepted, too; their options
      `curve_key_file` and `curve_clients` admit only peers with keys (CURVE).
    - `protocol`: "paranoid" or "simple".
    - `policy`: times and limits.
    - `message_size_max`: maximum bytes of one body; a larger message ends the connection.
    - `access`: the users who may connect, or the path of an access file (`requite.access.Access`).
      Requests name no service, so a user needs the right to `call` any service at the front, and to
      `serve` any at the back. Without it everybody may connect, at loopback addresses and Unix
      sockets only.
    - `authenticate`: a hook that may refuse peers that `access` admits (`requite.access`).
    - `insecure`: listen at other addresses without `access`, too.
    - `journal`: a folder for a journal of requests (`requite.journal`), or a pair of the folder and
      its `JournalSettings`; None: no journal.

    Raises `ConfigurationError` for addresses and settings that cannot work.
    """

    def __init__(
        self,
        front: str | Sequence[str] = DEFAULT_FRONT,
        back: str | Sequence[str] = DEFAULT_BACK,
        *,
        protocol: str = Pattern.PARANOID.value,
        policy: QueuePolicy | None = None,
        message_size_max: int = Limits().message_size_bytes_max,
        access: AccessOption | None = None,
        authenticate: AuthenticateOption | None = None,
        insecure: bool = False,
        journal: JournalOption | None = None,
    ) -> None:
        if protocol not in tuple(Pattern):
            known = " or ".join(Pattern)
            raise ConfigurationError(f"the protocol of a queue must be {known}, not {protocol!r}")
        if message_size_max < 1:
            raise ConfigurationError(f"message_size_max must be at least 1, not {message_size_max}")
        self._pattern = Pattern(protocol)
        name = new_name()
        self._journal = journal_in(journal, WriterRole.BROKER, name)
        self._engine = PirateQueue(
            self._pattern,
            policy,
            first_address=entropy.source.randrange(_ADDRESSES),
            instance=name,
            chronicle=chronicle_of(self._journal),
        )
        limits = Limits.for_bodies(message_size_max)
        fronts = _endpoints(front, limits, FRONT)
        self._fronts = len(fronts)
        connections = Connections(
            listen=fronts + _endpoints(back, limits, BACK),
            limits=LinkLimits(handshake_timeout_s=LINK_HANDSHAKE_S).for_messages(message_size_max),
        )
        check_exposure(connections.listen, is_guarded=access is not None, insecure=insecure)
        self._guard = make_guard(
            access, authenticate, self._rights_changed, _lacks, access_record(self._journal)
        )
        self._shell = AioShell(
            self._engine,
            connections,
            **guarded_by(self._guard),
            logger="requite.queue",
        )

    def __repr__(self) -> str:
        return f"<Queue {self._pattern.value}>"

    @property
    def front_addresses(self) -> list[str]:
        """URLs at which the queue listens for clients, with actual ports."""
        return bound_at(self._shell.addresses[: self._fronts], protocol="pirate")

    @property
    def back_addresses(self) -> list[str]:
        """URLs at which the queue listens for workers, with actual ports and its protocol."""
        urls = bound_at(self._shell.addresses[self._fronts :], protocol="pirate")
        return [f"{url}?protocol={self._pattern.value}" for url in urls]

    def snapshot(self) -> QueueSnapshot:
        """Return the queue's tables and counters."""
        return self._engine.snapshot()

    @property
    def trouble(self) -> str:
        """Why the queue cannot do its work, as text; "" if it can."""
        if not self._shell.is_listening:
            return "the queue does not listen"
        return "the queue is being drained" if self.snapshot().draining else ""

    def _rights_changed(self) -> None:
        self._shell.host.rights_changed()

    async def start(self) -> None:
        """Start serving on the running event loop.

        Raises `TransportError` if it cannot bind an address, `StorageError` if it cannot open the
        journal, and `LocalViolation` on a second call: a closed queue stays closed.
        """
        self._start_once()
        if self._journal is not None:
            self._journal.start()
        try:
            await self._shell.listen_all()
            if self._guard is not None:
                self._guard.start()
            self._shell.start()
        except BaseException:
            await self.close()
            raise

    async def drain(self) -> None:
        """Take no new requests, forward replies (`drain_timeout_s` at most), then close."""
        self._shell.stop_listening()  # a new client would be refused, and count that as an attempt
        await self._shell.drain()
        await self._end_journal()

    async def close(self) -> None:
        """Stop at once; clients resend their requests."""
        if self._guard is not None:
            await self._guard.close()
        await self._shell.close()
        await self._end_journal()

    async def _end_journal(self) -> None:
        """Write open spans to the journal, if there is one, and close it."""
        if self._journal is not None:
            self._engine.flush_open_spans(clock.now())
            await asyncio.to_thread(self._journal.close)


def queue_policy(
    heartbeat_s: float | None = None, liveness: int | None = None, drain_timeout_s: float = 10.0
) -> QueuePolicy:
    """Make a policy of these values; None: the default."""
    usual = HeartbeatPolicy()
    heartbeat = HeartbeatPolicy(
        usual.interval_s if heartbeat_s is None else heartbeat_s,
        usual.liveness if liveness is None else liveness,
    )
    return QueuePolicy(heartbeat=heartbeat, drain_timeout_s=drain_timeout_s)


def _lacks(user: Principal, side: str) -> str:
    """Return which right a user lacks to connect at a side; clients name no services there."""
    return lacks_any(user, "call" if side == FRONT else "serve")


def _endpoints(places: str | Sequence[str], limits: Limits, side: str) -> list[Endpoint]:
    several = (places,) if isinstance(places, str) else tuple(places)
    if not several:
        raise ConfigurationError(f"a queue needs an address for its {side}")
    return [
        Endpoint(address, partial(_framing, mechanism, limits), side, tls)
        for each in several
        for (address, tls), mechanism in _places(each)
    ]


def _framing(mechanism: MakeMechanism, limits: Limits) -> Zmtp:
    return Zmtp(SocketType.ROUTER, mechanism=mechanism(), limits=limits)


def _places(place: str) -> Sequence[tuple[Place, MakeMechanism]]:
    if not place.startswith(("pirate://", "pirate+")):
        return ((read_place(place, _SCHEMES, listening=True), no_keys),)
    url = parse_url(place, listening=True)
    check_files(url.tls, listening=True)
    mechanism = listening_mechanism(url)
    return [((address, url.tls), mechanism) for address in url.addresses]
