"""A log of replies on a simulated disk: `requite.dedup.store` in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from requite.dedup.inputs import Discard, Found
from requite.dedup.store import PURPOSE, read_log
from requite.engine import Load, Loaded, LoadFailed, Store, Stored
from requite.errors import StorageError
from requite.sim.dedup.disk import SimDisk
from requite.storage import Log, LogSettings, Position

if TYPE_CHECKING:
    from requite.sim.kernel.process import Process


class SimStore:
    """Writes pending records as a batch, and syncs the batch later; `tell` gets the inputs.

    Each step takes up to `slow_s`. Between the two, a kill leaves the written records, and a power
    cut any part of them.
    """

    def __init__(
        self,
        process: Process,
        disk: SimDisk,
        segment_size: int,
        slow_s: float,
        tell: Callable[[Any], None],
    ) -> None:
        self._process = process
        self._slow_s = slow_s
        self._tell = tell
        self._log = Log(disk, PURPOSE, LogSettings(segment_size_bytes=segment_size))
        self.found: list[Found] = read_log(self._log)
        self._waiting: list[Store] = []
        self._discards: list[int] = []
        self._busy = False

    def perform(self, effect: Store | Load | Discard) -> None:
        """Perform an effect of the engine, soon."""
        if isinstance(effect, Load):
            self._later(self._load, effect)
            return
        if isinstance(effect, Store):
            self._waiting.append(effect)
        else:
            self._discards.append(effect.segment)
        if not self._busy:
            self._busy = True
            self._later(self._write)

    def close(self) -> None:
        """Seal the log, as on an orderly exit."""
        self._log.close()

    def _later(self, act: Callable[..., None], *args: Any) -> None:
        self._process.later(self._slow_s * self._process.rng.random(), act, *args)

    def _load(self, load: Load) -> None:
        try:
            self._tell(Loaded(load.ticket, self._log.read_at(load.position)))
        except StorageError as error:
            self._tell(LoadFailed(load.ticket, error))

    def _write(self) -> None:
        taken, self._waiting = self._waiting, []
        discards, self._discards = self._discards, []
        positions = self._log.append([record for store in taken for record in store.records])
        self._later(self._sync, taken, positions, discards)

    def _sync(self, taken: list[Store], positions: list[Position], discards: list[int]) -> None:
        self._log.sync()
        for segment in discards:
            self._log.remove(segment)
        places = iter(positions)
        for store in taken:
            self._tell(Stored(store.ticket, [next(places) for _ in store.records]))
        self._busy = bool(self._waiting or self._discards)
        if self._busy:
            self._later(self._write)
