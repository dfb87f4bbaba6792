"""`Titanic`: keeps requests until they are answered, behind any MDP broker.

    requite.titanic.Titanic("mdp://localhost:5555", "requests").run()

Inside a broker's process it is `requite.Broker(titanic="requests")`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

from requite.core.liveness import HeartbeatPolicy, heartbeat_of
from requite.engine import Drain, Note
from requite.errors import LocalViolation, StorageError
from requite.framing import Limits
from requite.protocols.titanic.engine import TitanicEngine, TitanicSnapshot
from requite.shell import clock
from requite.shell.aio import AioShell
from requite.shell.daemon import Daemon
from requite.titanic.desk import Desk
from requite.titanic.endpoint import BrokerEndpoint, endpoint_at
from requite.titanic.outage import Outage
from requite.titanic.recovery import StoreReport
from requite.titanic.services import dispatching, services_at
from requite.titanic.settings import KeepIn, settings_of
from requite.titanic.uuids import uuids

_QUESTIONS_MAX: Final = 1024  # to the broker, about services, while the window is full

_log = logging.getLogger("requite.titanic")


class Titanic(Daemon):
    """Keeps requests and their replies (9/TSP): a worker and a client of the broker at `url`.

    - `keep_in`: the folder for them, or `TitanicSettings`, which say more.
    - `dialect`: the version of MDP that is spoken with the broker, "0.3" unless the URL says
      otherwise. With 0.1 and 0.2 idempotency keys are lost on the way.
    - `heartbeat`: how often to be heard and when a silent broker is gone; seconds or a policy.
    - `message_size_max`: bytes of one body, in either direction.
    - `on_note`: gets every `Note` of the engine; it is called on the event loop and must be quick.

    Raises `ConfigurationError` for what cannot work.
    """

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
        self._desk = Desk(on_note or _unheard)
        self._services = services_at(self._endpoint, self._desk.take)
        self._policy = policy = settings.whole_policy
        take = self._desk.take
        self._calling = dispatching(self._endpoint, policy.window + _QUESTIONS_MAX, take)
        self._copying: AioShell | None = None
        if settings.replica is not None:
            replica = endpoint_at(
                settings.replica, "0.3", message_size_max, self._endpoint.heartbeat
            )
            self._copying = dispatching(replica, 1, take)
        self._outage = Outage(settings, self._desk)
        self._watching: asyncio.Task[None] | None = None
        self._started = False

    def __repr__(self) -> str:
        return f"<Titanic at {self._endpoint.name}>"

    def snapshot(self) -> TitanicSnapshot:
        """Return how many requests it keeps, by state. Once it has started."""
        return self._desk.engine.snapshot()

    async def start(self) -> None:
        """Read what is kept, then serve; connecting goes on in the background.

        Raises `StorageError` where the folder cannot be had, and `LocalViolation` the second time.
        """
        if self._started:
            raise LocalViolation("a Titanic starts once; make another one to serve again")
        self._started = True
        store = await asyncio.to_thread(self._settings.open)
        _report(store.report)
        engine = TitanicEngine(
            self._policy,
            rng=random.random,
            new_uuid=uuids().__next__,
            recovered=store.recovered,
            epoch_s=time.time() - clock.now(),
            facts=lambda: {"store": self._outage.store.view()._asdict()},
        )
        copy = None if self._copying is None else self._copying.submit_soon
        perform = self._outage.begin(store)
        self._desk.start(engine, perform, self._calling.submit_soon, copy)
        self._watching = asyncio.create_task(self._outage.run(), name="titanic-outage")
        for shell in self._shells():
            shell.start()

    async def until_failed(self) -> StorageError:
        """Wait until the store takes nothing any more, and return why. Everything is refused then
        but for what is kept already, until the log can be opened again, which is tried by itself;
        only what is in memory alone (`directory` None) cannot be had again."""
        await self._desk.failed.wait()
        assert self._desk.engine.failure is not None
        return self._desk.engine.failure

    async def drain(self) -> None:
        """Take nothing new, let what is with workers come back, then close.

        What has no reply by then is kept, and sent again by the next one on this folder.
        """
        for service in self._services:
            service.shell.submit(Drain())
        self._desk.take(Drain())
        await self._desk.stopped.wait()
        await asyncio.gather(*(service.shell.drain() for service in self._services))
        await self.close()

    async def close(self) -> None:
        """Stop at once; what is kept stays."""
        self._desk.close()
        await asyncio.gather(*(shell.close() for shell in self._shells()))
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
            self._watching = None
            await asyncio.to_thread(self._outage.store.close)

    def _shells(self) -> Iterator[AioShell]:
        yield self._calling
        if self._copying is not None:
            yield self._copying
        yield from (service.shell for service in self._services)


def _report(report: StoreReport) -> None:
    """Say what was found broken."""
    for damages, what in ((report.damaged, "is damaged"), (report.mended, "was mended")):
        for damage in damages:
            where = f"segment {damage.segment}, {damage.size} bytes at {damage.offset}"
            _log.warning("the log of requests %s (%s): %s", what, where, damage.reason)


def _unheard(_note: Note) -> None:
    """Keep no journal."""
