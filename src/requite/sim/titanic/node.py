"""The Titanic process: engine and store, killed between any two disk operations, and restarted."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from requite.engine import (
    Cancel,
    Drain,
    Effect,
    Finished,
    Input,
    Load,
    Note,
    Stopped,
    Store,
    Submit,
    Wake,
    Warn,
)
from requite.errors import StorageError
from requite.protocols.titanic.engine import TitanicEngine
from requite.protocols.titanic.inputs import Asked
from requite.sim.kernel.disk import Killed, SimDisk, SimLog
from requite.titanic.store import Store as TitanicStore
from requite.titanic.store import open_memory

if TYPE_CHECKING:
    from requite.sim.kernel.world import World
    from requite.sim.titanic.exchange import Exchange
    from requite.sim.titanic.knobs import TitanicKnobs
    from requite.sim.titanic.ledger import Ledger

EPOCH_S: Final = 1_700_000_000.0
_RESTART_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.25
_NEXT_OPERATIONS: Final = 8  # a kill happens at one of the next few disk operations
_GRACE_S: Final = 0.3  # or after this time, if there are none

Answer = Callable[[Sequence[bytes]], None]


@dataclass(frozen=True, slots=True)
class TitanicParts:
    """The parts under test. Mutation tests replace one."""

    engine: type[TitanicEngine] = TitanicEngine
    open_store: Callable[..., TitanicStore] = open_memory


class Node:
    """A Titanic process that is restarted whenever it ends."""

    def __init__(
        self,
        world: World,
        knobs: TitanicKnobs,
        ledger: Ledger,
        parts: TitanicParts,
        say: Callable[[str], None],
    ) -> None:
        self.disk = SimDisk()
        self.alive = False
        self.stopped = False
        self.retired = False
        self.engine: TitanicEngine | None = None
        self.store: TitanicStore | None = None
        self.exchange: Exchange | None = None
        self._world = world
        self._knobs = knobs
        self._ledger = ledger
        self._parts = parts
        self._say = say
        self._rng = world.rng("node")
        self._life = 0
        self._power_fails = False
        self._inbox: list[Input] = []
        self._coming: list[list[Input]] = []  # results of the store that the engine has yet to get
        self._working = False
        self._armed_at: float | None = None

    # --- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start a new process, which opens the store."""
        if self.alive or self.retired:
            return
        self._life += 1
        self.stopped = False
        try:
            self.store = self._open()
        except Killed:
            self._hear(1)  # it may have cut off a damaged tail, and been killed before its report
            self._die()
            return
        except StorageError as error:
            self._say(f"cannot start: {error}")
            self._hear(error.cut_bytes)
            self.disk = self.disk.after_death()
            self._world.after(_RESTART_S, self.start)
            return
        self._hear(len(self.store.report.damaged) + self.store.report.cut_bytes)
        self._ledger.restarted()
        self.engine = self._parts.engine(
            self._knobs.policy,
            rng=self._rng.random,
            new_uuid=lambda: self._rng.randbytes(16),
            recovered=self.store.recovered,
            epoch_s=EPOCH_S,
        )
        self.alive = True
        self._say(f"started, with {len(self.store.recovered.requests)} requests")
        self.feed(Wake())
        self._world.after(_LOOK_EVERY_S, self._look, self._life)

    def _reopen(self) -> None:
        """Open the log again after a failed sync, in the same process."""
        assert self.engine is not None
        assert self.store is not None
        old = self.store
        try:
            self._finish_with(old)
            old.close()
            self.store = self._open()
            self.store.write_again_from(old.safe_to)
        except Killed:
            self._die()
            return
        except StorageError as error:
            self._say(f"cannot open it again: {error}")
            self._hear(error.cut_bytes)
            self._die()
            return
        self._say("opens the log again")
        self._hear(len(self.store.report.damaged) + self.store.report.cut_bytes)
        self.engine.reopened(self.store.recovered, self._world.now)
        self.feed(Wake())

    def _finish_with(self, store: TitanicStore) -> None:
        """Feed the engine all results of a store."""
        assert self.engine is not None
        events, self._inbox = self._inbox, []
        events += [event for done in self._coming for event in done]
        self._coming.clear()
        events += store.work()
        while events:
            for effect in self.engine.handle(events, self._world.now):
                self._perform(effect)
            events = store.work()

    def _open(self) -> TitanicStore:
        return self._parts.open_store(
            self._knobs.store, folder=self.disk, kind=SimLog, now_us=self._wall_us
        )

    def kill(self, *, power: bool = False) -> None:
        """Kill the process at one of its next disk operations, or soon."""
        self._power_fails = power
        self.disk.stop_at = self.disk.operations + self._rng.randrange(_NEXT_OPERATIONS)
        self._world.after(_GRACE_S * self._rng.random(), self._kill_now, self._life)

    def _kill_now(self, life: int) -> None:
        if self.alive and life == self._life and self.disk.stop_at >= 0:
            self._die()

    def _die(self) -> None:
        self._say("the power fails" if self._power_fails else "killed")
        self.alive = False
        self._life += 1
        self._ledger.deaths += 1
        self._inbox.clear()
        self._coming.clear()
        self._working = False
        self._armed_at = None
        if self.store is not None:
            self._hear(self.store.view().damaged)
        disk = self.disk
        self.disk = disk.after_power_cut(self._rng) if self._power_fails else disk.after_death()
        self.disk.is_full = disk.is_full
        assert self.exchange is not None
        self.exchange.forget()
        self._world.after(_RESTART_S * self._rng.random(), self.start)

    # --- the engine -------------------------------------------------------------------------------
    def ask(
        self, service: str, frames: Sequence[bytes], key: bytes, owner: bytes, answer: Answer
    ) -> None:
        """Deliver a request to one of Titanic's services; a dead process drops it."""
        self.feed(Asked(answer, service, frames, key, owner))

    def drain(self) -> None:
        """Drain the process."""
        self.retired = True
        self.feed(Drain())

    def feed(self, event: Input) -> None:
        """Queue an input; the engine soon gets all queued inputs together."""
        if not self.alive:
            return
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self._world.after(0.0005 * self._rng.random(), self._turn, self._life)

    def _turn(self, life: int) -> None:
        if life != self._life or not self.alive or self.engine is None:
            return
        events, self._inbox = self._inbox, []
        try:
            effects = list(self.engine.handle(events, self._world.now))
        except Exception:
            self._ledger.history.violate("I13", traceback.format_exc(limit=-3))
            self._die()
            return
        for effect in effects:
            self._perform(effect)
        self._arm()
        if self.engine.failure is not None:
            self._power_fails = False
            if self._rng.random() < 0.5:
                self._reopen()
            else:  # the supervisor restarts it
                self._die()

    def _perform(self, effect: Effect) -> None:
        assert self.store is not None
        assert self.exchange is not None
        match effect:
            case Finished(answer, frames):
                answer(frames)
            case Store() | Load():
                self.store.submit(effect)
                self._want_work()
            case Submit():
                self.exchange.submit(effect)
            case Cancel(token):
                self.exchange.cancel(token)
            case Warn(kind):
                self._hear(kind == "record damaged")
            case Stopped():
                self.stopped = True
            case Note():
                pass
            case _:
                raise AssertionError(f"unexpected effect of Titanic: {effect!r}")

    def _hear(self, reports: int) -> None:
        """Count reports of damage."""
        self._ledger.reported += reports

    def _arm(self) -> None:
        assert self.engine is not None
        at = self.engine.deadline()
        if at is not None and (self._armed_at is None or at < self._armed_at):
            self._armed_at = at
            self._world.at(at, self._wake, self._life)

    def _wake(self, life: int) -> None:
        if life == self._life:
            self._armed_at = None
            self.feed(Wake())

    # --- the store --------------------------------------------------------------------------------
    def _want_work(self) -> None:
        if not self._working:
            self._working = True
            self._world.after(self._knobs.disk_s * self._rng.random(), self._work, self._life)

    def _work(self, life: int) -> None:
        """Run the store's pending work; its results arrive a little later, or never."""
        if life != self._life or not self.alive or self.store is None:
            return
        self._working = False
        try:
            done = self.store.work()
        except Killed:
            self._die()
            return
        self._ledger.uses(self.store.view().disk_bytes)
        if done:
            self._coming.append(done)
            self._world.after(self._knobs.disk_s * self._rng.random(), self._done, life, done)

    def _done(self, life: int, inputs: list[Input]) -> None:
        if life == self._life and any(inputs is done for done in self._coming):
            self._coming = [done for done in self._coming if done is not inputs]
            for event in inputs:
                self.feed(event)

    def _look(self, life: int) -> None:
        """Make the store check for segments to compact, at intervals."""
        if life == self._life and self.alive:
            self._want_work()
            self._world.after(_LOOK_EVERY_S, self._look, life)

    def _wall_us(self) -> int:
        return int((EPOCH_S + self._world.now) * 1e6)
