"""The runner: from a journal to a lake, from bronze to gold, and the audit's verdict.

A run reads the new rows of the journal and finds the requests that they affect, both new ones and
those of earlier runs. It recomputes each of these requests from all of its events
(`requite.spark.request_events`), and replaces the earlier result. The result does not depend on the
number of runs in which a journal is read. If very many of the requests are known from earlier runs,
the run recomputes all requests of their days.

With ids that brokers have made up (MDP 0.1 and 0.2), requests depend on each other. The run then
recomputes each day that the new rows may affect, within the *look-back*: an hour, or the longest
deadline of a request if that is longer.

The next run repeats a crashed one. A run without new rows changes only verdicts that depend on the
time: a request that was in flight may be missing by now.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from requite.errors import ConfigurationError
from requite.spark import audit, decisions, new_rows, schemas, skew
from requite.spark.bronze import EVENTS, IDS, QUARANTINE
from requite.spark.clock import common, days_of, instant_us, joined, period_of, periods_of_days
from requite.spark.delta.catalog import Catalog
from requite.spark.delta.table import File
from requite.spark.failures import again_if_busy, as_sentences
from requite.spark.ingest import ReadState, Source, ingest, journal_source
from requite.spark.lake import Lake
from requite.spark.marker import FORMAT, claim
from requite.spark.migration import migrate
from requite.spark.new_rows import NewRows, Span
from requite.spark.refresh import ACCESS, OnProgress, Progress, Refresh
from requite.spark.report import require_charts, require_place
from requite.spark.request_events import (
    KNOWN_MAX,
    NOBODY,
    Known,
    id_ranges,
    known,
    named,
    of_days,
    of_requests,
)
from requite.spark.skew import IN_STEP, Clocks
from requite.storage.place import is_store, place_of
from requite.story.rules import USUAL, Terms
from requite.story.vocabulary import Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_BACK: Final = timedelta(hours=1)

_ANEW: Final = {"anew": True, "verdicts": None, "clocks": IN_STEP.record()}
_OPEN: Final = (Verdict.IN_FLIGHT.value, Verdict.MISSING.value)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Result of a run.

    `tables`: rows written, by table; `new_events` and `quarantined`: rows read for the first time;
    `clock_went_back`: requests with a negative duration, which counts as 0.
    """

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
        """Return the result as a JSON-ready dict."""
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
    terms: Terms = USUAL,
    on_progress: OnProgress = lambda _progress: None,
    open_source: Callable[[str], Source] = journal_source,
) -> RunSummary:
    """Ingest the new rows of a journal into a lake, audit it, and optionally write a report.

    Verdicts are as of `as_of`, or else of the newest event; `terms` define when a missing outcome
    becomes a violation. `open_source` opens the journal.

    Raises `ConfigurationError` if there is no journal, if the lake's folder contains other files or
    the lake of another journal, for an `as_of` before 1970, and if the report cannot be written;
    `LakeBusy` if another run is in progress, `LakeDamaged` if a file of the lake has changed,
    `LakeError` if one cannot be written, `SparkFailed` if Spark fails. A run that fails because the
    machine is too busy (`SparkBusy`) is repeated up to twice.
    """
    began = time.monotonic()
    now = as_of and _checked(as_of)
    if report is not None:
        require_charts()
        require_place(report)
    folder = _journal_folder(journal)
    source = open_source(folder)  # raises before any change if it is no journal
    root = place_of(lake, "a lake is stored in")
    is_old = claim(root, folder) < FORMAT
    place = Lake(spark, Catalog(root))
    if is_old:
        on_progress(Progress("migration"))
        with as_sentences():
            on_progress(Progress("migration", migrate(place)))
    with as_sentences(), place.catalog.running():
        current = _Run(place, now, terms, on_progress)
        current.follow(source)
        page = current.report(report)
        current.tidy()
        return current.summary(time.monotonic() - began, page)


def _checked(as_of: datetime) -> datetime:
    """Return an aware instant; raise `ConfigurationError` if no journal can contain it."""
    instant = as_of if as_of.tzinfo else as_of.replace(tzinfo=UTC)
    if not new_rows.EARLIEST <= instant <= new_rows.LATEST:
        raise ConfigurationError(f"as_of must be a time since 1970, not {as_of}")
    return instant.astimezone(UTC)


def _journal_folder(journal: str | PathLike[str]) -> str:
    place = place_of(journal, "a journal is read from")
    if not is_store(place) and not Path(place).is_dir():
        raise ConfigurationError(f"there is no journal at {place}: it is not a folder")
    return place


class _Run:
    """One run, and its findings so far."""

    def __init__(
        self, lake: Lake, as_of: datetime | None, terms: Terms, on_progress: OnProgress
    ) -> None:
        self._lake = lake
        self._as_of = as_of
        self._terms = terms
        self._on_progress = on_progress
        self._began = datetime.now(UTC)
        self._state = dict(lake.catalog.last.state)
        self._refresh: Refresh | None = None
        self._new = NewRows()
        self._fresh: list[File] = []  # of bronze
        self._known_ranges: list[File] = []  # of the table `bronze_ids`, of earlier runs
        self._days: set[date] = set()
        self._damaged_before = self._state.get("damaged", 0)
        self._audit = audit.Summary()
        self._vacuums = False

    def follow(self, source: Source) -> None:
        """Ingest the journal, update the tables, audit, and record the position."""
        self._on_progress(Progress("journal"))
        self._read(source)
        ended = self._new.ended.union(self._state.get("ended", ()))
        self._state |= {"ended": sorted(ended), "faults": source.faults(ended)}
        self._record_heard(set(source.behind()) - ended)
        self._on_progress(Progress("journal", self._new.events))
        covered = self._covered()
        if covered is not None:
            self._update(covered)
        self._judge()
        self._end()

    def _record_heard(self, behind: set[str]) -> None:
        """Record the instants up to which incomplete logs were read."""
        new_heard_us, before = self._new.heard_us, self._state.get("heard_us", {})
        heard = {log: max(new_heard_us.get(log, 0), before.get(log, 0)) for log in behind}
        self._state["heard_us"] = {log: us for log, us in sorted(heard.items()) if us}
        self._heard_more = self._state["heard_us"] != before

    def _read(self, source: Source) -> None:
        """Write new events to bronze, and record its new files."""
        catalog, state = self._lake.catalog, self._state
        before = {name: set(catalog.files(name)) for name in (EVENTS, IDS)}
        read_state, self._new = ingest(self._lake, source, ReadState.of(state))
        state |= read_state.record()
        tables = schemas.lake_digest()
        if before[EVENTS] and state.get("tables") != tables:  # another version's lake
            catalog.clear()
            self._lake.replace(IDS, id_ranges(self._lake.table(EVENTS)))
            state |= _ANEW
        state["tables"] = tables
        self._fresh = [file for file in catalog.files(EVENTS) if file not in before[EVENTS]]
        if state.pop("anew", False):
            read = self._new
            self._new = new_rows.find(self._lake)._replace(heard_us=read.heard_us)
            if (
                state.pop("dropped", None) is not None
            ):  # the lake has complete runs; count new events only
                self._new = self._new._replace(events=read.events)
        else:
            self._known_ranges = list(before[IDS])

    def _end(self) -> None:
        """Complete the run: readers see its tables from now on."""
        judged_at = self._state.get("as_of")
        self._lake.catalog.end(
            self._state,
            began_at=self._began,
            ended_at=datetime.now(UTC),
            as_of=datetime.fromisoformat(judged_at) if judged_at else None,
            new_events=self._new.events,
            accepted=self._audit.accepted,
            exactly_one=self._audit.exactly_one,
            violations=self._audit.violations,
            complete=self._audit.complete,
        )

    def tidy(self) -> None:
        """Merge small files; once a day, delete unneeded ones."""
        catalog = self._lake.catalog
        catalog.merge()
        if self._vacuums:
            catalog.vacuum()

    def _covered(self) -> Span | None:
        """Return the time span that the journal covers, over all runs."""
        before = self._state.get("told")
        return new_rows.hull([*self._new.spans, *([Span.of(before)] if before else ())])

    def _update(self, covered: Span) -> None:
        known = self._known_requests()
        has_aliases = self._new.made_up or self._state.get("has_aliases", False)
        has_decisions = self._new.decisions or self._state.get("has_decisions", False)
        days = self._to_redo(known, has_aliases)
        with of_requests(self._lake, self._fresh, known) as events:
            clocks = self._read_clocks(events, days)
            if clocks.ahead_us:
                covered = self._covered_by(clocks)
            if clocks.record() != self._state.get("clocks", IN_STEP.record()):
                days = (
                    set(new_rows.known_days(self._lake, clocks.worst_us)) | self._days_of_silver()
                )
            now = self._as_of or covered.end
            time_went_on = self._heard_more or now.isoformat() != self._state.get("as_of")
            refresh = Refresh(
                self._lake,
                now,
                covered,
                self._on_progress,
                self._terms,
                clocks,
                has_aliases,
                clocks.common_us(self._state["heard_us"]),
            )
            if days is not None:
                self._days = days | (self._open_days() if time_went_on else set())
                runs = [*new_rows.runs_of(self._days)]
                for run in runs if has_decisions else ():
                    refresh.access(run)
                for run in runs:
                    refresh.days(run)
            elif self._fresh or time_went_on:
                if self._new.decisions:
                    self._days = refresh.merge_access(self._fresh)
                self._days |= refresh.merge_new(events, self._fresh, known)
        if self._days:
            periods = self._periods(refresh, covered, now, are_whole=days is not None)
            for run in new_rows.runs_of(days_of(periods)):
                refresh.gold(run, common(periods, periods_of_days(run)))
        if self._days or time_went_on:  # a worker becomes silent without an event
            refresh.small_tables()
            self._refresh = refresh
        self._state |= {
            "told": covered.record(),
            "look_back_s": self._look_back().total_seconds(),
            "as_of": now.isoformat(),
            "clocks": clocks.record(),
            "has_aliases": has_aliases,
            "has_decisions": has_decisions,
        }

    def _known_requests(self) -> Known:
        """Return the requests of earlier runs that this run must recompute."""
        open_days = self._open_days()
        asked: list[DataFrame] = []
        if open_days:
            judged = self._lake.table("audit_verdicts", lambda day: day in open_days)
            asked.append(judged.where(F.col("verdict").isin(*_OPEN)))
        if self._fresh:
            asked.append(named(self._lake.rows(EVENTS, self._fresh)))
        if self._new.decisions and self._fresh and self._known_ranges:
            asked += self._of_new_owners()
        if not asked or not self._known_ranges:
            return NOBODY
        ids = reduce(DataFrame.unionAll, (each.select("request_id") for each in asked))
        return known(ids, self._lake.rows(IDS, self._known_ranges))

    def _of_new_owners(self) -> list[DataFrame]:
        """Return requests of earlier runs to whose ids this run's decisions give another owner.

        A broker's log has the owner first, so this is rare: a log was read between two blocks that
        were written at once, or a part of it was repaired.
        """
        keys = ["client", "log", "principal"]
        fresh = decisions.silver_access(self._lake.rows(EVENTS, self._fresh))
        before = self._lake.table(ACCESS), self._lake.rows(IDS, self._known_ranges)
        changed = decisions.owners(fresh).join(decisions.owners(before[0]), keys, "left_anti")
        asking = changed.join(before[1], "client", "left_semi").select("client").distinct()
        if asking.isEmpty():
            return []
        return [self._lake.table("silver_requests").join(asking, "client", "left_semi")]

    def _to_redo(self, known: Known, has_aliases: bool) -> set[date] | None:
        """Return the days to recompute; None: merge the new rows into the tables."""
        days = new_rows.known_days(self._lake)
        if not self._known_ranges:
            return {*days} | self._days_of_silver() if self._new.spans else set()
        if has_aliases:
            ahead_us = self._state.get("clocks", IN_STEP.record())["ahead_us"]
            worst = timedelta(microseconds=Clocks(ahead_us).worst_us)
            touched = new_rows.touched(self._new.spans, self._look_back() + worst, days)
            return touched | new_rows.widened(known.days, worst) & set(days)
        if len(known.ids) > KNOWN_MAX:
            about = {file.day for file in self._fresh if file.day} | known.days
            return new_rows.widened(about, timedelta(days=1)) & set(days)
        return None

    def _days_of_silver(self) -> set[date]:
        """Return the days that silver and audit tables contain."""
        names = [name for name in schemas.LAKE if name.startswith(("silver_", "audit_"))]
        files = (file for name in names for file in self._lake.catalog.files(name))
        return {file.day for file in files if file.day}

    def _open_days(self) -> set[date]:
        return {date.fromisoformat(day) for day in self._state.get("open_days", ())}

    def _periods(
        self, refresh: Refresh, covered: Span, now: datetime, *, are_whole: bool
    ) -> list[range]:
        """Return the periods for which gold is recomputed.

        These are whole days, or the periods of merged rows and of the time since the last run.
        """
        before = self._state.get("told")
        ends = Span.of(before).moved(covered) if before else []
        days = self._days | {end.astimezone(UTC).date() for end in ends}
        periods = periods_of_days(_with_next(days))
        if are_whole:
            return periods
        judged_at = datetime.fromisoformat(self._state.get("as_of", now.isoformat()))
        passed = sorted(map(instant_us, (judged_at, now)))
        at_ends = ((us, us) for us in map(instant_us, ends))
        found = (period_of(first, last) for first, last in (*at_ends, passed))
        return common(periods, joined([*refresh.touched(), *found]))

    def _read_clocks(self, merged: DataFrame, days: set[date] | None) -> Clocks:
        """Return the clock offsets of logs, from earlier runs and from this run's events.

        These are the merged events, or the events of the days to recompute.
        """
        before = skew.merge(skew.collected(self._lake.table("silver_clocks")))
        if not self._new.spans:
            return skew.settle(before)
        if days is None:
            near = [merged]
        else:
            near = [of_days(self._lake, run) for run in new_rows.runs_of(days)]
        found = (skew.collected(skew.bounds(each)) for each in near)
        bounds = skew.merge(chain(before, *found))
        if bounds != before:
            self._lake.replace("silver_clocks", skew.put(self._lake.spark, bounds))
        return skew.settle(bounds)

    def _covered_by(self, clocks: Clocks) -> Span:
        """Return the time span that the journal covers, by a common clock."""
        events = skew.corrected(self._lake.table(EVENTS), clocks)
        row = _rows(events.agg(F.min("ts").alias("start"), F.max("ts").alias("end")))[0]
        return Span(row["start"], row["end"])

    def _look_back(self) -> timedelta:
        longest_s = max(
            LOOK_BACK.total_seconds(),
            self._terms.longest_deadline_s,
            self._state.get("look_back_s", 0.0),
            self._new.deadline_s + self._terms.grace_s,
        )
        return timedelta(seconds=longest_s)

    def _judge(self) -> None:
        """Sum up the verdicts of all days, and the holes in the journal."""
        self._on_progress(Progress("audit"))
        by_day = self._verdicts_by_day()
        dropped = self._state.get("dropped", 0) + self._new.dropped
        damaged = sum(file.rows for file in self._lake.catalog.files(QUARANTINE))
        contradicted = sum(file.rows for file in self._lake.catalog.files("audit_contradictions"))
        verdicts: Counter[str] = Counter()
        for counts in by_day.values():
            verdicts.update(counts)
        self._audit = audit.summarise(
            verdicts,
            contradictions=contradicted,
            dropped_events=dropped,
            damaged=damaged,
            faults=self._state["faults"],
        )
        open_days = [day for day, counts in by_day.items() if not counts.keys().isdisjoint(_OPEN)]
        today = self._began.date().isoformat()
        self._vacuums = self._state.get("tidied", today) != today
        self._state |= {"verdicts": by_day, "open_days": sorted(open_days), "tidied": today}
        self._state |= {"damaged": damaged, "dropped": dropped}
        self._on_progress(Progress("audit", sum(verdicts.values())))

    def _verdicts_by_day(self) -> dict[str, dict[str, int]]:
        """Count verdicts by day, reading only the days that have changed."""
        before: dict[str, dict[str, int]] | None = self._state.get("verdicts")
        changed = None if before is None else self._days
        self._lake.catalog.files("audit_verdicts")  # raises if a file has changed
        rows = self._lake.table("audit_verdicts", lambda day: changed is None or day in changed)
        counts = _rows(rows.groupBy("date", "verdict").count()) if changed != set() else []
        kept = {
            day: verdicts
            for day, verdicts in (before or {}).items()
            if changed is not None and date.fromisoformat(day) not in changed
        }
        for row in counts:
            kept.setdefault(row["date"].isoformat(), {})[row["verdict"]] = row["count"]
        return kept

    def report(self, path: str | PathLike[str] | None) -> Path | None:
        """Write the report, if a path is given."""
        if path is None:
            return None
        from requite.spark.report import write  # the charts are an extra

        self._on_progress(Progress("report"))
        written = write(self._lake.spark, self._lake.root, path)
        self._on_progress(Progress("report", 1))
        return written

    def summary(self, seconds: float, report: Path | None) -> RunSummary:
        """Return the result of the run."""
        refresh = self._refresh
        judged_at = self._state.get("as_of")
        return RunSummary(
            audit=self._audit,
            as_of=datetime.fromisoformat(judged_at) if judged_at else None,
            new_events=self._new.events,
            quarantined=max(0, self._audit.damaged - self._damaged_before),
            clock_went_back=refresh.clock_went_back if refresh else 0,
            days=len(self._days),
            tables=dict(refresh.written) if refresh else {},
            seconds=seconds,
            report=report,
        )


def _with_next(days: set[date]) -> set[date]:
    """Return days and the days after them, into which requests may extend."""
    return days | {day + timedelta(days=1) for day in days if day < date.max}


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
