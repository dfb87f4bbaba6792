"""Computes silver and gold: merges new requests into the tables, or recomputes whole days."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from requite.spark import audit, decisions, gold, silver
from requite.spark.aliases import aliases, is_made_up, one_sided, renamed
from requite.spark.bronze import EVENTS
from requite.spark.clock import (
    Periods,
    dated,
    is_within,
    joined,
    micros,
    period_of,
    period_us,
    periods_of_days,
    still_waiting_us,
    until_next_day,
)
from requite.spark.contradictions import contradictions, is_suspect
from requite.spark.delta.table import File
from requite.spark.lake import Change, Lake
from requite.spark.lifecycle import lives
from requite.spark.missing_events import rests_on_missing_events
from requite.spark.new_rows import Span, widen, widened
from requite.spark.request_events import Known, of_days
from requite.spark.skew import IN_STEP, Clocks, corrected
from requite.story.rules import USUAL, Terms

RECENT: Final = timedelta(days=7)
"""The period that recommendations are based on: a week includes weekly peaks."""


class Progress(NamedTuple):
    """A step of a run: `rows` is None when it begins, and its number of rows when it ends."""

    step: str
    rows: int | None = None


OnProgress = Callable[[Progress], None]
Counts = dict[str, int]
Put = Callable[[str, DataFrame], Change]

ACCESS: Final = "silver_access"

_A_DAY: Final = timedelta(days=1)
_BROADCAST_MAX: Final = 1_000_000  # decisions; 100 bytes each in every process


@dataclass
class Refresh:
    """A refresh of the tables.

    `now`: the instant of the verdicts; `covered`: the time span of the journal;
    `has_aliases`: whether brokers made up ids; `heard_us`: instants up to which incomplete logs
    were read; `written`: number of rows by table.
    """

    lake: Lake
    now: datetime
    covered: Span
    on_progress: OnProgress
    terms: Terms = USUAL
    clocks: Clocks = IN_STEP
    has_aliases: bool = False
    heard_us: Mapping[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    clock_went_back: int = 0
    _touched: list[range] = field(default_factory=list)  # periods

    def access(self, days: list[date]) -> None:
        """Recompute the access decisions of consecutive days; of all days before any requests."""
        near = widened(days, self._slack)
        self._access(self.lake.table(EVENTS, lambda day: day in near), self._in_place_of(days))

    def merge_access(self, fresh: Sequence[File]) -> set[date]:
        """Add the access decisions in new files of bronze, before the requests of these files;
        return the days that have changed."""
        changed: set[date] = set()
        self._access(self.lake.rows(EVENTS, fresh), self._merging((), set(), changed))
        return changed

    def days(self, days: list[date]) -> None:
        """Recompute consecutive days from all events of their requests."""
        put = self._in_place_of(days)
        self._requests(of_days(self.lake, days, self._slack), put)
        near = widened(days, self._slack)
        self._heartbeats(self.lake.table(EVENTS, lambda day: day in near), put)

    def merge_new(self, events: DataFrame, fresh: Sequence[File], known: Known) -> set[date]:
        """Merge new events into the tables; return the days that have changed.

        `events` are all events of the affected requests, `fresh` the new files of bronze, `known`
        the affected requests of earlier runs.
        """
        near = widened(known.days, self._slack + _A_DAY)
        changed: set[date] = set()
        if fresh or known.ids:
            self._requests(events, self._merging(known.ids, near, changed))
        if fresh:
            self._heartbeats(self.lake.rows(EVENTS, fresh), self._merging((), near, changed))
        return changed

    def _merging(self, ids: Collection[str], near: set[date], changed: set[date]) -> Put:
        """Return a function that merges rows into a table, in place of those of requests `ids` on
        days `near`, and adds the days to `changed`."""

        def put(name: str, rows: DataFrame) -> Change:
            change = self.lake.merge_in(name, rows, ids, lambda day: day in near)
            changed.update(change.days)
            return change

        return put

    @property
    def _slack(self) -> timedelta:
        return timedelta(microseconds=self.clocks.worst_us)

    def _requests(self, uncorrected: DataFrame, put: Put) -> None:
        """Compute the tables on requests from all of their events."""
        events = corrected(uncorrected, self.clocks)
        gathered = lives(events).persist()
        try:
            if self.has_aliases and _any(gathered, is_made_up(F.col("request_id"))):
                events = self._under_true_names(gathered, events, put)
            else:
                self._lives(gathered, put)
        finally:
            gathered.unpersist()
        self._write("silver_attempts", silver.silver_attempts(events), put)

    def _under_true_names(self, gathered: DataFrame, events: DataFrame, put: Put) -> DataFrame:
        """Compute requests of which some have made-up ids; return the events under call ids."""
        found = aliases(gathered).persist()
        events = renamed(events, found)
        whole = one_sided(lives(events), found).persist()
        try:
            self._lives(whole, put)
        finally:
            whole.unpersist()
        return events

    def _lives(self, gathered: DataFrame, put: Put) -> None:
        went_back = F.count_if(silver.CLOCK_WENT_BACK).alias("went_back")
        lasted = Observation()
        first_us, last_us = self._span()
        periods = F.collect_set(F.array(period_us(first_us), period_us(last_us))).alias("periods")
        requests = silver.silver_requests(gathered.observe(lasted, periods), self._owners())
        counts = self._write("silver_requests", requests, put, went_back)
        self.clock_went_back += counts["went_back"]
        self._touched += [period_of(*each) for each in lasted.get["periods"]]
        unsettled = self.clocks.unsettled
        verdicts = audit.verdicts(
            gathered, self.now, self.terms, unsettled=unsettled, heard_us=self.heard_us
        )
        self._write("audit_verdicts", verdicts, put)
        self._write("silver_waits", silver.silver_waits(gathered), put)
        self._contradictions(gathered, put)

    def _span(self) -> tuple[Column, Column]:
        """Return the longest time span in which a request counts, in microseconds since 1970.

        Earlier runs may have counted it as open until its deadline, or until now.
        """
        events = F.col("events")
        first_us = micros(F.get(events, 0)["ts"])
        given_up = still_waiting_us(
            max(self.now, self.covered.end), first_us, F.array_max(events["deadline"])
        )
        last_us = F.greatest(micros(F.array_max(events["ts"])), given_up)
        return first_us, until_next_day(first_us, last_us)

    def _contradictions(self, gathered: DataFrame, put: Put) -> None:
        """Compute contradictions if any request is suspect.

        Usually none is, and planning the query takes longer than this check.
        """
        name = "audit_contradictions"
        day = dated(F.col("own"), F.col("events")).alias("date")
        looked = gathered.where(is_suspect()).select(day, rests_on_missing_events().alias("unseen"))
        suspect = looked.distinct().toArrow().to_pylist()
        if suspect or self.lake.catalog.files(name):
            about = [row["date"] for row in suspect if row["unseen"] and row["date"]]
            near = widened(about, self._slack + _A_DAY)
            nearby = self.lake.table(EVENTS, lambda day: day in near)
            events = corrected(nearby, self.clocks) if about else None
            unsettled = self.clocks.unsettled
            found = contradictions(gathered, events, self.terms, unsettled=unsettled)
            self._write(name, found, put)

    def _heartbeats(self, events: DataFrame, put: Put) -> None:
        heard = Observation()
        periods = F.collect_set(period_us(micros(F.col("ts")))).alias("periods")
        rows = silver.silver_heartbeats(corrected(events, self.clocks)).observe(heard, periods)
        self._write("silver_heartbeats", rows, put)
        self._touched += [period_of(each, each) for each in heard.get["periods"]]

    def _access(self, events: DataFrame, put: Put) -> None:
        rows = decisions.silver_access(corrected(events, self.clocks))
        self._write(ACCESS, rows, put)

    def _owners(self) -> DataFrame:
        """Return the owners of call ids. A join with a moderate number shuffles no requests: it
        costs 5 us of processor time per request, with a shuffle 8 us."""
        owned = decisions.owners(self.lake.table(ACCESS))
        count = sum(file.rows for file in self.lake.catalog.files(ACCESS))
        return F.broadcast(owned) if count <= _BROADCAST_MAX else owned

    def touched(self) -> list[range]:
        """Return the periods that the computed rows affect."""
        return joined(self._touched)

    def gold(self, days: list[date], within: Periods) -> None:
        """Compute the gold tables for periods of consecutive days from silver."""
        # Requests of the day before may last beyond midnight.
        with_eve = [days[0] - _A_DAY, *days] if days[0] > date.min else days
        put = self._in_place_of_periods(days, within)
        depths = gold.gold_queue_depth(self._of("silver_waits", with_eve), self.now, within=within)
        self._write("gold_queue_depth", depths, put)
        requests = self._of("silver_requests", days)
        of_periods = requests.where(is_within(micros(F.col("accepted_at")), within))
        self._write("gold_latency_histogram", gold.gold_latency_histogram(of_periods), put)
        self._write("gold_service_minute", gold.gold_service_minute(of_periods), put)
        self._write("gold_failures", gold.gold_failures(requests), self._in_place_of(days))
        capacity = gold.gold_capacity(
            self._of("silver_requests", with_eve),
            self._of("silver_attempts", with_eve),
            self._of("silver_heartbeats", days),
            since=self.covered.start,
            until=self.covered.end,
            within=within,
        )
        self._write("gold_capacity", capacity, put)

    def small_tables(self) -> None:
        """Compute the tables that are not partitioned by day."""

        def put(name: str, rows: DataFrame) -> Change:
            return Change(self.lake.replace(name, rows), set())

        table = self.lake.table
        since = widen(Span(self.now, self.now), RECENT).start
        heartbeats, requests = table("silver_heartbeats"), table("silver_requests")
        self._write("gold_worker_liveness", gold.gold_worker_liveness(heartbeats, self.now), put)
        capacity = table("gold_capacity").where(F.col("minute") >= F.lit(since))
        lately = requests.where(F.col("date") >= F.lit(since.date()))
        self._write("gold_rightsizing", gold.gold_rightsizing(capacity, lately), put)

    def _in_place_of(self, days: list[date]) -> Put:
        """Return a function that replaces days of a table."""

        def put(name: str, rows: DataFrame) -> Change:
            chosen = rows.where(F.col("date").isin(*days))
            return Change(self.lake.replace_days(name, chosen, days=days), set(days))

        return put

    def _in_place_of_periods(self, days: list[date], within: Periods) -> Put:
        """Return a function that replaces the minutes of periods, within these days of a table."""
        replace = self._in_place_of(days)

        def put(name: str, rows: DataFrame) -> Change:
            if list(within) == periods_of_days(days):
                return replace(name, rows)
            others = ~is_within(micros(F.col("minute")), within)
            return replace(name, rows.unionByName(self._of(name, days).where(others)))

        return put

    def _of(self, name: str, days: list[date]) -> DataFrame:
        return self.lake.table(name, lambda day: day in days)

    def _write(self, name: str, rows: DataFrame, put: Put, *also: Column) -> Counts:
        """Write rows of a table; return the values of the aggregates `also` over them."""
        self.on_progress(Progress(name))
        seen = Observation()
        change = put(name, rows.observe(seen, *also) if also else rows)
        self.written[name] = self.written.get(name, 0) + change.rows
        self.on_progress(Progress(name, change.rows))
        return {key: int(value or 0) for key, value in seen.get.items()} if also else {}


def _any(rows: DataFrame, condition: Column) -> bool:
    return not rows.where(condition).isEmpty()
