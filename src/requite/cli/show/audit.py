"""The demo's audit: the pipeline over the journals that its broker, workers and clients kept.

It knows nothing of the demo's own count. The two agree when every request that was made is in the
journal as accepted, and ended there exactly once.
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
from requite.testing.processes import Child, State

_AUDITOR: Final = "requite.cli.show.auditor"
_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "altair", "jinja2", "vl_convert")
_STEP_TAKES_S: Final = 300.0
_TOLD: Final = ("accepted", "exactly_one", "missing", "duplicate", "in_flight")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the audit came to. `counts` has the fields of `requite.spark.audit.Summary`."""

    counts: dict[str, int]
    events: int
    seconds: float
    report: Path

    def agrees_with(self, verdict: Verdict) -> bool:
        """Whether the journals tell the same as the demo's own count, and all of it."""
        count = dict(self.counts)
        settled = count.pop("accepted"), count.pop("exactly_one")
        return settled == (verdict.requests, verdict.answered) and not any(count.values())

    def record(self) -> dict[str, int]:
        """Return the counts that the demo's JSON shows."""
        return {name: self.counts[name] for name in _TOLD}


class Archive:
    """The folder in which the demo keeps its journal, and what is made of it.

    Without a folder to `keep` it is a temporary one, of which only the report is left in the end.
    Raises `ConfigurationError` where `keep` holds something already, or can not be made.
    """

    def __init__(self, keep: Path | None) -> None:
        self.is_kept = keep is not None
        self.folder = _new_folder(keep)
        self.journal = self.folder / "journal"
        self.lake = self.folder / "lake"
        self.report = self.folder / "report.html"
        self.scratch = self.folder / "spark"

    def clear(self) -> None:
        """Remove what is not to be kept; the folder too where nothing is left in it."""
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
        folder.mkdir(parents=True, exist_ok=True)
        is_new = not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"--keep: cannot use {folder}: {error.strerror}") from error
    if not is_new:
        raise ConfigurationError(f"--keep: {folder} is not empty; name a new folder")
    return folder


class Auditor:
    """The process of the audit. It is started before the show, so that Spark is ready after it.

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
        """Run the pipeline over what has been written, and show how far it is.

        Raises `ProcessFailed` when it fails, and `CancelledError` after SIGTERM.
        """
        return run(self._audit())

    async def _audit(self) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            told = await self._follow()
        finally:
            self._kill()  # whoever waits for a line from it is set free
        return Outcome(told["audit"], told["events"], told["seconds"], Path(told["report"]))

    def _kill(self) -> None:
        """Kill the process, and its Java: that stays if its folder goes while it starts."""
        pid = self._child.pid
        with suppress(OSError):  # where there is no /proc, Java ends when its input does
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        self._child.kill()

    async def _follow(self) -> dict[str, Any]:
        """Show each step; return what the last line tells."""
        self._child.write_line("go")
        with stderr_console().status("starting Spark") as status:
            while "audit" not in (told := await self._next()):
                _show(status, **told)
        return told

    async def _next(self) -> dict[str, Any]:
        line = await asyncio.to_thread(self._child.read_line, _STEP_TAKES_S)
        told: dict[str, Any] = json.loads(line)
        return told


def _show(status: Any, step: str, rows: int | None) -> None:
    """Show a step that begins, and note one that is done."""
    name = step.replace("_", " ")
    if rows is None:
        status.update(name)
    else:
        status.console.print(f"[dim]{name:<24}[/dim]{rows:>12,}")


def require_spark() -> None:
    """Raise `ConfigurationError` where something that the audit needs is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the audit of the demo needs {', '.join(missing)}: "
            "pip install 'requite[spark,report]', or leave it out with --no-audit"
        )
    from requite.spark.java import ensure_java

    ensure_java()
