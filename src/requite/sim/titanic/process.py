"""The process of a Titanic: killed between any two operations of its disk, and restarted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from requite.errors import StorageError
from requite.protocols.titanic.engine import TitanicEngine
from requite.sim.kernel.disk import SimDisk
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.network import Network
from requite.sim.kernel.process import Ending, Pace
from requite.sim.kernel.program import Program
from requite.sim.titanic.exchange import Answer, ExchangeLinks
from requite.sim.titanic.store import SimDiskSettings, SimStore
from requite.titanic.endpoint import BrokerEndpoint
from requite.titanic.services import Take
from requite.titanic.titanic import Titanic

if TYPE_CHECKING:
    from requite.protocols.titanic.inputs import Answered
    from requite.sim.kernel.process import Supervisor
    from requite.sim.kernel.world import Act, World
    from requite.sim.titanic.exchange import Exchange
    from requite.sim.titanic.knobs import TitanicKnobs
    from requite.sim.titanic.ledger import Ledger
    from requite.storage import Log
    from requite.titanic.store import StoreSettings

_RESTART_S: Final = 0.5
_LATE_S: Final = 0.0005
_RESTARTED_P: Final = 0.5
_NEXT_OPERATIONS: Final = 8  # a kill happens at one of the next few disk operations
_GRACE_S: Final = 0.3  # or after this time, if there are none


@dataclass(frozen=True, slots=True)
class TitanicParts:
    """The parts under test. Mutation tests replace one."""

    engine: type[TitanicEngine] = TitanicEngine
    open_store: Callable[..., SimStore] = SimStore.on


class SimTitanic(Titanic):
    """A Titanic that is linked to the exchange and to users in place of a broker."""

    def __init__(self, process: TitanicProcess, settings: SimDiskSettings) -> None:
        self._process = process
        self._engine_type = process.parts.engine
        super().__init__("mdp://broker", settings)

    def _make_links(self, _endpoint: BrokerEndpoint, _slots: int, take: Take) -> ExchangeLinks:
        links = self._process.links = ExchangeLinks(self._process.exchange, take)
        return links

    async def until_over(self) -> None:
        """Wait until the store fails, if a supervisor then restarts the process, else forever."""
        if self._process.rng.random() < _RESTARTED_P:
            await self.until_failed()
            self._process.crash()
        await super().until_over()


class TitanicProcess(Program):
    """A process with a Titanic that is restarted whenever it ends."""

    titanic: SimTitanic
    links: ExchangeLinks

    def __init__(
        self,
        world: World,
        supervisor: Supervisor,
        knobs: TitanicKnobs,
        ledger: Ledger,
        parts: TitanicParts,
        say: Callable[[str], None],
    ) -> None:
        network = Network(world, Shape())
        super().__init__("titanic", world, network, Pace(0.0, _LATE_S), supervisor, self.main)
        self.disk = SimDisk()
        self.store: SimStore | None = None  # of this start
        self.parts = parts
        self.exchange: Exchange
        self._knobs = knobs
        self._ledger = ledger
        self._say = say
        self._power_fails = False

    # --- life -------------------------------------------------------------------------------------
    async def main(self) -> None:
        """Run a Titanic until SIGTERM."""
        knobs = self._knobs
        settings = SimDiskSettings(
            policy=knobs.policy, store=knobs.store, machine=self, open_store=self._open_store
        )
        self.titanic = SimTitanic(self, settings)
        try:
            await self.titanic.serve()
        except StorageError as error:
            self._say(f"cannot start: {error}")

    def make(self) -> None:
        """Create the state of a new start."""
        super().make()
        self.store = None
        self._ledger.restarted()

    @property
    def is_serving(self) -> bool:
        """Whether the store is open."""
        return self.alive and self.store is not None and self.links.is_open

    def kill(self, *, power: bool = False) -> None:
        """Kill the process at one of its next disk operations, or soon."""
        self._power_fails = power
        self.disk.stop_at = self.disk.operations + self.rng.randrange(_NEXT_OPERATIONS)
        self.world.after(_GRACE_S * self.rng.random(), self._kill_now, self.life)

    def _kill_now(self, life: int) -> None:
        if life == self.life and self.disk.stop_at >= 0:
            self.killed()

    def killed(self) -> None:
        """End, perhaps with the whole machine."""
        if self._power_fails:
            self.lose_power()
        else:
            self.crash()

    def _end(self, what: Ending) -> None:
        super()._end(what)
        if what is not Ending.EXIT:
            self._ledger.deaths += 1
            # It may have cut off a damaged tail, and been killed before its report.
            self._hear(1 if self.store is None else self.store.view().damaged)
        disk = self.disk
        cut = what is Ending.POWER_LOSS
        self.disk = disk.after_power_cut(self.rng) if cut else disk.after_death()
        self.disk.is_full = disk.is_full
        self.exchange.forget()
        self.world.after(_RESTART_S * self.rng.random(), self.start)

    # --- inputs -----------------------------------------------------------------------------------
    def ask(
        self, service: str, frames: Sequence[bytes], key: bytes, owner: bytes, answer: Answer
    ) -> None:
        """Deliver a request to one of Titanic's services; a dead process drops it."""
        if self.is_serving:
            self.turn(self.links.ask, service, frames, key, owner, answer)

    def answered(self, event: Answered) -> None:
        """Deliver the outcome of a request of Titanic."""
        self.turn(self.links.take, event)

    # --- the store --------------------------------------------------------------------------------
    def _open_store(self, log: Log, settings: StoreSettings, now_us: Callable[[], int]) -> SimStore:
        try:
            store = self.parts.open_store(log, settings, now_us)
        except StorageError as error:
            self._hear(error.cut_bytes)
            raise
        self.store = store
        store.disk_s = self._knobs.disk_s
        self._hear(len(store.report.damaged) + store.report.cut_bytes)
        self._say(f"opens its store, with {len(store.recovered.requests)} requests")
        return store

    def _in_thread(self, life: int, act: Act, args: tuple[object, ...]) -> None:
        super()._in_thread(life, act, args)
        if self.store is not None:
            self._ledger.uses(self.store.disk_bytes)

    def _hear(self, reports: int) -> None:
        """Count reports of damage."""
        self._ledger.reported += reports
