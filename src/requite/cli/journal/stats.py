"""`requite journal stats`: summarize each log of a journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from requite.cli.exit_codes import ExitCode
from requite.cli.journal.options import Directory, end
from requite.cli.options import QUIET, JsonFlag, Logging
from requite.cli.output import complain, say, say_json, stdout_console
from requite.journal.meaning import KIND_NAMES, ROLE_NAMES
from requite.journal.stats import LogStats
from requite.journal.stats import stats as stats_of
from requite.story.words import size

if TYPE_CHECKING:
    from rich.table import Table

# Columns that are left out if they are 0 for all logs.
_RARE: Final[dict[str, Callable[[LogStats], int]]] = {
    "segments": lambda log: log.segments if log.segments > 1 else 0,
    "dropped": lambda log: log.dropped,
    "missing": lambda log: log.missing,
    "damage": lambda log: log.flaws.total(),
}
_INCOMPLETE: Final = {
    "incomplete": "incomplete: the end of the log was not written, or is missing",
    "missing": "missing: the log began here, and its files are not there",
}


def stats(directory: Directory, /, *, as_json: JsonFlag = False, logging: Logging = QUIET) -> int:
    """Summarize each log of a journal.

    Per log: its time span (UTC), events, size on disk and state. An `open` log is
    being written, or its writer was killed. An `incomplete` log has no end record.
    A `torn` log ends within a write. A `cut` log has lost the end of its last file.
    A `missing` log began here, but its files are not there. A second table counts
    events by kind and by role of the writer.

    Further columns, if not 0: rows that were dropped because the disk refused them;
    missing events, detected by their numbers; damaged places, or places written by
    a newer version.

    With --json one object: logs, each with log, role, name, pid, version, started,
    first, last, events by kind, bytes, segments, dropped, missing, flaws, state.

    Exit code 1: some data could not be decoded, or a log is incomplete or missing.

      $ requite journal stats journal
    """
    logging.start()
    logs = list(stats_of(directory))
    if as_json:
        say_json({"logs": [log.record() for log in logs]})
    elif logs:
        console = stdout_console()
        console.print(_logs(logs))
        console.print(_kinds(logs))
    else:
        say("no logs: no process has written this journal yet")
    return max(end(sum((log.flaws for log in logs), Counter())), _end_incomplete(logs))


def _end_incomplete(logs: Sequence[LogStats]) -> ExitCode:
    """Print which logs are incomplete or missing; return the exit code."""
    ended = ExitCode.OK
    for state, why in _INCOMPLETE.items():
        names = [log.log.log for log in logs if log.state == state]
        if names:
            complain(f"{why}: {', '.join(names)}")
            ended = ExitCode.FAILED
    return ended


def _logs(logs: Sequence[LogStats]) -> Table:
    rare = {title: of for title, of in _RARE.items() if any(map(of, logs))}
    table = _table("log", "from", "to", "events", "size", "state", *rare)
    for log in sorted(logs, key=lambda log: (log.log.role, log.first_us or 0)):
        table.add_row(
            log.log.log,
            _time(log.first),
            _time(log.last, since=log.first),
            f"{log.events.total():,}",
            size(log.bytes),
            log.state,
            *(f"{of(log):,}" if of(log) else "" for of in rare.values()),
        )
    return table


def _kinds(logs: Sequence[LogStats]) -> Table:
    roles = sorted({log.log.role for log in logs})
    by_role = {
        role: sum((log.events for log in logs if log.log.role is role), Counter()) for role in roles
    }
    table = _table("kind", *(ROLE_NAMES[role] for role in roles))
    every = sum(by_role.values(), Counter())
    unknown = sorted(every.keys() - set(KIND_NAMES.values()))
    for kind in (*KIND_NAMES.values(), *unknown):
        if every[kind]:
            counts = (by_role[role][kind] for role in roles)
            table.add_row(kind, *(f"{count:,}" if count else "" for count in counts))
    return table


def _table(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(titles[0], no_wrap=True)
    for title in titles[1:]:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _time(time: datetime | None, since: datetime | None = None) -> str:
    """Return a time; without its date, if it is the date of `since`."""
    if time is None:
        return "–"
    is_same_day = since is not None and since.date() == time.date()
    return time.strftime("%H:%M:%S" if is_same_day else "%Y-%m-%d %H:%M:%S")
