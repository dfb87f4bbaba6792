"""The groups of a pool on stage: their workers are started and stopped by the pool's manager."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from requite.pool.drivers.records import Record, Records
from requite.testing.processes import State


class Group:
    """One group, as the screen shows it."""

    def __init__(self, key: str) -> None:
        self.key: Final = key
        self.name: Final = f"workers of {key}"
        self.state = State.ABSENT
        self.worker: Record | None = None

    @property
    def pid(self) -> int:
        """The process of its worker; 0 without one."""
        return self.worker.pid if self.worker else 0

    def see(self, worker: Record | None) -> None:
        """Take note of which worker there is. One that was killed stays so until its successor is
        there."""
        if worker is None:
            self.worker = None
            if self.state is not State.KILLED:
                self.state = State.ABSENT
        elif self.worker is None or worker.worker_id != self.worker.worker_id or not self.pid:
            self.worker = worker
            self.state = State.RUNNING if worker.pid else State.STARTING

    def kill(self) -> None:
        """SIGKILL its worker."""
        self._signal(signal.SIGKILL, State.KILLED)

    def stop(self) -> None:
        """SIGSTOP its worker."""
        self._signal(signal.SIGSTOP, State.STOPPED)

    def resume(self) -> None:
        """SIGCONT it."""
        self._signal(signal.SIGCONT, State.RUNNING)

    def _signal(self, number: signal.Signals, state: State) -> None:
        with suppress(ProcessLookupError):  # it may have ended a moment ago
            os.killpg(self.pid, number)
        self.state = state


class Groups:
    """All groups: `look` sees what the driver of the manager has written down about its workers.

    `folder` is its `state_dir`.
    """

    def __init__(self, keys: Sequence[str], folder: Path, label: str) -> None:
        self.all: Final = [Group(key) for key in keys]
        self._by_key: Final = {group.key: group for group in self.all}
        self._records: Final = Records(folder / label)

    def __getitem__(self, key: str) -> Group:
        return self._by_key[key]

    def look(self) -> None:
        """See which workers there are."""
        living = {record.key: record for record in self._records.living()}
        for group in self.all:
            group.see(living.get(group.key))

    def end(self) -> None:
        """Kill all workers; nobody starts others any more."""
        for record in self._records.living():
            if record.pid:
                with suppress(ProcessLookupError):
                    os.killpg(record.pid, signal.SIGKILL)
