"""Compute days of silver and gold anew, and put them into the lake in place of what was there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from requite.spark import audit, gold, silver
from requite.spark.aliases import aliases, is_made_up, one_sided, renamed
from requite.spark.contradictions import contradictions, is_suspect
from requite.spark.lake import Lake
from requite.spark.lives import lives
from requite.spark.news import Span, events_in, reach, widen
from requite.spark.skew import IN_STEP, Clocks, corrected

RECENT: Final = timedelta(days=7)
"""What advice is based on: a week has every load that comes back weekly."""


class Progress(NamedTuple):
    """A step of a run: `rows` is None when it begins, and what it came to when it is done."""

    step: str
    rows: int | None = None


OnProgress = Callable[[Progress], None]
Counts = dict[str, int]


@dataclass
class Refresh:
    """A refresh of tables. `now` is the instant as of which is judged, `told` what the journal
    tells of; `written` counts rows by table."""

    lake: Lake
    now: datetime
    told: Span
    look_back: timedelta
    on_progress: OnProgress
    terms: audit.Terms = audit.USUAL
    clocks: Clocks = IN_STEP
    written: dict[str, int] = field(default_factory=dict)
    clock_went_back: int = 0

    def days(self, days: list[date]) -> None:
        """Compute days that follow each other."""
        events = self._events(reach(days, self.look_back))
        gathered = lives(events).persist()
        try:
            if _any(gathered, is_made_up(F.col("request_id"))):
                events = self._with_aliases(gathered, events, days)
            else:
                self._requests(gathered, events, days)
        finally:
            gathered.unpersist()
        self._replace("silver_attempts", silver.silver_attempts(events), days)
        self._replace("silver_heartbeats", silver.silver_heartbeats(events), days)
        self._gold(days)

    def _with_aliases(self, gathered: DataFrame, events: DataFrame, days: list[date]) -> DataFrame:
        """Compute requests anew under their true names, of which some have been made up; return
        the events under these."""
        found = aliases(gathered).persist()
        events = renamed(events, found)
        whole = one_sided(lives(events), found).persist()
        try:
            self._requests(whole, events, days)
        finally:
            whole.unpersist()
        return events

    def _events(self, span: Span) -> DataFrame:
        return corrected(events_in(self.lake, span), self.clocks)

    def _requests(self, gathered: DataFrame, events: DataFrame, days: list[date]) -> None:
        went_back = F.count_if(silver.CLOCK_WENT_BACK).alias("went_back")
        requests = silver.silver_requests(gathered)
        counts = self._replace("silver_requests", requests, days, went_back)
        self.clock_went_back += counts["went_back"]
        unsettled = self.clocks.unsettled
        verdicts = audit.verdicts(gathered, self.now, self.terms, unsettled=unsettled)
        self._replace("audit_verdicts", verdicts, days)
        self._contradictions(gathered, events, days)
        depths = gold.gold_queue_depth(gathered, self.now, days=days)
        self._replace("gold_queue_depth", depths, days)

    def _contradictions(self, gathered: DataFrame, events: DataFrame, days: list[date]) -> None:
        """Hold the sides against each other, where any request is suspect. Usually none is, and to
        plan the query would take longer than to look."""
        name = "audit_contradictions"
        if _any(gathered, is_suspect()) or _any(self._of(name, days), F.lit(True)):
            self._replace(name, contradictions(gathered, events, self.terms), days)

    def _gold(self, days: list[date]) -> None:
        requests = self._of("silver_requests", days)
        self._replace("gold_latency_histogram", gold.gold_latency_histogram(requests), days)
        self._replace("gold_service_minute", gold.gold_service_minute(requests), days)
        # What was accepted before midnight may still be in the system after it.
        with_eve = self._of("silver_requests", [days[0] - timedelta(days=1), *days])
        capacity = gold.gold_capacity(
            with_eve,
            self._of("silver_attempts", days),
            self._of("silver_heartbeats", days),
            since=self.told.start,
            until=self.told.end,
            days=days,
        )
        self._replace("gold_capacity", capacity, days)

    def small_tables(self) -> None:
        """Compute what is not kept by day."""
        table = self.lake.table
        since = widen(Span(self.now, self.now), RECENT).start
        heartbeats, requests = table("silver_heartbeats"), table("silver_requests")
        self._replace_all("gold_worker_liveness", gold.gold_worker_liveness(heartbeats, self.now))
        self._replace_all("poison", gold.poison(requests))
        capacity = table("gold_capacity").where(F.col("window") >= F.lit(since))
        lately = requests.where(F.col("date") >= F.lit(since.date()))
        self._replace_all("gold_rightsizing", gold.gold_rightsizing(capacity, lately))

    def _of(self, name: str, days: list[date]) -> DataFrame:
        return self.lake.table(name, lambda day: day in days)

    def _replace(self, name: str, rows: DataFrame, days: list[date], *also: Column) -> Counts:
        chosen = rows.where(F.col("date").isin(*days))
        return self._write(name, chosen, partial(self.lake.replace_days, name, days=days), *also)

    def _replace_all(self, name: str, rows: DataFrame) -> None:
        self._write(name, rows, partial(self.lake.replace, name))

    def _write(
        self, name: str, rows: DataFrame, write: Callable[[DataFrame], int], *also: Column
    ) -> Counts:
        """Write a table, counting what else is asked for on the way."""
        self.on_progress(Progress(name))
        seen = Observation()
        count = write(rows.observe(seen, *also) if also else rows)
        self.written[name] = self.written.get(name, 0) + count
        self.on_progress(Progress(name, count))
        return {key: int(value or 0) for key, value in seen.get.items()} if also else {}


def _any(rows: DataFrame, condition: Column) -> bool:
    return not rows.where(condition).isEmpty()
