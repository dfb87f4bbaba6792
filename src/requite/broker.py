"""`Broker`: the Majordomo engine behind listening ROUTER sockets.

    requite.Broker("tcp://127.0.0.1:5555").run()

or in a program with its own event loop:

    async with requite.Broker("tcp://127.0.0.1:0") as broker:
        print(broker.endpoints)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from requite.access import Access
from requite.access.exposure import check_exposure
from requite.access.file import AccessFile
from requite.chronicle import Kind, WriterRole
from requite.engine import Note, Wake
from requite.errors import ConfigurationError
from requite.framing import IdentityTable, Limits, SocketType, Zmtp, mechanism_to_check
from requite.framing.base import CredentialsRefused
from requite.framing.credentials import NO_PASSWORDS
from requite.framing.handover import Handover
from requite.framing.zmtp_mechanism import Mechanism, PlainServer
from requite.pair import Pair
from requite.pair.standby_gate import StandbyGate, as_facts
from requite.principal import INSIDE, Credential, Principal
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.management import Snapshot
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections, Endpoint
from requite.shell.daemon import Daemon
from requite.shell.host import Link, LinkLimits
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.shell.owners import unrestricted
from requite.transport.address import InprocAddress, parse_address

if TYPE_CHECKING:
    from requite.titanic.settings import KeepIn
    from requite.titanic.titanic import Titanic

# Loopback only; other interfaces need an explicit address.
DEFAULT_BIND: Final = "tcp://127.0.0.1:5555"
# The transports of ZMTP; TLS and WebSockets belong to other protocols.
_SCHEMES: Final = ("tcp", "ipc", "inproc")
_IDENTITIES: Final = 1 << 32
_LOOK_EVERY_S: Final = 1.0  # at the access file
_SETTLE_S: Final = 5.0  # time limit for writing the last replies to disk
_log = logging.getLogger("requite.broker")


class Broker(Daemon):
    """A broker that distributes clients' requests to workers (MDP 0.1, 0.2 and 0.3).

    - `binds`: addresses to listen at, `tcp://host:port` (port 0: a free one) or `ipc:///path`.
    - `policy`: times and limits.
    - `access`: the users and their rights, or the path of an access file (`requite.access.Access`).
      The file is read again when it changes. Without it everybody may do everything, and the broker
      listens at loopback addresses and Unix sockets only.
    - `insecure`: listen at other addresses without `access`, too.
    - `users`: passwords by user name. If given, peers must authenticate by ZMTP PLAIN, which does
      not encrypt; None: no authentication.
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
        access: Access | str | Path | None = None,
        insecure: bool = False,
        users: Mapping[str, str] | None = None,
        handover: bool = False,
        message_size_max: int = Limits().message_size_bytes_max,
        links: LinkLimits | None = None,
        journal: JournalOption | None = None,
        titanic: KeepIn | None = None,
        pair: Pair | None = None,
        on_note: Callable[[Note], None] | None = None,
    ) -> None:
        policy = replace(
            policy or BrokerPolicy(),
            notes=on_note is not None or (policy is not None and policy.notes),
            titanic_inside=titanic is not None,
        )
        if access is not None and users is not None:
            raise ConfigurationError(
                "give either `access` or `users`: an access file has passwords"
            )
        if access is not None and not isinstance(access, Access):
            access = Access.read(access)
        self._access = access
        self._refused = ""  # the credential of the last wrong login
        self._following: asyncio.Task[None] | None = None
        name = new_name()
        self._journal = journal_in(journal, WriterRole.BROKER, name)
        self._engine = MajordomoBroker(policy, origin=name, chronicle=chronicle_of(self._journal))
        if pair is not None and titanic is not None:
            raise ConfigurationError(
                "a broker of a pair cannot store requests, because the other broker would not"
                " have them; run `requite titanic serve --broker mdp://A,B --dir DIR` as a"
                " separate process"
            )
        self._pair = pair
        gate = None if pair is None else self._put_behind_gate(pair)
        limits = _limits(message_size_max)
        self._mechanism = (
            mechanism_to_check(users) if access is None else self._mechanism_of(access)
        )
        identities: IdentityTable[Link] = IdentityTable(
            start=entropy.source.randrange(_IDENTITIES), handover=handover
        )

        def make_framing() -> Zmtp:
            return Zmtp(SocketType.ROUTER, mechanism=self._mechanism, limits=limits)

        listen = [
            Endpoint(parse_address(bind, _SCHEMES), make_framing)
            for bind in binds or (DEFAULT_BIND,)
        ]
        check_exposure(listen, access, insecure=insecure)
        self._titanic: Titanic | None = None
        if titanic is not None:
            place = InprocAddress(f"titanic-{name.hex()}")
            listen.append(Endpoint(place, Handover))
            self._titanic = _keeper(place, titanic)
        self._shell = AioShell(
            gate or self._engine,
            Connections(
                listen=listen, limits=(links or LinkLimits()).for_messages(message_size_max)
            ),
            lets_in=_accept_all if gate is None else gate.lets_in,
            identities=identities,
            identify=unrestricted if access is None else self._identify,
            login_refused=self._login_refused,
            note=on_note or _unheard,
            logger="requite.broker",
        )

    @property
    def endpoints(self) -> list[str]:
        """Addresses at which the broker listens, with actual ports; empty before `start`."""
        addresses = self._shell.addresses
        return [str(address) for address in (addresses[:-1] if self._titanic else addresses)]

    def snapshot(self) -> Snapshot:
        """Return the broker's tables: services, workers, counts of pending requests."""
        return self._engine.snapshot()

    async def read_access(self) -> None:
        """Read the access file again, and apply it to new and open connections. Raises
        `ConfigurationError` for a bad file, and keeps the users as they were."""
        if self._access is not None:
            file = await asyncio.to_thread(self._access.changed_file, anyway=True)
            self._apply(self._access, file)

    def admit(self, users: Mapping[str, str]) -> None:
        """Replace the users, for new connections; open ones stay. Raises `ConfigurationError`."""
        self._mechanism = mechanism_to_check(users)

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
            if self._access is not None:
                following = self._follow(self._access)
                self._following = asyncio.create_task(following, name="broker-access")
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

    async def serve(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGTERM or SIGINT: the first drains, the second stops. Main thread only.
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
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._pair is not None:
            await self._pair.close()
        if self._titanic is not None:
            await self._titanic.close()
        await self._shell.close()
        await self._end_journal()

    # --- users and rights -------------------------------------------------------------------------
    def _mechanism_of(self, access: Access) -> Mechanism:
        return PlainServer(self._check) if access.has_passwords else NO_PASSWORDS

    def _check(self, user: str, password: str) -> bool:
        assert self._access is not None
        if self._access.check_password(user, password):
            return True
        self._refused = f"plain:{user}"
        return False

    def _login_refused(self, peer_name: str, reason: str) -> None:
        """Journal that the handshake of a peer was refused, for the user that it named."""
        name, self._refused = self._refused, ""
        why = "a wrong password, or an unknown user" if name else reason
        self._record(Kind.DENIED, name, f"{why}, from {peer_name}")

    def _identify(self, credential: Credential | None, peer_name: str) -> Principal:
        assert self._access is not None
        try:
            principal = self._access.identify(credential, peer_name)
        except CredentialsRefused as refusal:
            self._record(Kind.DENIED, str(credential or ""), str(refusal))
            raise
        if principal is not INSIDE:
            how = f"{credential or 'no credential'} from {peer_name}"
            self._record(Kind.ADMITTED, principal.name, how)
        return principal

    def _record(self, kind: Kind, principal: str, reason: str) -> None:
        """Journal a decision about a connection, or about the rights of a user."""
        verb = "rights" if kind is Kind.RIGHTS else "connect"
        self._engine.record_access(kind, principal, verb, clock.now(), reason)

    async def _follow(self, access: Access) -> None:
        """Apply the access file whenever it changes."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self._apply(access, await asyncio.to_thread(access.changed_file))
            except ConfigurationError as error:
                _log.warning("the users and their rights remain as they were: %s", error)

    def _apply(self, access: Access, file: AccessFile | None) -> None:
        if file is None:
            return
        changed = access.load(file)
        self._mechanism = self._mechanism_of(access)
        for name in changed:
            self._record(Kind.RIGHTS, name, "changed" if name in file.users else "removed")
        self._shell.host.rights_changed()
        _log.info("read %s: %d users, changed: %s", file.path, len(file.users), changed or "none")

    # --- parts ------------------------------------------------------------------------------------
    def _put_behind_gate(self, pair: Pair) -> StandbyGate:
        self._engine.standing = lambda: as_facts(pair.view)
        pair.belong_to(lambda _view: self._shell.submit(Wake()))
        return StandbyGate(self._engine, pair)

    async def _end_journal(self) -> None:
        """Flush and close the journal in a thread, since the disk may be slow."""
        if self._journal is not None:
            self._engine.flush_open_spans(clock.now())
            await asyncio.to_thread(self._journal.close)


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


def _unheard(_note: Note) -> None:
    """Drop the note: there is no `on_note`."""
