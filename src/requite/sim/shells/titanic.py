"""The store of a real Titanic on a simulated disk, without a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Input, Load
from requite.engine import Store as StoreEffect
from requite.shell import clock
from requite.sim.kernel.disk import SimLog
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import PURPOSE, Store

if TYPE_CHECKING:
    from requite.sim.kernel.program import Program

_IDLE_S: Final = 1.0  # as in `requite.titanic.store`
_DISK_S_MAX: Final = 0.01


class SimStore(Store):
    """A store whose work runs after a random delay, in place of its thread."""

    program: Program
    _done: Callable[[list[Input]], object]
    _is_closed = False
    _is_scheduled = False

    def start(self, done: Callable[[list[Input]], object]) -> None:
        """Start; `done` gets the results."""
        self._done = done
        self._idle()

    def submit(self, effect: StoreEffect | Load) -> None:
        """Submit an effect of the engine."""
        super().submit(effect)
        self._schedule()

    def close(self) -> None:
        """Execute the submitted effects, and close the log."""
        if not self._is_closed:
            self._is_closed = True
            self._work()
            self._log.close()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.program.in_thread(_DISK_S_MAX * self.program.rng.random(), self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if not self._is_closed:
            self._work()
            if self._is_compacting:
                self._schedule()

    def _idle(self) -> None:
        """Check for segments to compact, once a second."""
        if not self._is_closed:
            self._schedule()
            self.program.in_thread(_IDLE_S, self._idle)

    def _work(self) -> None:
        inputs = self.work()
        if inputs:
            self._done(inputs)


@dataclass(frozen=True, slots=True)
class SimDiskSettings(TitanicSettings):
    """Settings of a Titanic whose store is on the disk of a simulated machine."""

    machine: Any = None  # the program; it has a `disk`

    def open(self, log_id: bytes | None = None) -> Store:
        """Open the store; with `log_id`, only if it has this log. Raises `StorageError`."""
        log = SimLog(self.machine.disk, PURPOSE, self.store.log_settings, log_id)
        store = SimStore(log, self.store, lambda: int(clock.wall() * 1e6))
        store.program = self.machine
        return store
