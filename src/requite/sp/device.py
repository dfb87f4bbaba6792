"""`Device`: forwards requests from its front to its back, and replies the other way."""

from __future__ import annotations

import asyncio

from requite.access.exposure import check_exposure
from requite.access.guard import AccessOption, AuthenticateOption, lacks_any, make_guard
from requite.chronicle import WriterRole
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.principal import Principal
from requite.protocols.scalability.device import ScalabilityDevice
from requite.protocols.scalability.jobs import DeviceSnapshot
from requite.protocols.scalability.policy import BACK, FRONT, DevicePolicy, PipeOptions
from requite.protocols.scalability.wire import HOPS_DEFAULT, IDS
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.connections import Connections
from requite.shell.daemon import Daemon
from requite.shell.guarding import guarded_by
from requite.shell.journaling import (
    JournalOption,
    access_record,
    chronicle_of,
    journal_in,
    new_name,
)
from requite.sp.socket import MESSAGE_SIZE_MAX
from requite.speaks.endpoints import Endpoints, Urls, bound_at
from requite.speaks.registry import read_endpoints
from requite.speaks.sp import (
    LINK_LIMITS,
    SpRole,
    check_whole,
    refuse_unused,
    to_dial,
    to_listen,
)


class Device(Daemon):
    """An SP device: forwards requests from clients at its front to workers or devices at its back.

        Device(front="sp+ws://*:80/service", back="sp+ipc:///run/service.sock").run()

    Each side may listen and dial at any number of addresses, over any transport. The device stores
    no requests: clients resend those in flight when it stops.

    - `front`, `back`: URLs to listen at, for clients and for workers.
    - `connect_front`, `connect_back`: URLs to dial. With `?priority=` and `?weight=` a URL says
      which connections to the back come first, and which get more requests.
    - `hops`: how many tags a request may have when it leaves (8). The device drops requests with
      more, which may be in a forwarding loop.
    - `message_size_max`: maximum bytes of one body, sent or received. Incoming messages may have
      1 KiB more, for headers; a larger one ends the connection.
    - `access`: the users who may connect, or the path of an access file (`requite.access.Access`).
      SP names no services, so a user needs the right to `call` any service at the front, and to
      `serve` any at the back. Without it everybody may connect, at loopback addresses and Unix
      sockets only.
    - `authenticate`: a hook that may refuse peers that `access` admits (`requite.access`).
    - `insecure`: listen at other addresses without `access`, too.
    - `journal`: a folder for a journal of forwarded requests (`requite.journal`), or a pair of the
      folder and its `JournalSettings`; None: no journal.

    Raises `ConfigurationError` for URLs and settings that cannot work.
    """

    def __init__(
        self,
        front: Urls = (),
        back: Urls = (),
        *,
        connect_front: Urls = (),
        connect_back: Urls = (),
        hops: int = HOPS_DEFAULT,
        message_size_max: int = MESSAGE_SIZE_MAX,
        access: AccessOption | None = None,
        authenticate: AuthenticateOption | None = None,
        insecure: bool = False,
        journal: JournalOption | None = None,
    ) -> None:
        clients = _side("front", connect_front, front, SpRole.REP)
        workers = _side("back", connect_back, back, SpRole.REQ)
        limits = Limits.for_bodies(message_size_max)
        fronts = to_listen(clients.binds, SpRole.REP, limits, FRONT)
        self._fronts = len(fronts)
        self._front_queries, self._back_queries = clients.peer_queries, workers.peer_queries
        name = new_name()
        self._journal = journal_in(journal, WriterRole.DEVICE, name)
        check_whole(hops=hops, message_size_max=message_size_max)
        self._engine = ScalabilityDevice(
            DevicePolicy(hops=hops),
            first_id=entropy.source.randrange(IDS),
            chronicle=chronicle_of(self._journal),
        )
        dialled = to_dial(clients.dials, SpRole.REP, limits, FRONT)
        connections = Connections(
            keep=dialled + to_dial(workers.dials, SpRole.REQ, limits, BACK),
            listen=fronts + to_listen(workers.binds, SpRole.REQ, limits, BACK),
            limits=LINK_LIMITS.for_messages(message_size_max),
        )
        check_exposure(connections.listen, is_guarded=access is not None, insecure=insecure)
        self._guard = make_guard(
            access, authenticate, self._rights_changed, _lacks, access_record(self._journal)
        )
        self._shell = AioShell(
            self._engine,
            connections,
            **guarded_by(self._guard),
            logger="requite.device",
        )
        self._name = f"{clients} to {workers}"

    def __repr__(self) -> str:
        return f"<Device from {self._name}>"

    @property
    def front_addresses(self) -> list[str]:
        """URLs at which the device listens for clients, with actual ports."""
        return bound_at(self._shell.addresses[: self._fronts], self._front_queries)

    @property
    def back_addresses(self) -> list[str]:
        """URLs at which the device listens for workers, with actual ports."""
        return bound_at(self._shell.addresses[self._fronts :], self._back_queries)

    def snapshot(self) -> DeviceSnapshot:
        """Return the device's tables and counters."""
        return self._engine.snapshot()

    @property
    def trouble(self) -> str:
        """Why the device cannot do its work, as text; "" if it can."""
        if not self._shell.is_listening:
            return "the device does not listen"
        return "" if self.snapshot().back else self._shell.dial_trouble

    def _rights_changed(self) -> None:
        self._shell.host.rights_changed()

    async def start(self) -> None:
        """Start forwarding on the running event loop.

        Raises `TransportError` if it cannot bind an address, `StorageError` if it cannot open the
        journal, and `LocalViolation` on a second call: a closed device stays closed.
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
        """Take no new requests, forward replies for a moment, then close."""
        await self._shell.drain()
        await self.close()

    async def close(self) -> None:
        """Stop at once, but send what is queued."""
        if self._guard is not None:
            await self._guard.close()
        await self._shell.close()
        if self._journal is not None:
            self._engine.tell_counts(clock.now())
            await asyncio.to_thread(self._journal.close)


def _lacks(user: Principal, place: PipeOptions) -> str:
    """Return which right a user lacks to connect at a side; SP names no services."""
    return lacks_any(user, "call" if place.side == FRONT else "serve")


def _side(name: str, dials: Urls, binds: Urls, role: SpRole) -> Endpoints:
    if not (dials or binds):
        raise ConfigurationError(f"a device needs a URL for its {name}, to listen or to connect")
    endpoints = read_endpoints(dials, binds)
    if endpoints.protocol != "sp":
        raise ConfigurationError(
            f"a device forwards only SP, not {endpoints.protocol.upper()}; use an sp+tcp:// URL"
        )
    refuse_unused(endpoints.dials + endpoints.binds, role)
    return endpoints
