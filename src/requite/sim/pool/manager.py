"""The process of a manager: the unchanged `PoolManager`, on an event loop with virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from requite.pool.drivers.base import DriverError
from requite.pool.engine import PoolEngine, PoolParts
from requite.pool.inputs import DrainPool, RunningGroup, SetVersion
from requite.pool.manager.carrier import Carrier, State
from requite.pool.manager.management import Management
from requite.pool.manager.manager import PoolManager
from requite.pool.manager.rabbit_carrier import RabbitCarrier
from requite.sim.pool.member import Member

if TYPE_CHECKING:
    from requite.sim.pool.driver import SimDriver
    from requite.sim.pool.stage import PoolStage

Tell = Callable[[Any], None]


class Manager(Member):
    """A manager; `shell` is new after each start. It is on standby until it gets the exclusive
    consumers of the pool's queues."""

    shell: SimPoolManager

    def __init__(self, name: str, stage: PoolStage, driver: SimDriver) -> None:
        super().__init__(name, stage, self._main)
        self.driver = driver
        self.is_leaving = False

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Create the event loop of a new start."""
        super().make()
        self.is_leaving = False
        self._has_begun = False

    def make_shell(self) -> SimPoolManager:
        """Return a new manager."""
        return SimPoolManager(self)

    async def _main(self) -> None:
        self.shell = self.make_shell()
        self._has_begun = True
        await self.shell.serve()

    def leave(self, *, stop_groups: bool) -> None:
        """Drain the manager."""
        if self.alive and not self.is_leaving and self._has_begun:
            self.is_leaving = True
            self.turn(self.shell.feed, DrainPool(stop_groups, hand_over=True))
            self.drain()

    # --- state ------------------------------------------------------------------------------------
    @property
    def engine(self) -> PoolEngine:
        """The engine since the last start."""
        return self.shell.engine

    @property
    def is_active(self) -> bool:
        """Whether it has the consumers."""
        return self.alive and self._has_begun and self.shell.state is State.ACTIVE

    @property
    def is_leading(self) -> bool:
        """Whether it is the active manager, which decides which groups run."""
        return self.is_active and not self.is_leaving

    def set_version(self, version: str) -> None:
        """Replace the groups of other versions."""
        self.turn(self.shell.feed, SetVersion(version))

    async def answer_to(self, ask: Callable[[Tell], None]) -> Any:
        """Call `ask`; return what it passes to its argument, later and outside of this process."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        life = self.life

        def tell(what: Any) -> None:
            if life == self.life:
                self.turn(lambda: None if answer.done() else answer.set_result(what))

        ask(tell)
        return await answer


class SimPoolManager(PoolManager):
    """The manager, with the parts under test, the simulated management API and the simulated
    driver."""

    def __init__(self, process: Manager) -> None:
        self._process = process
        super().__init__(process.stage.config, driver=ManagerDriver(process))

    @property
    def engine(self) -> PoolEngine:
        """The engine."""
        return self._engine

    def make_parts(self) -> PoolParts:
        """Return the parts under test."""
        return self._process.stage.parts.engine

    def make_carrier(self, on_state: Callable[[State], object]) -> Carrier:
        """Return the carrier at RabbitMQ, with the simulated management API."""
        web: Any = SimWeb(self._process)
        connect = self._process.stage.parts.connect
        management = Management(self.config, web)
        return RabbitCarrier(
            self.config, self.feed, on_state, connect=connect, management=management
        )


class SimWeb:
    """The HTTP client of a manager, for the management API."""

    def __init__(self, process: Manager) -> None:
        self._process = process

    async def ask(self, _method: str, path: str, *, expect: tuple[int, ...], **_more: Any) -> Any:
        """Return an answer with an expected status. Raises `DriverError`."""
        api = self._process.stage.api
        answer = await self._process.answer_to(lambda tell: api.ask(path, tell))
        if answer is None or answer.status not in expect:
            raise DriverError(f"the management API answers {path} with {answer}")
        return answer

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class ManagerDriver:
    """The driver, as one manager uses it."""

    workers_max: int = 8

    def __init__(self, process: Manager) -> None:
        self._process = process
        self._driver = process.driver
        self._stopped: set[str] = set()  # groups that it has stopped while draining

    async def list(self) -> Mapping[str, RunningGroup]:
        """Return the groups that have workers. Raises `DriverError`."""
        found: Mapping[str, RunningGroup] | None = await self._process.answer_to(self._driver.list)
        if found is None:
            raise DriverError("the driver fails")
        return found

    async def start(self, key: str, version: str = "", workers: int | None = None) -> None:
        """Start the missing workers of a group. Raises `DriverError`."""
        await self._do(lambda tell: self._driver.start(key, version, workers or 1, tell))

    async def stop(self, key: str) -> None:
        """Drain the workers of a group. Raises `DriverError`."""
        ledger = self._process.stage.ledger
        if key in self._stopped:
            ledger.stopped_twice(key)
        ledger.group_stopped(key)
        await self._do(lambda tell: self._driver.stop(key, tell))
        if self._process.is_leaving:
            self._stopped.add(key)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _do(self, ask: Callable[[Tell], None]) -> None:
        if not await self._process.answer_to(ask):
            raise DriverError("the driver fails")
