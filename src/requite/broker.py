"""`Broker`: the Majordomo engine behind listening ROUTER sockets.

    requite.Broker("tcp://127.0.0.1:5555").run()

or in a program with its own event loop:

    async with requite.Broker("tcp://127.0.0.1:0") as broker:
        print(broker.endpoints)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from requite.access.exposure import check_exposure
from requite.access.guard import AccessOption, AuthenticateOption, Guard, make_guard
from requite.chronicle import Chronicle, Kind, WriterRole
from requite.engine import Note, Wake
from requite.errors import ConfigurationError, LocalViolation
from requite.framing import (
    IdentityTable,
    Limits,
    SocketType,
    Zmtp,
    mechanism_to_check,
)
from requite.framing.credentials import NULL_THAT_WAITS
from requite.framing.handover import Handover
from requite.framing.zmtp_mechanism import Mechanism, PlainServer
from requite.pair import Pair
from requite.pair.standby_gate import StandbyGate, as_facts
from requite.principal import Principal
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.census import (
    Census,
    Traffic,
    WorkerView,
    traffic_of,
    worker_views_of,
)
from requite.protocols.majordomo.management import Snapshot
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import KNOWS_USERS, TAKES_TRACES
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections, Endpoint
from requite.shell.curve import CurveListener
from requite.shell.daemon import Daemon
from requite.shell.guarding import guarded_by
from requite.shell.host import Link, LinkLimits
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.speaks.tls import check_passwords_are_private, read_place
from requite.tracing.stays import both, broker_spans
from requite.transport.address import Address, InprocAddress, IpcAddress, is_private
from requite.transport.tls import StrPath, TlsSettings

if TYPE_CHECKING:
    from requite.titanic.settings import KeepIn
    from requite.titanic.titanic import Titanic

# Loopback only; other interfaces need an explicit address.
DEFAULT_BIND: Final = "tcp://127.0.0.1:5555"
# WebSockets belong to SP.
_SCHEMES: Final = ("tcp", "tls", "ipc", "inproc")
_IDENTITIES: Final = 1 << 32
_SETTLE_S: Final = 5.0  # time limit for writing the last replies to disk
_log: Final = logging.getLogger("requite.broker")


class Broker(Daemon):
    """A broker that distributes clients' requests to workers (MDP 0.1, 0.2 and 0.3).

    - `binds`: addresses to listen at: `tcp://host:port` (port 0: a free one), `ipc:///path` or
      `tls://host:port?certificate=FILE&key=FILE`, with `ca=FILE` to accept only clients and workers
      with a certificate signed by that authority.
    - `policy`: times and limits.
    - `access`: the users and their rights, or the path of an access file (`requite.access.Access`).
      The file is read again when it changes. Without it everybody may do everything, and the broker
      listens at loopback addresses and Unix sockets only.
    - `authenticate`: `async def hook(peer: Authentication) -> bool`, asked about each peer that
      `access` admits, or an `Authenticator` (`requite.access.authenticator`) with its time limit;
      it can only refuse.
    - `insecure`: listen at other addresses without `access`, too.
    - `users`: passwords by user name. If given, peers must authenticate by ZMTP PLAIN, which does
      not encrypt; use TLS for other machines. None: no passwords.
    - `curve`: keys. If given, connections are encrypted, and peers must have one of the keys that
      are admitted (ZMTP CURVE); instead of `users`. With `access`, it is the file of the own secret
      key, and the keys of its users are admitted.
    - `handover`: whether a peer that announces an identity in use takes it over (True) or is
      refused (False).
    - `message_size_max`: maximum bytes of one message, all frames together; a larger one ends the
      connection.
    - `links`: limits of time and memory for connections.
    - `journal`: a folder for a journal of requests (`requite.journal`), or a pair of the folder and
      its `JournalSettings`; None: no journal.
    - `titanic`: a folder for durable requests (9/TSP), or `TitanicSettings`; None: submissions end
      with NO_SERVICE.
    - `pair`: makes this one of two brokers, one active and one on standby (`requite.pair.Pair`).
      The broker starts and closes the pair. Give clients and workers both addresses:
      `mdp://a:5555,b:5555`. Run a Titanic beside the pair, not inside a broker. If the two
      contradict each other, `serve` and `run` raise `PairFailed`; with your own event loop, await
      the pair's `until_failed`.
    - `on_note`: called on the event loop with every `Note` of the engine; it must be fast.

    Raises `ConfigurationError` for addresses and settings that cannot work, and `LocalViolation`
    for a pair that has been started or belongs to another broker.
    """

    def __init__(
        self,
        *binds: str,
        policy: BrokerPolicy | None = None,
        access: AccessOption | None = None,
        authenticate: AuthenticateOption | None = None,
        insecure: bool = False,
        users: Mapping[str, str] | None = None,
        curve: CurveListener | StrPath | None = None,
        handover: bool = False,
        message_size_max: int = Limits().message_size_bytes_max,
        links: LinkLimits | None = None,
        journal: JournalOption | None = None,
        titanic: KeepIn | None = None,
        pair: Pair | None = None,
        on_note: Callable[[Note], None] | None = None,
    ) -> None:
        self._spans = spans = broker_spans()
        policy = replace(
            policy or BrokerPolicy(),
            notes=on_note is not None or (policy is not None and policy.notes),
            notes_traces=spans is not None,
            titanic_inside=titanic is not None,
        )
        if access is not None and users is not None:
            raise ConfigurationError(
                "give either `access` or `users`: an access file has passwords"
            )
        self._guard = make_guard(
            access, authenticate, self._rights_changed, record=self._record, counts_requests=True
        )
        name = new_name()
        self._journal = journal_in(journal, WriterRole.BROKER, name)
        self._engine = self._make_engine(policy, name, chronicle_of(self._journal))
        if self._guard is not None:
            self._engine.authorizer.principal_named = self._guard.access.principal_named
        if pair is not None and titanic is not None:
            raise ConfigurationError(
                "a broker of a pair cannot store requests, because the other broker would not"
                " have them; run `requite titanic serve --broker mdp://A,B --dir DIR` as a"
                " separate process"
            )
        self._pair = pair
        gate = None if pair is None else self._put_behind_gate(pair)
        limits = _limits(message_size_max)
        _check_only_one(users, curve)
        identities: IdentityTable[Link] = IdentityTable(
            start=entropy.source.randrange(_IDENTITIES), handover=handover
        )

        keys = self._keys(curve)
        self._users, self._curve = mechanism_to_check(users), keys
        features = (TAKES_TRACES,) if self._guard is None else (TAKES_TRACES, KNOWS_USERS)

        def make_framing(address: Address, tls: TlsSettings | None) -> Zmtp:
            mechanisms = self._mechanisms(address, tls)
            return Zmtp(SocketType.ROUTER, mechanism=mechanisms, limits=limits, features=features)

        places = [read_place(bind, _SCHEMES, listening=True) for bind in binds or (DEFAULT_BIND,)]
        listen = [Endpoint(each[0], partial(make_framing, *each), tls=each[1]) for each in places]
        is_guarded = self._guard is not None or keys is not None
        check_exposure(listen, is_guarded=is_guarded, insecure=insecure)
        self._insecure = insecure
        if users is not None or (self._guard is not None and self._guard.access.has_passwords):
            check_passwords_are_private(
                [address for address, _ in places if keys is None], insecure=insecure
            )
        self._inside = InprocAddress(f"inside-{name.hex()}")
        self._titanic: Titanic | None = None
        if titanic is not None:
            listen.append(Endpoint(self._inside, Handover))
            self._titanic = _keeper(self._inside, titanic)
        self._shell = AioShell(
            gate or self._engine,
            Connections(
                listen=listen, limits=(links or LinkLimits()).for_messages(message_size_max)
            ),
            lets_in=_accept_all if gate is None else gate.lets_in,
            identities=identities,
            **guarded_by(self._guard),
            note=both(on_note, None if spans is None else spans.note),
            logger="requite.broker",
        )

    @property
    def endpoints(self) -> list[str]:
        """Addresses at which the broker listens, with actual ports; empty before `start`."""
        return [str(each) for each in self._shell.addresses if each != self._inside]

    def snapshot(self) -> Snapshot:
        """Return the broker's tables: services, workers, counts of pending requests."""
        return self._engine.snapshot()

    def census(self) -> Census:
        """Return the numbers for metrics and dashboards."""
        return self._engine.census()

    def traffic(self, service: str) -> Traffic | None:
        """Return the numbers of a service for metrics; None if there is none of that name."""
        found = self._engine.services.get(service.encode())
        return None if found is None else traffic_of(found)

    def worker_views(self, service: str, workers_max: int, holds_max: int) -> list[WorkerView]:
        """Return workers of a service, and requests that they hold; at most so many."""
        found = self._engine.services.get(service.encode())
        return [] if found is None else worker_views_of(found, workers_max, holds_max)

    @property
    def guard(self) -> Guard | None:
        """The guard that reads the access file; None without one."""
        return self._guard

    @property
    def titanic(self) -> Titanic | None:
        """The Titanic inside this broker, if it has one."""
        return self._titanic

    @property
    def pair(self) -> Pair | None:
        """The pair that this broker belongs to, if any."""
        return self._pair

    @property
    def trouble(self) -> str:
        """Why the broker cannot do its work, as text; "" if it can. The passive broker of a pair
        can: it takes over when the active one fails. One whose Titanic cannot store requests can,
        too: it serves all other requests."""
        if not self._shell.is_listening:
            return "the broker does not listen"
        if self._engine.draining:
            return "the broker is being drained"
        return "" if self._pair is None else self._pair.trouble

    async def listen_inside(self) -> InprocAddress:
        """Listen, once, at an address for clients of this process, and return it; call after
        `start`.

        They speak with `Handover`, and may make requests for each user, with the rights of that
        user; requests for nobody need no right.
        """
        if self._inside not in self._shell.addresses:
            await self._shell.listen(Endpoint(self._inside, Handover))
        return self._inside

    def switch_pair(self, principal: Principal) -> None:
        """Switch the active broker of the pair for `principal`, journal and log it. Raises what
        `Pair.switch` does, and `LocalViolation` if this broker belongs to no pair."""
        if self._pair is None:
            raise LocalViolation("this broker belongs to no pair")
        self._pair.switch()
        now, told = clock.now(), "switched the pair"
        self._engine.record_access(Kind.ADMITTED, principal.name, "admin", now, told, b"switch")
        _log.warning("operator: %s %s", principal, told)

    def deny_switch(self, principal: Principal) -> None:
        """Journal that `principal` has no right to switch the pair."""
        now, why = clock.now(), f"{principal} has no right to switch the pair"
        self._engine.record_access(Kind.DENIED, principal.name, "admin", now, why, b"switch")

    async def read_access(self) -> None:
        """Read the access file again, and apply it to new and open connections. Raises
        `ConfigurationError` for a bad file, and keeps the users as they were."""
        if self._guard is not None:
            await self._guard.read_again()

    def _keys(self, curve: CurveListener | StrPath | None) -> CurveListener | None:
        if curve is None or isinstance(curve, CurveListener):
            return curve
        if self._guard is None:
            raise ConfigurationError(
                "`curve` is a file with a secret key, but nothing says which peers to admit: give"
                " `access` as well, or a `CurveListener`"
            )
        return CurveListener(curve, self._guard.access.admits_key)

    def _mechanisms(self, address: Address, tls: TlsSettings | None) -> Sequence[Mechanism]:
        """Return the mechanisms that an address offers. With an access file these are the ones by
        which any of its users could be known there."""
        if self._guard is None:
            return (self._users if self._curve is None else self._curve.mechanism(),)
        access = self._guard.access
        offered: list[Mechanism] = []
        if access.has_passwords and (self._insecure or is_private(address)):
            offered.append(PlainServer(self._guard.access.check_password))
        if self._curve is not None:
            offered.append(self._curve.mechanism())
        is_known = isinstance(address, IpcAddress) or (tls is not None and tls.verify_client)
        if is_known or access.has_anonymous or not offered:
            offered.append(NULL_THAT_WAITS)
        return offered

    def _rights_changed(self) -> None:
        self._shell.host.rights_changed()

    def admit(self, users: Mapping[str, str]) -> None:
        """Replace the users, for new connections; open ones stay. Raises `ConfigurationError`, also
        for a broker with keys."""
        _check_only_one(users, self._curve)
        self._users = mechanism_to_check(users)

    async def start(self) -> list[str]:
        """Start listening; return `endpoints`.

        Raises `TransportError` if it cannot bind an address, `StorageError` if it cannot open a
        folder, and `LocalViolation` on a second call: a closed broker stays closed.
        """
        self._start_once()
        if self._journal is not None:
            self._journal.start()
        try:
            if self._pair is not None:
                await self._pair.start()
            await self._shell.listen_all()
            if self._titanic is not None:
                await self._titanic.start()
            if self._guard is not None:
                self._guard.start()
        except BaseException:
            await self.close()
            raise
        return self.endpoints

    async def drain(self) -> None:
        """Refuse new requests, finish the pending ones (`drain_timeout_s` at most), then close. In
        a pair, the other broker then takes over at once."""
        if self._titanic is None:
            await self._shell.drain()
        else:
            await self._drain_with(self._titanic)
        if self._pair is not None:
            await self._pair.drain()
        await self._end_journal()

    async def _drain_with(self, titanic: Titanic) -> None:
        """Drain both at once, since each has requests of the other. Once the broker has answered
        all requests, the Titanic only has to write the last replies."""
        draining = asyncio.ensure_future(titanic.drain())
        try:
            await self._shell.drain()
            await asyncio.wait([draining], timeout=_SETTLE_S)
        finally:
            draining.cancel()
            await asyncio.wait([draining])
            await titanic.close()

    async def until_over(self) -> None:
        """Wait until an operator drains the broker (`mmi.drain`)."""
        wanted = asyncio.Event()
        self._engine.drain_wanted = wanted.set
        await wanted.wait()

    async def serve(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGTERM, SIGINT or `mmi.drain`, then drain; a second signal stops. Main
        thread only.
        Raises `PairFailed` if an operator has to decide which broker of the pair serves."""
        serving = asyncio.ensure_future(super().serve(on_started))
        ends = [serving]
        if self._pair is not None:
            ends.append(asyncio.ensure_future(_raise_what_failed(self._pair)))
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.wait(ends)
        for end in done:
            end.result()

    async def close(self) -> None:
        """Stop at once and drop pending requests; MDP 0.3 clients resend them."""
        if self._guard is not None:
            await self._guard.close()
        if self._pair is not None:
            await self._pair.close()
        if self._titanic is not None:
            await self._titanic.close()
        await self._shell.close()
        if self._spans is not None:
            self._spans.abandon()
        await self._end_journal()

    def _record(self, kind: Kind, principal: str, reason: str) -> None:
        """Journal a decision about a connection, or a change of rights."""
        verb = "rights" if kind is Kind.RIGHTS else "connect"
        self._engine.record_access(kind, principal, verb, clock.now(), reason)

    # --- parts ------------------------------------------------------------------------------------
    def _make_engine(
        self, policy: BrokerPolicy, origin: bytes, chronicle: Chronicle | None
    ) -> MajordomoBroker:
        """Return the engine; simulations return others."""
        return MajordomoBroker(policy, origin=origin, chronicle=chronicle)

    def _make_gate(self, engine: MajordomoBroker, pair: Pair) -> StandbyGate:
        """Return the gate of a broker in a pair; simulations return others."""
        return StandbyGate(engine, pair)

    def _put_behind_gate(self, pair: Pair) -> StandbyGate:
        self._engine.standing = lambda: as_facts(pair.view)
        pair.belong_to(lambda _view: self._shell.submit(Wake()))
        return self._make_gate(self._engine, pair)

    async def _end_journal(self) -> None:
        """Flush and close the journal in a thread, since the disk may be slow."""
        if self._journal is not None:
            self._engine.flush_open_spans(clock.now())
            await asyncio.to_thread(self._journal.close)


def _check_only_one(users: Mapping[str, str] | None, curve: CurveListener | StrPath | None) -> None:
    if users is not None and curve is not None:
        raise ConfigurationError(
            "a broker checks either `users` (PLAIN) or keys (`curve`), not both; remove one"
        )


def _limits(message_size_max: int) -> Limits:
    if message_size_max < 1:
        raise ConfigurationError(f"message_size_max must be at least 1, not {message_size_max}")
    return Limits.for_bodies(message_size_max)


async def _raise_what_failed(pair: Pair) -> None:
    raise await pair.until_failed()


def _accept_all() -> bool:
    """Accept every connection."""
    return True


def _keeper(place: InprocAddress, keep_in: KeepIn) -> Titanic:
    """Make the Titanic that serves this broker over an in-process connection."""
    from requite.titanic.endpoint import endpoint_inside
    from requite.titanic.titanic import Titanic  # most brokers have none

    return Titanic(endpoint_inside(place), keep_in)
