"""`Titanic`: durable requests, behind any MDP broker.

    requite.titanic.Titanic("mdp://localhost:5555", "requests").run()

Inside a broker's process it is `requite.Broker(titanic="requests")`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.engine import Drain, Note
from requite.errors import StorageError
from requite.framing import Limits
from requite.protocols.titanic.engine import TitanicEngine, TitanicSnapshot
from requite.protocols.titanic.policy import TitanicPolicy
from requite.shell import clock, entropy
from requite.shell.aio import AioShell
from requite.shell.daemon import Daemon
from requite.titanic.desk import Desk
from requite.titanic.endpoint import BrokerEndpoint, endpoint_at
from requite.titanic.outage import Outage
from requite.titanic.recovery import StoreReport
from requite.titanic.services import BrokerLinks, Links, Take, dispatching
from requite.titanic.settings import KeepIn, settings_of
from requite.titanic.store import StoreView
from requite.titanic.uuids import uuids
from requite.tracing.stays import both, titanic_spans

_CHECKS_MAX: Final = 1024  # service checks in flight, in addition to the window

_log = logging.getLogger("requite.titanic")


class Titanic(Daemon):
    """Stores requests and replies (9/TSP); a worker and a client of the broker at `url`.

    - `keep_in`: a folder, or `TitanicSettings`.
    - `dialect`: the version of MDP to speak with the broker, "0.3" unless the URL sets it. MDP 0.1
      and 0.2 do not transmit idempotency keys.
    - `heartbeat`: interval in seconds, or a policy, which also says when a broker counts as dead.
    - `message_size_max`: maximum bytes of one body, in either direction.
    - `on_note`: called with every `Note` of the engine, on the event loop; it must be quick.

    Raises `ConfigurationError` for invalid settings.
    """

    _engine_type: type[TitanicEngine] = TitanicEngine  # replaced in simulations

    def __init__(
        self,
        url: str | BrokerEndpoint,
        keep_in: KeepIn,
        *,
        dialect: str | None = None,
        heartbeat: HeartbeatPolicy | float | None = None,
        message_size_max: int = Limits().message_size_bytes_max,
        on_note: Callable[[Note], None] | None = None,
    ) -> None:
        self._settings = settings = settings_of(keep_in)
        if isinstance(url, str):
            url = endpoint_at(url, dialect, message_size_max, heartbeat_of(heartbeat))
        self._endpoint = url
        spans = titanic_spans()
        self._desk = Desk(both(on_note, None if spans is None else spans.note))
        self._policy = policy = replace(settings.whole_policy, notes_traces=spans is not None)
        take = self._desk.take
        self._links = self._make_links(self._endpoint, policy.window + _CHECKS_MAX, take)
        self._copying: AioShell | None = None
        if settings.replica is not None:
            replica = endpoint_at(
                settings.replica, "0.3", message_size_max, self._endpoint.heartbeat
            )
            self._copying = dispatching(replica, 1, take)
        self._outage = Outage(settings, self._desk)
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Titanic at {self._endpoint.name}>"

    def snapshot(self) -> TitanicSnapshot:
        """Return counts of stored requests by state; call after `start`."""
        return self._desk.engine.snapshot()

    def store_view(self) -> StoreView:
        """Return the figures of the store; call after `start`."""
        return self._outage.store.view()

    @property
    def trouble(self) -> str:
        """Why Titanic accepts no requests, as text; "" if it does. Call after `start`."""
        seen = self.snapshot()
        if seen.draining:
            return "Titanic is being drained"
        if seen.superseded:
            return "the replica of this Titanic has taken over"
        return seen.failure or self._links.trouble

    async def start(self) -> None:
        """Open the store, then serve; connections are made in the background.

        Raises `StorageError` if the folder cannot be used, `LocalViolation` on a second call.
        """
        self._start_once()
        store = await asyncio.to_thread(self._settings.open)
        _report(store.report)
        engine = self._engine_type(
            _limited(self._policy, store.settings.disk_bytes_max),
            rng=entropy.jitter,
            new_uuid=uuids().__next__,
            recovered=store.recovered,
            epoch_s=clock.wall() - clock.now(),
            facts=lambda: {"store": self._outage.store.view()._asdict()},
        )
        copy = None if self._copying is None else self._copying.submit_soon
        perform = self._outage.begin(store)
        self._desk.start(engine, perform, self._links.call, copy)
        self._watching = asyncio.create_task(self._outage.run(), name="titanic-outage")
        if self._copying is not None:
            self._copying.start()
        self._links.start()

    async def until_failed(self) -> StorageError:
        """Wait until the store fails, and return the error. From then on, requests are refused and
        stored replies are served, until the log could be reopened, which is retried automatically.
        A store in memory (`directory` None) cannot be reopened."""
        await self._desk.failed.wait()
        assert self._desk.engine.failure is not None
        return self._desk.engine.failure

    async def drain(self) -> None:
        """Accept no new requests, wait for attempts in flight, then close.

        Unanswered requests remain stored; the next Titanic on this folder dispatches them again.
        """
        self._links.drain_services()
        self._desk.take(Drain())
        await self._desk.stopped.wait()
        await self._links.until_drained()
        await self.close()

    async def close(self) -> None:
        """Stop at once; stored requests and replies remain."""
        self._desk.close()
        closing = [self._links.close()]
        if self._copying is not None:
            closing.append(self._copying.close())
        await asyncio.gather(*closing)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
            self._watching = None
            await asyncio.to_thread(self._outage.store.close)

    def _make_links(self, endpoint: BrokerEndpoint, slots: int, take: Take) -> Links:
        return BrokerLinks(endpoint, slots, take)


def _limited(policy: TitanicPolicy, disk_bytes_max: int | None) -> TitanicPolicy:
    """Leave half of the disk to others than one owner, unless its limit is set: its requests get a
    quarter, its replies another one."""
    if policy.owner_bytes_max is not None or disk_bytes_max is None:
        return policy
    return replace(policy, owner_bytes_max=disk_bytes_max // 4)


def _report(report: StoreReport) -> None:
    """Log damage that was found when the store was opened."""
    for damages, what in ((report.damaged, "is damaged"), (report.mended, "was mended")):
        for damage in damages:
            where = f"segment {damage.segment}, {damage.size} bytes at {damage.offset}"
            _log.warning("the log of requests %s (%s): %s", what, where, damage.reason)
