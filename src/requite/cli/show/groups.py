"""The groups of a pool, whose workers the pool manager starts and stops."""

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
    """A group of one worker, which the pool manager starts and stops."""

    def __init__(self, key: str) -> None:
        self.key: Final = key
        self.name: Final = f"workers of {key}"
        self.state = State.ABSENT
        self.worker: Record | None = None

    @property
    def pid(self) -> int:
        """The process id of its worker, or 0."""
        return self.worker.pid if self.worker else 0

    def update(self, worker: Record | None) -> None:
        """Set the worker that runs now. The state stays KILLED until a successor runs."""
        if worker is None:
            self.worker = None
            if self.state is not State.KILLED:
                self.state = State.ABSENT
        elif self.worker is None or worker.worker_id != self.worker.worker_id or not self.pid:
            self.worker = worker
            self.state = State.RUNNING if worker.pid else State.STARTING

    def kill(self) -> None:
        """Kill its worker with SIGKILL."""
        self._signal(signal.SIGKILL, State.KILLED)

    def stop(self) -> None:
        """Freeze its worker with SIGSTOP."""
        self._signal(signal.SIGSTOP, State.STOPPED)

    def resume(self) -> None:
        """Continue its worker with SIGCONT."""
        self._signal(signal.SIGCONT, State.RUNNING)

    def _signal(self, number: signal.Signals, state: State) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        self.state = state


class Groups:
    """All groups, according to the records of the manager's driver in `folder`, its `state_dir`."""

    def __init__(self, keys: Sequence[str], folder: Path, label: str) -> None:
        self.all: Final = [Group(key) for key in keys]
        self._by_key: Final = {group.key: group for group in self.all}
        self._records: Final = Records(folder / label)

    def __getitem__(self, key: str) -> Group:
        return self._by_key[key]

    def refresh(self) -> None:
        """Read which workers run."""
        living = {record.key: record for record in self._records.living()}
        for group in self.all:
            group.update(living.get(group.key))

    def kill(self) -> None:
        """Kill all workers; the manager has ended already."""
        for record in self._records.living():
            if record.pid:
                with suppress(ProcessLookupError):
                    os.killpg(record.pid, signal.SIGKILL)
