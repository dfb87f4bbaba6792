"""Prints what became of a request, and failed requests, as tables on stdout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rich.text import Text

from requite.cli.output import printable, say, stdout_console
from requite.journal.search import Findings, LogCover
from requite.story import words
from requite.story.failures import Failures
from requite.story.steps import Step, steps
from requite.story.telling import Story
from requite.story.vocabulary import Verdict

if TYPE_CHECKING:
    from rich.table import Table

_HEAD_SHOWN: Final = 60  # lines of a long story
_TAIL_SHOWN: Final = 40
_LOGS_SHOWN: Final = 20
_REASON_SIZE: Final = 200
_GOOD: Final = (Verdict.EXACTLY_ONE, Verdict.IN_FLIGHT)


def say_story(story: Story, findings: Findings) -> None:
    """Print the events of a request in words, its verdict, and what the journals lack."""
    console = stdout_console()
    service = f", service {printable(story.service)}" if story.service else ""
    console.print(Text(f"Request {story.request_id}{service}", "bold"), soft_wrap=True)
    console.print(_timeline([*steps(story.events)]))
    style = "bold green" if story.verdict in _GOOD and not story.contradictions else "bold red"
    console.print(Text(words.verdict(story.verdict), style))
    for sentence in story.sentences:
        console.print(Text(printable(sentence)))
    for hole in _holes(findings):
        console.print(Text(hole, "yellow"))


def _end_of(cover: LogCover) -> tuple[bool, datetime]:
    """Return the order of logs: those without events first."""
    return cover.last is not None, cover.last or datetime.min.replace(tzinfo=UTC)


def say_unknown(request_id: str, findings: Findings) -> None:
    """Print that no journal has a request, what the journals cover, and why it may be missing."""
    console = stdout_console()
    console.print(f"No event of request {request_id} is in these journals.")
    logs = sorted(findings.logs, key=_end_of, reverse=True)
    if not logs:
        console.print("They are empty: no process has written them yet.")
        return
    console.print(_covers(logs[:_LOGS_SHOWN]))
    if len(logs) > _LOGS_SHOWN:
        console.print(f"… and {words.counted(len(logs) - _LOGS_SHOWN, 'more log')}.")
    for hole in _holes(findings):
        console.print(Text(hole, "yellow"))
    console.print(
        "A request of the last 0.1 s is not written yet. Requests appear only in the journals of "
        "processes that keep one (--journal): name the folders of the other machines, too."
    )


def say_failures(found: Failures) -> None:
    """Print failed requests, newest first."""
    if found.since is None or found.until is None:
        say("The journals are empty: no process has written them yet.")
        return
    console = stdout_console()
    between = f"between {_time(found.since)} and {_time(found.until)} UTC"
    if not found.failures:
        console.print(f"No request failed {between}.")
        return
    table = _table("time (UTC)", "request", "service", "error", "verdict", "reason")
    for each in found.failures:
        table.add_row(
            _time(each.at),
            each.request_id or "–",
            Text(printable(each.service)),
            Text(printable(each.error), "red"),
            each.verdict.value if each.verdict else "–",
            Text(printable(each.reason)[:_REASON_SIZE]),
        )
    console.print(table)
    shown = words.counted(len(found.failures), "request")
    more = ", older ones left out: raise --lines" if found.has_more else ""
    console.print(f"{shown} failed {between}{more}.")


def _timeline(lines: Sequence[Step]) -> Table:
    table = _table("time (UTC)", "", "who", "what")
    left_out = len(lines) - _HEAD_SHOWN - _TAIL_SHOWN
    shown = lines if left_out <= 0 else [*lines[:_HEAD_SHOWN], *lines[-_TAIL_SHOWN:]]
    first = lines[0].at if lines else None
    before: datetime | None = None
    for number, line in enumerate(shown):
        if left_out > 0 and number == _HEAD_SHOWN:
            table.add_row("…", "", "", f"{words.counted(left_out, 'more event')}; --json has all")
        table.add_row(
            Text(_time(line.at, before), "dim"),
            Text(_since(line.at, first), "dim"),
            line.who,
            Text(printable(line.what)),
        )
        before = line.at or before
    return table


def _covers(logs: Sequence[LogCover]) -> Table:
    table = _table("log", "from (UTC)", "to", "files", "lost rows")
    for cover in logs:
        table.add_row(
            cover.log.log,
            _time(cover.first),
            _time(cover.last, cover.first),
            f"{cover.files:,}",
            f"{cover.dropped:,}" if cover.dropped else "",
        )
    return table


def _holes(findings: Findings) -> Iterator[str]:
    """Yield what the journals lack, which may be a part of the request."""
    for cover in findings.logs:
        name = cover.log.log
        if cover.dropped:
            yield f"{name} lost {words.counted(cover.dropped, 'row')}: its buffer was full."
        if cover.damaged:
            yield f"{words.counted(cover.damaged, 'place')} in {name} cannot be read."
        if cover.removed:
            files = words.counted(cover.removed, "file")
            yield f"{files} of {name} {'was' if cover.removed == 1 else 'were'} deleted meanwhile."
        if cover.lacks_beginning:
            yield f"{name} has no events before {_time(cover.first)}: older files were deleted."
        if cover.is_behind:
            yield f"{name} is a copy, with events up to {_time(cover.last)}."
    for name in findings.missing:
        yield f"{name} is missing: the log began there, and its files are gone."


def _table(*titles: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles[:-1]:
        table.add_column(title, no_wrap=True)
    table.add_column(titles[-1], overflow="fold")
    return table


def _time(at: datetime | None, before: datetime | None = None) -> str:
    """Return a time; without its date, if it is the date of `before`."""
    if at is None:
        return "–"
    is_same_day = before is not None and before.date() == at.date()
    return at.strftime("%H:%M:%S.%f" if is_same_day else "%Y-%m-%d %H:%M:%S.%f")[:-3]


def _since(at: datetime | None, first: datetime | None) -> str:
    """Return the time since the first event, with its sign."""
    if at is None or first is None or at == first:
        return ""
    seconds = (at - first).total_seconds()
    return f"{'+' if seconds >= 0 else '-'}{words.duration(abs(seconds))}"
