"""The runner: from a journal to a lake, from bronze to gold, and the audit's verdict.

A run reads what the journal has had since the last one, finds out which days that touches, and
computes those days anew: replies that come late change the day on which their request was
accepted. How late that may be is the *look-back*: an hour, or the longest deadline in sight if that
is longer.

A run that dies is repeated by the next one. A run that finds nothing new changes nothing, except
that time goes on: what was in flight may be missing by now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from requite.errors import ConfigurationError
from requite.spark import audit, news, skew
from requite.spark.bronze import EVENTS, QUARANTINE
from requite.spark.delta.catalog import Catalog
from requite.spark.failures import again_if_busy, as_sentences
from requite.spark.ingest import Source, ingest, journal_source
from requite.spark.lake import Lake
from requite.spark.marker import FORMAT, claim
from requite.spark.migration import migrate
from requite.spark.news import News, Span
from requite.spark.refresh import OnProgress, Progress, Refresh
from requite.spark.report import require_charts, require_place
from requite.spark.skew import IN_STEP, Clocks
from requite.spark.vocabulary import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_BACK: Final = timedelta(hours=1)

_OPEN: Final = (Verdict.IN_FLIGHT.value, Verdict.MISSING.value)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run came to. `tables` counts the rows that it wrote, of whole days; `new_events` and
    `quarantined` the rows that it read for the first time. `clock_went_back` counts requests of
    which a duration came out negative, and is told as 0."""

    audit: audit.Summary
    as_of: datetime | None = None
    new_events: int = 0
    quarantined: int = 0
    clock_went_back: int = 0
    days: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    report: Path | None = None

    def record(self) -> dict[str, Any]:
        """Return everything for machines."""
        return {
            "audit": self.audit.record(),
            "ok": self.audit.ok,
            "complete": self.audit.complete,
            "faults": list(self.audit.faults),
            "as_of": self.as_of.isoformat() if self.as_of else None,
            "new_events": self.new_events,
            "quarantined": self.quarantined,
            "clock_went_back": self.clock_went_back,
            "days": self.days,
            "tables": self.tables,
            "seconds": round(self.seconds, 3),
            "report": str(self.report) if self.report else None,
        }


@again_if_busy
def run(
    spark: SparkSession,
    journal: str | PathLike[str],
    lake: str | PathLike[str],
    *,
    report: str | PathLike[str] | None = None,
    as_of: datetime | None = None,
    terms: audit.Terms = audit.USUAL,
    on_progress: OnProgress = lambda _progress: None,
    open_source: Callable[[str], Source] = journal_source,
) -> RunSummary:
    """Bring a lake up to date with a journal, judge, and write a report where one is asked for.

    Verdicts are as of `as_of`, or else of the newest event; `terms` tell when a missing outcome
    becomes a violation. `open_source` opens the journal.

    Raises `ConfigurationError` where there is no journal, or the lake is a folder that is not ours
    or belongs to another journal; for an `as_of` before 1970; and where no report can be written.
    `LakeBusy` if another run is at work, `LakeDamaged` if a file of the lake is not what was
    written, `LakeError` if one cannot be written, `SparkFailed` if Spark cannot go on. A run that a
    busy machine fails (`SparkBusy`) is tried again, twice.
    """
    began = time.monotonic()
    now = as_of and _checked(as_of)
    if report is not None:
        require_charts()
        require_place(report)
    told = _journal_folder(journal)
    source = open_source(told)  # refuses what is no journal, before anything is touched
    root = Path(lake).expanduser().resolve()
    is_old = claim(root, told) < FORMAT
    place = Lake(spark, Catalog(str(root)))
    if is_old:
        on_progress(Progress("migration"))
        with as_sentences():
            on_progress(Progress("migration", migrate(place)))
    with as_sentences(), place.catalog.running():
        follower = _Run(place, now, terms, on_progress)
        follower.follow(source)
        page = follower.report(report)
        follower.tidy()
        return follower.summary(time.monotonic() - began, page)


def _checked(as_of: datetime) -> datetime:
    """Return the instant, aware. No journal tells of earlier or later ones than these."""
    instant = as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
    if not news.EARLIEST <= instant <= news.LATEST:
        raise ConfigurationError(f"nothing can be judged as of {as_of}: give a time since 1970")
    return instant.astimezone(UTC)


def _journal_folder(journal: str | PathLike[str]) -> str:
    folder = Path(journal).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigurationError(f"there is no journal at {folder}: it is not a folder")
    return str(folder)


class _Run:
    """One run, and what it has found so far."""

    def __init__(
        self, lake: Lake, as_of: datetime | None, terms: audit.Terms, tell: OnProgress
    ) -> None:
        self._lake = lake
        self._as_of = as_of
        self._terms = terms
        self._tell = tell
        self._began = datetime.now(UTC)
        self._state = dict(lake.catalog.last.state)
        self._refresh: Refresh | None = None
        self._news = News()
        self._days: set[date] = set()
        self._damaged_before = self._state.get("damaged", 0)
        self._audit = audit.Summary()
        self._tidies = False

    def follow(self, source: Source) -> None:
        """Read, compute what that changes, judge, and note how far it has come."""
        self._tell(Progress("journal"))
        offset = self._state.get("offset")
        self._state["offset"], self._news = ingest(self._lake, source, offset)
        if self._state.pop("anew", False):
            self._news = news.find(self._lake)
        ended = self._news.ended.union(self._state.get("ended", ()))
        self._state |= {"ended": sorted(ended), "faults": source.faults(ended)}
        self._tell(Progress("journal", self._news.events))
        told = self._told()
        if told is not None:
            self._update(told)
        self._judge()
        self._end()

    def _end(self) -> None:
        """Make what the run has done count."""
        judged_at = self._state.get("as_of")
        self._lake.catalog.end(
            self._state,
            began_at=self._began,
            ended_at=datetime.now(UTC),
            as_of=datetime.fromisoformat(judged_at) if judged_at else None,
            new_events=self._news.events,
            accepted=self._audit.accepted,
            exactly_one=self._audit.exactly_one,
            violations=self._audit.violations,
            complete=self._audit.complete,
        )

    def tidy(self) -> None:
        """Merge small files; once a day, delete those that nobody needs any more."""
        catalog = self._lake.catalog
        catalog.merge()
        if self._tidies:
            catalog.vacuum()

    def _told(self) -> Span | None:
        """Return the time of which the journal has told, in all runs together."""
        ends = [(span.start.isoformat(), span.end.isoformat()) for span in self._news.spans]
        known = self._state.get("told")
        ends += [known] if known else []
        if not ends:
            return None
        instants = [(datetime.fromisoformat(a), datetime.fromisoformat(b)) for a, b in ends]
        return Span(min(a for a, _ in instants), max(b for _, b in instants))

    def _update(self, told: Span) -> None:
        look_back = self._look_back()
        known = news.known_days(self._lake) if self._news.spans else []
        clocks = self._read_clocks(look_back, known)
        if clocks.ahead_us:
            look_back += timedelta(microseconds=clocks.worst_us)
            told = self._told_by(clocks)
        now = self._as_of or told.end
        if self._news.spans:
            self._days = news.touched(self._news.spans, look_back, known)
        if clocks.record() != self._state.get("clocks", IN_STEP.record()):
            self._days = set(known)
            self._state["clocks"] = clocks.record()
        time_went_on = now.isoformat() != self._state.get("as_of")
        if time_went_on:
            self._days |= {date.fromisoformat(day) for day in self._state.get("open_days", ())}
        if self._days or time_went_on:  # a worker falls silent without telling anything
            refresh = Refresh(self._lake, now, told, look_back, self._tell, self._terms, clocks)
            self._compute(refresh)
        self._state |= {
            "told": [told.start.isoformat(), told.end.isoformat()],
            "look_back_s": look_back.total_seconds(),
            "as_of": now.isoformat(),
        }

    def _read_clocks(self, look_back: timedelta, days: list[date]) -> Clocks:
        """Find out how far the clocks of logs disagree, by all that was ever told of them."""
        known = skew.merge(skew.collected(self._lake.table("silver_clocks")))
        if not self._news.spans:
            return skew.settle(known)
        touched = news.touched(self._news.spans, look_back, days)
        near = (
            news.events_in(self._lake, news.reach(run, look_back)) for run in news.runs_of(touched)
        )
        found = (skew.collected(skew.bounds(each, self._news.events)) for each in near)
        told = skew.merge(chain(known, *found))
        if told != known:
            self._lake.replace("silver_clocks", skew.put(self._lake.spark, told))
        return skew.settle(told)

    def _told_by(self, clocks: Clocks) -> Span:
        """Return the time of which the journal has told, by a common clock."""
        events = skew.corrected(self._lake.table(EVENTS), clocks)
        row = _rows(events.agg(F.min("ts").alias("start"), F.max("ts").alias("end")))[0]
        return Span(row["start"], row["end"])

    def _compute(self, refresh: Refresh) -> None:
        for days in news.runs_of(self._days):
            refresh.days(days)
        refresh.small_tables()
        self._refresh = refresh

    def _look_back(self) -> timedelta:
        longest_s = max(
            LOOK_BACK.total_seconds(),
            self._terms.longest_deadline_s,
            self._state.get("look_back_s", 0.0),
            self._news.deadline_s + self._terms.grace_s,
        )
        return timedelta(seconds=longest_s)

    def _judge(self) -> None:
        """Sum the verdicts of all days up, and what the journal could not tell."""
        self._tell(Progress("audit"))
        counted = _rows(self._lake.table("audit_verdicts").groupBy("date", "verdict").count())
        dropped = self._state.get("dropped", 0) + self._news.dropped
        damaged = sum(file.rows for file in self._lake.catalog.files(QUARANTINE))
        contradicted = sum(file.rows for file in self._lake.catalog.files("audit_contradictions"))
        verdicts: dict[str, int] = {}
        for row in counted:
            verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + row["count"]
        self._audit = audit.summarise(
            verdicts,
            contradictions=contradicted,
            dropped_events=dropped,
            damaged=damaged,
            faults=self._state["faults"],
        )
        open_days = {row["date"].isoformat() for row in counted if row["verdict"] in _OPEN}
        today = self._began.date().isoformat()
        self._tidies = self._state.get("tidied", today) != today
        self._state |= {"open_days": sorted(open_days), "tidied": today}
        self._state |= {"damaged": damaged, "dropped": dropped}
        self._tell(Progress("audit", sum(verdicts.values())))

    def report(self, path: str | PathLike[str] | None) -> Path | None:
        """Write the report, if one is wanted."""
        if path is None:
            return None
        from requite.spark.report import write  # the charts are an extra

        self._tell(Progress("report"))
        written = write(self._lake.spark, self._lake.root, path)
        self._tell(Progress("report", 1))
        return written

    def summary(self, seconds: float, report: Path | None) -> RunSummary:
        """Return what it came to."""
        refresh = self._refresh
        judged_at = self._state.get("as_of")
        return RunSummary(
            audit=self._audit,
            as_of=datetime.fromisoformat(judged_at) if judged_at else None,
            new_events=self._news.events,
            quarantined=self._audit.damaged - self._damaged_before,
            clock_went_back=refresh.clock_went_back if refresh else 0,
            days=len(self._days),
            tables=dict(refresh.written) if refresh else {},
            seconds=seconds,
            report=report,
        )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
