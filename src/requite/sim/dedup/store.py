"""A log of replies on a simulated disk: `requite.dedup.store` in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from requite.dedup.inputs import Discard
from requite.dedup.store import PURPOSE, ReplyLog
from requite.engine import Load, Store
from requite.sim.kernel.disk import Killed, SimDisk, SimLog
from requite.storage import LogSettings

if TYPE_CHECKING:
    from requite.sim.dedup.knobs import DedupKnobs
    from requite.sim.kernel.process import Process

_OPERATIONS: Final = 3  # a process dies before the write of a batch, its sync, or what follows


class SimStore(ReplyLog):
    """Performs the effects that wait as a batch, which takes up to twice the time of a disk
    access; `tell` gets the results. A death meanwhile leaves a part of the batch on the disk."""

    def __init__(
        self, process: Process, disk: SimDisk, knobs: DedupKnobs, tell: Callable[..., None]
    ) -> None:
        self._process = process
        self._disk = disk
        self._slow_s = knobs.disk_s
        self._tell = tell
        self._work: Callable[[], list[Any]] | None = None
        settings = LogSettings(segment_size_bytes=knobs.segment_size)
        super().__init__(SimLog(self._disk, PURPOSE, settings))

    def perform(self, effect: Store | Load | Discard) -> None:
        """Perform an effect of the engine, soon."""
        self.add(effect)
        if self._work is None:
            self._begin()

    def _begin(self) -> None:
        self._work = self.take()
        rng = self._process.rng
        self._process.later(self._slow_s * (rng.random() + rng.random()), self._done)

    def _done(self) -> None:
        assert self._work is not None
        inputs = self._work()
        self._work = None
        self._tell(*inputs)
        if not self.is_idle and self._work is None:
            self._begin()

    def die(self) -> None:
        """Die with the process: perform a part of the batch."""
        if self._work is not None:
            rng = self._process.rng
            self._disk.stop_at = self._disk.operations + rng.randrange(_OPERATIONS)
            try:
                self._work()
            except Killed:
                return
