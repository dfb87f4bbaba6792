"""Reads the content of a report from a lake; Spark aggregates it to few rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.audit import Summary, summarise
from requite.spark.delta.catalog import Days
from requite.spark.gold.failures import over_days
from requite.spark.gold.latency import PERCENTILES, percentiles
from requite.spark.lake import Lake, columns_of
from requite.spark.report import facts, timeline, users
from requite.spark.report.bounded import Row, first_of, rows_of
from requite.spark.report.facts import (
    Advice,
    Bar,
    Contradicted,
    Evidence,
    Facts,
    Failure,
    Load,
    Service,
    Span,
    Violation,
    WorkerLife,
)
from requite.spark.report.steps import span_of
from requite.story.vocabulary import DROPPED, MANAGEMENT, Contradiction, Verdict

_EVENTS: Final = (
    "array<struct<ts string, log string, kind string, attempt int, outcome string, worker string, "
    "reason string>>"
)
_BY_ALARM: Final = ("lost", "silent", "alive", "drained")
_SUMS: Final = ("accepted", "replied", "failed", "retries", "duplicates")


def gather(lake: Lake) -> Facts:
    """Read the content of a report from a lake, by some twenty queries with small results."""
    found = Facts(
        lake.root,
        datetime.now(UTC),
        audit_of(lake),
        violations=_violations(lake),
        contradictions=_contradictions(lake),
        access=users.access(work := Work(lake.spark, lake.catalog)),
    )
    span = _span(work)
    return found if span is None else _with_details(found, work, span)


class Work(Lake):
    """A lake without requests to the brokers' own services (`mmi.`), which tools send."""

    def table(self, name: str, days: Days | None = None) -> DataFrame:
        """See `Lake.table`."""
        frame = super().table(name, days)
        if "service" not in columns_of(name):
            return frame
        return frame.where(~_named("service").startswith(MANAGEMENT))


def audit_of(lake: Lake) -> Summary:
    """Return the summary of the audit."""
    counted = rows_of(lake.table("audit_verdicts").groupBy("verdict").count())
    lost = lake.table("bronze_events").where(F.col("kind") == DROPPED)
    return summarise(
        {row["verdict"]: row["count"] for row in counted},
        dropped_events=_one(lost.agg(F.sum("dropped").alias("n")))["n"] or 0,
        contradictions=sum(file.rows for file in lake.catalog.files("audit_contradictions")),
        damaged=sum(file.rows for file in lake.catalog.files("bronze_quarantine")),
        faults=lake.catalog.last.state.get("faults", ()),
    )


def _violations(lake: Lake) -> tuple[Violation, ...]:
    fine = Verdict.EXACTLY_ONE, Verdict.IN_FLIGHT, Verdict.ONE_SIDED, Verdict.UNDECIDED
    names = [verdict.value for verdict in fine]
    wrong = lake.table("audit_verdicts").where(~F.col("verdict").isin(*names))
    events = F.from_json("evidence", _EVENTS)
    first = wrong.orderBy("date", "request_id").limit(facts.VIOLATIONS_SHOWN)
    shown = first.select(
        "request_id",
        "service",
        "verdict",
        F.slice(events, 1, facts.EVENTS_SHOWN).alias("events"),
        F.greatest(F.size(events) - facts.EVENTS_SHOWN, F.lit(0)).alias("left_out"),
    )
    return tuple(map(_violation, rows_of(shown)))


def _violation(row: Row) -> Violation:
    return Violation(**{**row, "events": _evidence(row)})


def _evidence(row: Row) -> tuple[Evidence, ...]:
    events = (event for event in row["events"] or () if event is not None)
    return tuple(Evidence(at=event.pop("ts"), **event) for event in events)


def _contradictions(lake: Lake) -> tuple[Contradicted, ...]:
    """Return the number of contradictions of each kind, with its first request."""
    events = F.from_json(F.col("first")["evidence"], _EVENTS)
    first = F.min_by(F.struct("request_id", "service", "evidence"), F.struct("date", "request_id"))
    by_kind = lake.table("audit_contradictions").groupBy("kind")
    found = by_kind.agg(F.count("*").alias("n"), first.alias("first")).select(
        "kind",
        "n",
        "first.request_id",
        "first.service",
        F.slice(events, 1, facts.EVENTS_SHOWN).alias("events"),
        F.greatest(F.size(events) - facts.EVENTS_SHOWN, F.lit(0)).alias("left_out"),
    )
    rows = rows_of(found.orderBy("kind").limit(len(Contradiction)))
    return tuple(Contradicted(**{**row, "events": _evidence(row)}) for row in rows)


def _span(lake: Lake) -> Span | None:
    requests = lake.table("silver_requests")
    last = F.greatest("accepted_at", "finished_at")
    ends = _one(requests.agg(F.min("accepted_at").alias("began"), F.max(last).alias("ended")))
    return span_of(ends["began"], ends["ended"]) if ends["began"] else None


def _with_details(found: Facts, lake: Lake, span: Span) -> Facts:
    known, services, total = _services(lake)
    histogram = _histogram(lake)
    drawn = [service.name for service in services[: facts.SERVICES_DRAWN]]
    workers_known, workers_lost, workers = _workers(lake)
    loads_known, loads = _loads(lake)
    advice_known, advice = _advice(lake)
    failures_known, failures = _failures(lake)
    return found._replace(
        span=span,
        total=total and _with_percentiles(total, histogram),
        services=services,
        services_known=known,
        rest=rest_of(total, services) if total and known > len(services) else None,
        pace=timeline.pace(lake, span),
        histogram=histogram,
        flow=timeline.flow(lake, span, drawn),
        queue=timeline.queue(lake, span),
        workers=workers,
        workers_known=workers_known,
        workers_lost=workers_lost,
        loads=loads,
        loads_known=loads_known,
        advice=advice,
        advice_known=advice_known,
        failures=failures,
        failures_known=failures_known,
    )


def _with_percentiles(total: Service, histogram: tuple[Bar, ...]) -> Service:
    p50, p95, p99 = (percentile(histogram, share) for share in PERCENTILES.values())
    return total._replace(p50_ms=p50, p95_ms=p95, p99_ms=p99)


def _services(lake: Lake) -> tuple[int, tuple[Service, ...], Service | None]:
    """Return the number of services, the busiest ones, and the sum of all."""
    minutes = lake.table("gold_service_minute").withColumn("name", _named("service"))
    ended = F.when(F.col("mean_ms").isNotNull(), F.col("replied") + F.col("failed"))
    sums = minutes.rollup("name").agg(
        *(F.sum(column).alias(column) for column in _SUMS),
        (F.sum(F.col("mean_ms") * ended) / F.sum(ended)).alias("mean_ms"),
        F.count_distinct("name").alias("known"),
        F.grouping("name").alias("is_all"),
    )
    order = (F.desc("is_all"), F.desc("accepted"), F.asc("name"))
    rows = rows_of(sums.orderBy(*order).limit(1 + facts.SERVICES_SHOWN))
    if not rows:
        return 0, (), None
    whole, *busiest = rows
    tails = _percentiles(lake, [row["name"] for row in busiest])
    shown = tuple(_service(row, tails.get(row["name"], {})) for row in busiest)
    return whole["known"], shown, _service(whole, {})


def _percentiles(lake: Lake, names: list[str]) -> dict[str, Row]:
    histogram = lake.table("gold_latency_histogram").withColumn("name", _named("service"))
    rows = rows_of(percentiles(histogram.where(F.col("name").isin(*names)), "name"))
    return {row["name"]: row for row in rows}


def _named(column: str) -> Column:
    return F.coalesce(F.col(column), F.lit(""))


def _service(sums: Row, times: Row) -> Service:
    p50, p95, p99 = (finite(times.get(column)) for column in PERCENTILES)
    counts = {column: sums[column] or 0 for column in _SUMS}
    mean = finite(sums["mean_ms"])
    return Service(sums["name"] or "", **counts, p50_ms=p50, p95_ms=p95, p99_ms=p99, mean_ms=mean)


def rest_of(total: Service, shown: tuple[Service, ...]) -> Service:
    """Return the sums of the services that are not shown."""
    counts = {
        column: getattr(total, column) - sum(getattr(row, column) for row in shown)
        for column in _SUMS
    }
    return Service("", **counts, p50_ms=None, p95_ms=None, p99_ms=None, mean_ms=None)


def percentile(histogram: tuple[Bar, ...], share: float) -> float | None:
    """Return the upper edge of the bucket that contains a percentile."""
    wanted, reached = share * sum(bar.n for bar in histogram), 0
    for bar in sorted(histogram):
        reached += bar.n
        if reached >= wanted:
            return bar.upper_ms
    return None


def _histogram(lake: Lake) -> tuple[Bar, ...]:
    counts = lake.table("gold_latency_histogram").groupBy("upper_ms").agg(F.sum("n").alias("n"))
    rows = rows_of(counts.where(F.col("upper_ms") > 0).orderBy("upper_ms"))
    return tuple(Bar(row["upper_ms"], row["n"]) for row in rows if math.isfinite(row["upper_ms"]))


def _workers(lake: Lake) -> tuple[int, int, tuple[WorkerLife, ...]]:
    """Return the numbers of all and of lost workers, and those with the longest silences.

    These are in order of their first message.
    """
    lives = _processes(lake.table("gold_worker_liveness").where(F.col("first_seen").isNotNull()))
    order = (F.desc_nulls_last("longest_gap_s"), F.asc("first_seen"), F.asc("worker"))
    known, rows = first_of(lives.select(*WorkerLife._fields), facts.WORKERS_SHOWN, *order)
    lost = lives.where(F.col("status") == "lost").count()
    made = (WorkerLife(**{**row, **_cleared(row)}) for row in rows)
    return known, lost, tuple(sorted(made, key=lambda life: (life.first_seen, life.worker)))


def _processes(lives: DataFrame) -> DataFrame:
    """Return one row per worker from the table's rows per worker and service.

    The most alarming status counts; `drained` requires that all its services have drained.
    """
    alarm = F.array_position(F.array(*map(F.lit, _BY_ALARM)), F.col("status"))
    services = F.array_sort(F.collect_set(_named("service")))
    return lives.groupBy("worker").agg(
        F.array_join(F.slice(services, 1, facts.SERVICES_SHOWN), ", ").alias("service"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
        F.max("gaps").alias("gaps"),
        F.max("longest_gap_s").alias("longest_gap_s"),
        F.avg(F.nanvl("busy_fraction", F.lit(None))).alias("busy_fraction"),
        F.min_by("status", alarm).alias("status"),
    )


def _cleared(row: Row) -> Row:
    return {
        "last_seen": row["last_seen"] or row["first_seen"],
        "gaps": row["gaps"] or 0,
        "status": row["status"] or "",
        "longest_gap_s": finite(row["longest_gap_s"]),
        "busy_fraction": finite(row["busy_fraction"]),
    }


def _loads(lake: Lake) -> tuple[int, tuple[Load, ...]]:
    """Return the number of services with load, and the means of the most loaded ones."""
    means = set(Load._fields) - {"service", "peak_utilisation"}
    loads = (
        lake.table("gold_capacity")
        .groupBy(_named("service").alias("service"))
        .agg(
            *(F.avg(column).alias(column) for column in means),
            F.max("utilisation").alias("peak_utilisation"),
        )
    )
    order = (F.desc_nulls_last("utilisation"), F.asc("service"))
    known, rows = first_of(loads, facts.SERVICES_SHOWN, *order)
    finites = ({key: finite(row[key]) for key in row if key != "service"} for row in rows)
    return known, tuple(
        Load(row["service"], **most) for row, most in zip(rows, finites, strict=True)
    )


def _advice(lake: Lake) -> tuple[int, tuple[Advice, ...]]:
    advice = lake.table("gold_rightsizing").select(*Advice._fields)
    known, rows = first_of(advice, facts.ADVICE_SHOWN, F.asc("service"))
    return known, tuple(Advice(**row) for row in rows)


def _failures(lake: Lake) -> tuple[int, tuple[Failure, ...]]:
    failures = over_days(lake.table("gold_failures")).select(*Failure._fields)
    known, rows = first_of(failures, facts.FAILURES_SHOWN, F.desc("n"), F.asc("sample_request_id"))
    return known, tuple(Failure(**row) for row in rows)


def finite(value: float | None) -> float | None:
    """Return a finite number; None for None, infinity and NaN."""
    return value if value is not None and math.isfinite(value) else None


def _one(frame: DataFrame) -> Row:
    return rows_of(frame)[0]
