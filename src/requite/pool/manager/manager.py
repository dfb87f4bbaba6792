"""`PoolManager`: the engine of a pool on an event loop.

    deliveries, results ──► engine ──► effects ──► RabbitMQ (`rabbit_carrier.py`)
                                               └─► the driver (`driver_runner.py`)

The engine makes all decisions. This shell feeds inputs one at a time, performs effects in order,
and runs one timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from requite.chronicle import WriterRole
from requite.engine import Stopped, Wake, Warn
from requite.pool.config import PoolConfig
from requite.pool.drivers.base import Driver, Label, fingerprint
from requite.pool.drivers.choice import make_driver
from requite.pool.effects import ListGroups, StartGroup, StopGroup
from requite.pool.engine import PoolEngine, PoolParts, PoolStatus
from requite.pool.inputs import DrainPool
from requite.pool.manager.carrier import Carrier, State
from requite.pool.manager.choice import carrier_of, parts_of
from requite.pool.manager.driver_runner import DriverRunner
from requite.pool.manager.environment import environment_of
from requite.pool.manager.poison import PoisonQueue
from requite.pool.recorder import GroupEvent, PoolRecorder
from requite.shell import clock
from requite.shell.daemon import Daemon
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.shell.warnings import Warnings

if TYPE_CHECKING:
    from requite.metrics.monitor import WebPage
    from requite.pool.manager.endpoints import Endpoints
    from requite.pool.manager.managed import Managed

_log = logging.getLogger("requite.pool")


class PoolManager(Daemon):
    """Manages one pool, or stands by while another manager does.

    `driver` replaces the one that the configuration names. `on_state` is called whenever this
    manager connects, stands by, or becomes active. `journal`: the folder of a journal of groups and
    of requests that pass the manager (`requite.journal`), or its settings. `page` makes the web
    page at `/` of the HTTP endpoints; None: there is none.
    """

    def __init__(
        self,
        config: PoolConfig,
        *,
        driver: Driver | None = None,
        on_state: Callable[[State], object] | None = None,
        journal: JournalOption | None = None,
        page: Callable[[Managed], WebPage] | None = None,
    ) -> None:
        self.config: Final = _with_version(config)
        if driver is None:
            label = Label(config.pool.name, config.pool.instance)
            driver = make_driver(config.driver, label, environment_of(config))
        self._engine: Final = PoolEngine(self.config, clock.now(), self.make_parts())
        self._warnings: Final = Warnings(_log, clock.now)
        self._carrier: Final = self.make_carrier(on_state or (lambda _: None))
        driver = self._carrier.guarded(driver)
        tell = self._carrier.tell_to_drain
        self._runner: Final = DriverRunner(driver, config.driver.timeout_s, self.feed, tell)
        self._endpoints: Final = _endpoints_of(self, page)
        self._journal: Final = journal_in(journal, WriterRole.MANAGER, new_name())
        self._recorder: Final = PoolRecorder(chronicle_of(self._journal))
        self._stopped: Final = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at: float | None = None
        self._is_closed = False
        self.workers_max: Final = driver.workers_max

    # --- for simulations --------------------------------------------------------------------------
    def make_parts(self) -> PoolParts:
        """Return the parts of the engine."""
        return parts_of(self.config)

    def make_carrier(self, on_state: Callable[[State], object]) -> Carrier:
        """Return the carrier."""
        return carrier_of(self.config, self.feed, on_state)

    # --- lifecycle --------------------------------------------------------------------------------
    async def start(self) -> None:
        """Start, and connect; retries while RabbitMQ is unreachable. Raises `ConfigurationError`
        if RabbitMQ refuses permanently."""
        try:
            if self._endpoints is not None:
                await self._endpoints.open()
            if self._journal is not None:
                self._journal.start()
            await self._carrier.start()
        except BaseException:
            await self.close()
            raise

    async def drain(self) -> None:
        """Stop consuming, finish deliveries in progress, and close. Stops the groups if so
        configured, unless another manager takes over."""
        self.feed(DrainPool(self.config.pool.stop_groups_on_exit, hand_over=True))
        await self._stopped.wait()
        await self.close()

    async def close(self) -> None:
        """Stop at once; groups keep running."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        await self._carrier.close()
        await self._runner.close()
        if self._endpoints is not None:
            await self._endpoints.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)

    # --- the engine -------------------------------------------------------------------------------
    def feed(self, event: Any) -> None:
        """Feed an input to the engine, and perform its effects."""
        if self._is_closed:
            return
        at = clock.now()
        effects = self._engine.handle((event,), at)
        self._recorder.record(event, effects, self._engine.tracker, at)
        for effect in effects:
            self._perform(effect)
        self._arm()

    def _perform(self, effect: Any) -> None:
        match effect:
            case ListGroups() | StartGroup() | StopGroup():
                self._runner.perform(effect)
            case Warn(kind, text):
                self._warnings.warn(kind, text)
            case Stopped():
                self._stopped.set()
            case _:
                self._carrier.perform(effect)

    def _arm(self) -> None:
        deadline = self._engine.deadline()
        if deadline == self._armed_at and self._timer is not None:
            return  # the usual case, after an activity report
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_at = deadline
        if deadline is not None:
            delay_s = max(0.0, deadline - clock.now())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.feed(Wake())

    # --- status -----------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """The state of this manager at RabbitMQ or at the broker."""
        return self._carrier.state

    @property
    def url(self) -> str:
        """The base URL of the HTTP endpoints; "" without them."""
        return "" if self._endpoints is None else self._endpoints.url

    @property
    def seen(self) -> Mapping[str, int]:
        """The number of waiting requests at the last listing, by key."""
        return self._carrier.messages

    @property
    def flaws(self) -> Mapping[str, Sequence[str]]:
        """Faults of the request queues at the last listing, by key."""
        return self._carrier.flaws

    @property
    def history(self) -> Sequence[GroupEvent]:
        """What started and stopped groups lately, the oldest first."""
        return self._recorder.history

    async def drain_workers(self, key: str | None = None, worker_id: str | None = None) -> bool:
        """Ask workers over RabbitMQ to drain: those of a group, one of them, or all of the pool.
        Returns whether any worker received it. Raises `FAILURES`, and `ConnectionError`."""
        return await self._carrier.drain_workers(key, worker_id)

    def snapshot(self) -> PoolStatus:
        """Return a snapshot of the engine."""
        return self._engine.snapshot()

    async def check(self) -> dict[str, str]:
        """Test the connections and the driver now; return faults by component."""
        return await self._carrier.check() | await self._check_driver()

    async def _check_driver(self) -> dict[str, str]:
        try:
            await self._runner.check()
        except Exception as error:
            return {"driver": str(error)}
        return {}

    def poison(self) -> PoisonQueue:
        """Return the queue of requests that killed their workers. Raises `ConnectionError`."""
        return self._carrier.poison()


def _endpoints_of(
    manager: PoolManager, page: Callable[[Managed], WebPage] | None
) -> Endpoints | None:
    """Return the HTTP endpoints, whose server is imported only if they are enabled."""
    if not manager.config.http.enabled:
        return None
    from requite.pool.manager.endpoints import Endpoints

    return Endpoints(manager, None if page is None else page(manager))


def _with_version(config: PoolConfig) -> PoolConfig:
    """Set the version to a digest of the workers' settings, unless one is configured."""
    settings = {"kind": config.driver.kind, **config.driver.settings}
    if config.broker.url:  # workers at another broker must be replaced
        settings["broker"] = config.workers.broker_url or config.broker.url
    version = config.pool.version or fingerprint(settings)
    return replace(config, pool=replace(config.pool, version=version))
