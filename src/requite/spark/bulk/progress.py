"""Progress of a running bulk call.

    with requite.spark.Progress() as progress:
        requite.spark.call(orders, url, ..., progress=progress).write.parquet("priced")

    2 tasks at work, 6 ended: 41,300 rows, 1,377 rows/s (OK 41,288, CallTimeout 12)

Each task writes its counts to a small file in a folder, and the driver adds them up. The counts are
rows that tasks have yielded; the total is unknown until Spark has read all input. On several
machines, the folder must be shared by all of them.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from time import monotonic
from typing import Any, Final, NamedTuple, Self, TextIO
from uuid import uuid4

from requite.errors import ConfigurationError

_log: Final = logging.getLogger("requite.spark")

_REPORT_EVERY_S: Final = 0.5  # per task; each report is one small file


class Report(NamedTuple):
    """The rows that one task has yielded so far, by status."""

    statuses: dict[str, int]
    ended: bool = False

    @property
    def rows(self) -> int:
        """Rows of any status."""
        return sum(self.statuses.values())


class Tally:
    """Counts the rows of one task attempt, and reports them to a folder at most twice a second.

    If a report cannot be written, the error is logged and the task writes no further reports.
    """

    def __init__(self, folder: str, stage: int, partition: int, attempt: int) -> None:
        self._path: Path | None = Path(folder) / f"{stage}-{partition}-{attempt}.json"
        self._statuses: Counter[str] = Counter()
        self._next_at = 0.0

    def add(self, statuses: dict[str, int], now: float) -> None:
        """Count yielded rows."""
        self._statuses.update(statuses)
        if now >= self._next_at:
            self._next_at = now + _REPORT_EVERY_S
            self._write(ended=False)

    def end(self) -> None:
        """Write the last report: the task has yielded all rows."""
        self._write(ended=True)

    def _write(self, *, ended: bool) -> None:
        if self._path is None:
            return
        draft = self._path.with_suffix(".new")
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps({"statuses": self._statuses, "ended": ended}))
            draft.replace(self._path)
        except OSError as error:
            _log.warning("cannot report progress to %s: %s", self._path.parent, error)
            self._path = None


class Count(NamedTuple):
    """Progress of a job: rows by status, and the number of running and ended tasks."""

    statuses: dict[str, int]
    tasks_at_work: int
    tasks_ended: int

    @property
    def rows(self) -> int:
        """Rows of any status."""
        return sum(self.statuses.values())


class Progress:
    """Writes the progress of a job to `out` (standard error) every `every` seconds.

    `folder`: a path that driver and tasks share; each `Progress` creates a subfolder for reports,
    and removes it at the end. None: a temporary folder, which works only for tasks on this machine.
    Use one `Progress` per job. Killed tasks count as being at work.
    """

    def __init__(
        self, folder: str | None = None, *, every: float = 2.0, out: TextIO | None = None
    ) -> None:
        if not every > 0:
            raise ConfigurationError(f"every must be a positive number of seconds, not {every!r}")
        self._is_shared = folder is not None
        self.folder = str(Path(folder or gettempdir()) / f"requite-progress-{uuid4()}")
        Path(self.folder).mkdir(parents=True)
        self._every_s = every
        self._out = sys.stderr if out is None else out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="requite-progress", daemon=True)
        self._began_at = monotonic()
        self._last = (self._began_at, 0)
        self._has_written = False

    def check(self, master: str) -> None:
        """Raise `ConfigurationError` if tasks run on machines that cannot write to the folder."""
        if not self._is_shared and not master.startswith("local"):
            raise ConfigurationError(
                "tasks on other machines cannot report progress to a local folder: pass a folder"
                " that all machines share (Progress('/shared/folder'))"
            )

    def count(self) -> Count:
        """Return the progress of the job, counting the farthest attempt of each task."""
        statuses: Counter[str] = Counter()
        reports = list(self._reports())
        for report in reports:
            statuses.update(report.statuses)
        ended = sum(report.ended for report in reports)
        return Count(dict(statuses), len(reports) - ended, ended)

    def look(self) -> Count:
        """Return `count()`. Deprecated."""
        warnings.warn(
            "Progress.look is deprecated; use Progress.count", DeprecationWarning, stacklevel=2
        )
        return self.count()

    def line(self) -> str:
        """Return the progress, and the rate since the last call, as a line of text."""
        now, count = monotonic(), self.count()
        since, rows = self._last
        self._last = (now, count.rows)
        return _words(count, (count.rows - rows) / max(now - since, 1e-9))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        count = self.count()
        mean = count.rows / max(monotonic() - self._began_at, 1e-9)
        self._write(_words(count, mean))
        rmtree(self.folder, ignore_errors=True)

    def _show(self) -> None:
        while not self._ended.wait(self._every_s):
            self._write(self.line())

    def _write(self, line: str) -> None:
        """Write a line; on a terminal, replace the line before."""
        up = "\x1b[1A\x1b[2K" if self._has_written and self._out.isatty() else ""
        self._out.write(f"{up}{line}\n")
        self._out.flush()
        self._has_written = True

    def _reports(self) -> Iterator[Report]:
        by_task: dict[str, Report] = {}
        for path in Path(self.folder).glob("*-*-*.json"):
            task = path.stem.rpartition("-")[0]
            report = Report(**_read(path))
            if task not in by_task or by_task[task].rows < report.rows:
                by_task[task] = report
        yield from by_task.values()


def _read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def _words(count: Count, rows_per_s: float) -> str:
    tasks = f"{count.tasks_at_work:,} tasks at work, {count.tasks_ended:,} ended"
    if not count.tasks_at_work and not count.tasks_ended:
        return "no task has reported yet"
    by_status = sorted(count.statuses.items(), key=lambda item: (item[0] != "OK", -item[1]))
    statuses = ", ".join(f"{status} {rows:,}" for status, rows in by_status)
    return f"{tasks}: {count.rows:,} rows, {rows_per_s:,.0f} rows/s ({statuses})"
