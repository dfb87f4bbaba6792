"""The store of a real Titanic on a simulated disk, without a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Input, Load
from requite.engine import Store as StoreEffect
from requite.shell import clock
from requite.sim.kernel.disk import SimLog
from requite.storage import Log, LogReader
from requite.titanic.settings import TitanicSettings
from requite.titanic.store import PURPOSE, Store, StoreSettings

if TYPE_CHECKING:
    from requite.sim.kernel.program import Program

_IDLE_S: Final = 1.0  # as in `requite.titanic.store`
_DISK_S_MAX: Final = 0.01


class SimStore(Store):
    """A store whose work runs after a random delay, in place of its thread; the results arrive
    after another one. Each delay is up to `disk_s`."""

    program: Program
    disk_s = _DISK_S_MAX
    _done: Callable[[list[Input]], object]
    _is_closed = False
    _is_scheduled = False

    def __init__(self, log: Log, settings: StoreSettings, now_us: Callable[[], int]) -> None:
        super().__init__(log, settings, now_us)
        self._results: list[list[Input]] = []  # in the order of their commits

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
            while self._results:
                self._report()
            self._log.close()

    @property
    def disk_bytes(self) -> int:
        """Bytes on the disk, as in `view`."""
        return self._log.disk_bytes

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.program.in_thread(self._delay_s(), self._turn)

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
            self._results.append(inputs)
            self.program.in_thread(self._delay_s(), self._report)

    def _report(self) -> None:
        """Pass on the oldest results."""
        if self._results:  # else `close` has passed them on
            self._done(self._results.pop(0))

    def _delay_s(self) -> float:
        return self.disk_s * self.program.rng.random()


@dataclass(frozen=True, slots=True)
class SimDiskSettings(TitanicSettings):
    """Settings of a Titanic whose store is on the disk of a simulated machine."""

    machine: Any = None  # the program; it has a `disk`
    open_store: Callable[..., SimStore] = SimStore.on

    @property
    def is_kept(self) -> bool:
        """See `TitanicSettings.is_kept`."""
        return True

    def log_ids(self) -> set[bytes]:
        """See `TitanicSettings.log_ids`."""
        return {segment.log_id for segment in LogReader.on(self.machine.disk).segments()}

    def open(self, log_id: bytes | None = None) -> SimStore:
        """Open the store; with `log_id`, only if it has this log. Raises `StorageError`."""
        log = SimLog(self.machine.disk, PURPOSE, self.store.log_settings, log_id)
        store = self.open_store(log, self.store, lambda: int(clock.wall() * 1e6))
        store.program = self.machine
        return store
