"""The demo's audit: the pipeline over the journals of its broker, workers and clients.

It does not use the demo's own figures. The two agree when the journal has every request as accepted
and as ended exactly once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from requite.cli.output import stderr_console
from requite.cli.show.replies import Verdict
from requite.errors import ConfigurationError
from requite.shell.aio import run
from requite.storage.private import make_folder
from requite.testing.processes import Child, State

_AUDITOR: Final = "requite.cli.show.auditor"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "altair", "jinja2", "vl_convert")
_STEP_TAKES_S: Final = 300.0
_SHOWN: Final = ("accepted", "exactly_one", "missing", "duplicate", "in_flight")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the audit. `counts` has the fields of `requite.spark.audit.Summary`."""

    counts: dict[str, int]
    events: int
    seconds: float
    report: Path

    def agrees_with(self, verdict: Verdict) -> bool:
        """Return whether the journals agree with the demo's own figures in all respects."""
        count = dict(self.counts)
        settled = count.pop("accepted"), count.pop("exactly_one")
        return settled == (verdict.requests, verdict.answered) and not any(count.values())

    def record(self) -> dict[str, int]:
        """Return the counts that the demo's JSON shows."""
        return {name: self.counts[name] for name in _SHOWN}


class Archive:
    """The folder for the journals, the lake and the report of a demo.

    If `keep` is None, it is a temporary folder, and `clear` leaves only the report.
    Raises `ConfigurationError` if `keep` is not empty or cannot be created.
    """

    def __init__(self, keep: Path | None) -> None:
        self.is_kept = keep is not None
        self.folder = _new_folder(keep)
        self.journal = self.folder / "journal"
        self.lake = self.folder / "lake"
        self.report = self.folder / "report.html"
        self.scratch = self.folder / "spark"

    def clear(self) -> None:
        """Remove all files that are not kept, and the folder if it is empty."""
        kept = {self.journal, self.lake} if self.is_kept else set()
        for folder in {self.journal, self.lake, self.scratch} - kept:
            shutil.rmtree(folder, ignore_errors=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _new_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="requite-demo-"))
    folder = keep.expanduser().resolve()
    try:
        make_folder(folder)
        is_new = not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"--keep: cannot use {folder}: {error.strerror}") from error
    if not is_new:
        raise ConfigurationError(f"--keep: {folder} is not empty; name a new folder")
    return folder


class Auditor:
    """The process of the audit. It starts before the demo, so that Spark is ready after it.

    Leaving the `with` block ends it.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __enter__(self) -> Auditor:
        archive = self._archive
        places = (archive.journal, archive.lake, archive.report, archive.scratch)
        self._child = Child("the audit", ["-m", _AUDITOR, *map(str, places)], has_stdin=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child.state is not State.KILLED:
            self._kill()

    def audit(self) -> Outcome:
        """Run the pipeline over the journals, and show its progress.

        Raises `ProcessFailed` when it fails, and `CancelledError` after SIGTERM.
        """
        return run(self._audit())

    async def _audit(self) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            record = await self._follow()
        finally:
            self._kill()  # ends a thread that waits for a line
        return Outcome(record["audit"], record["events"], record["seconds"], Path(record["report"]))

    def _kill(self) -> None:
        """Kill the process and its Java, which might outlive its folder if it is starting."""
        pid = self._child.pid
        with suppress(OSError):  # without /proc: Java ends at the end of its stdin
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        self._child.kill()

    async def _follow(self) -> dict[str, Any]:
        """Show each step; return the record of the last line."""
        self._child.write_line("go")
        with stderr_console().status("starting Spark") as status:
            while "audit" not in (record := await self._next()):
                _show(status, **record)
        return record

    async def _next(self) -> dict[str, Any]:
        line = await asyncio.to_thread(self._child.read_line, _STEP_TAKES_S)
        record: dict[str, Any] = json.loads(line)
        return record


def _show(status: Any, step: str, rows: int | None) -> None:
    """Show a step that begins, or print one that is done."""
    name = step.replace("_", " ")
    if rows is None:
        status.update(name)
    else:
        status.console.print(f"[dim]{name:<24}[/dim]{rows:>12,}")


def require_spark() -> None:
    """Raise `ConfigurationError` if a package that the audit needs is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the audit of the demo requires {', '.join(missing)}: pip install"
            " 'requite[spark,report]', or skip it with --no-audit"
        )
    from requite.spark.java import ensure_java

    ensure_java()
