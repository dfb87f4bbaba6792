"""Who would have told of a thing that is in no log: witnesses for what workers ran.

A journal need not be complete: a broker may keep none, and one that is killed takes the last tenth
of a second with it. So a worker is accused of having run what nobody gave it only if somebody was
there to write it down, and wrote other things down then:

- a broker with which the worker was for this service, as its log tells before and after the start,
  with no other registration in between; or,
- for what nobody accepted either, the client whose name is in the call id.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import later, micros
from requite.spark.vocabulary import (
    BROKER,
    CLIENT,
    DISPATCHED,
    DROPPED,
    HEARTBEAT,
    PRESENCE,
    STARTED,
    WORKER_JOINED,
    Contradiction,
)

_SETTLED_S: Final = 1.0
"""What happened so long ago is in a log that goes on: engines look at their tables, and journals
write, several times a second."""

ORDER_SLACK_S: Final = 0.05
"""What two clocks of one machine, read in two processes, may disagree about."""

_BUCKET_US: Final = 10 * 10**6
"""Signs of life are looked for so near to a start; brokers look at workers every second or so."""


def undispatched(suspects: DataFrame, events: DataFrame) -> DataFrame:
    """Return the requests that a worker began more often than brokers had given them to it."""
    near = _starts(suspects).join(_signs(events), ["worker", "service", "bucket"])
    by_log = Window.partitionBy("request_id", "worker", "log")
    told = F.struct("log", "kind", F.max("ts").over(by_log).alias("until"))
    is_before = F.col("ts") <= F.col("started_at")
    is_after = F.col("heard_at") >= F.col("started_at")
    judged = (
        near.withColumn("told", told)
        .groupBy(*_KEPT, "worker", "started_at")
        .agg(
            F.max_by("told", F.when(is_before, F.col("ts"))).alias("before"),
            F.min_by("told", F.when(is_after, F.col("ts"))).alias("after"),
        )
    )
    before, after = F.col("before"), F.col("after")
    was_with_it = (
        before["kind"].isin(HEARTBEAT, WORKER_JOINED)
        & (after["kind"] != WORKER_JOINED)
        & (before["log"] == after["log"])
        & (before["until"] >= later(F.col("started_at"), _SETTLED_S))
    )
    holes = _with_holes(events).select(F.col("log").alias("hole"))
    seen = judged.where(was_with_it)
    trusted = seen.join(holes, seen["before"]["log"] == holes["hole"], "left_anti")
    kind = F.when(F.col("is_asked"), Contradiction.RAN_UNDISPATCHED.value).otherwise(
        Contradiction.RAN_UNASKED.value
    )
    return trusted.withColumn("kind", kind)


def unasked(suspects: DataFrame, events: DataFrame) -> DataFrame:
    """Return the requests that a worker began, and their own clients know nothing of."""
    nobody = ~F.col("is_asked")
    started = F.array_min(F.filter("events", lambda event: event["kind"] == STARTED)["ts"])
    ran = suspects.where(nobody & (F.col("tally")["begun"] > 0)).select(
        *_KEPT,
        started.alias("started_at"),
        F.concat(F.lit(f"{CLIENT}-"), F.substring("request_id", 1, 16)).alias("log"),
    )
    clients = (
        events.where(F.col("role") == CLIENT)
        .groupBy("log")
        .agg(F.min("ts").alias("first"), F.max("ts").alias("last"))
    )
    known = ran.join(clients, "log").where(
        (F.col("first") <= F.col("started_at"))
        & (F.col("last") >= later(F.col("started_at"), _SETTLED_S))
    )
    trusted = known.join(_with_holes(events), "log", "left_anti")
    return trusted.withColumn("kind", F.lit(Contradiction.RAN_UNASKED.value))


_KEPT: Final = ("request_id", "service", "evidence", "date", "is_asked")


def is_asked() -> Column:
    """Whether a client, or a broker, knows of a request."""
    tally = F.col("tally")
    return (tally["made"] + tally["taken"] + tally["given"]) > 0


def needs_witness() -> Column:
    """Whether a worker ran what nobody asked for, or more often than brokers had given it that."""
    is_unasked = ~is_asked() & (F.col("tally")["begun"] > 0)
    return is_unasked | (F.size(_starts_beyond_dispatches()) > 0)


def _starts_beyond_dispatches() -> Column:
    """Return, of each worker, the first start before which it had been given the request too
    seldom. A later one may owe its surplus to a broker that took that dispatch with it."""

    def of_kind(kind: str) -> Column:
        return F.filter("events", lambda event: event["kind"] == kind)

    begun, given = of_kind(STARTED), of_kind(DISPATCHED)

    def among(told: Column, worker: Column) -> Column:
        return F.filter(told, lambda event: event["worker"] == worker)

    def first_beyond(worker: Column) -> Column:
        starts, gifts = F.sort_array(among(begun, worker)["ts"]), among(given, worker)["ts"]

        def is_beyond(start: Column, before: Column) -> Column:
            return F.size(F.filter(gifts, lambda at: at <= later(start, ORDER_SLACK_S))) <= before

        return F.get(F.filter(starts, is_beyond), 0)

    def start_of(worker: Column) -> Column:
        return F.struct(worker.alias("worker"), first_beyond(worker).alias("started_at"))

    return F.filter(
        F.transform(F.array_distinct(begun["worker"]), start_of),
        lambda start: start["started_at"].isNotNull(),
    )


def _starts(suspects: DataFrame) -> DataFrame:
    """Return a row per start that no dispatch explains, and per time at which to look for signs."""
    starts = suspects.withColumn("start", F.explode(_starts_beyond_dispatches()))
    middle = F.floor(micros(F.col("start")["started_at"]) / F.lit(_BUCKET_US))
    buckets = F.explode(F.array(middle - 1, middle, middle + 1))
    return starts.select(*_KEPT, "start.*", buckets.alias("bucket"))


def _signs(events: DataFrame) -> DataFrame:
    """Return what brokers tell of workers; `heard_at` is when the worker had spoken last."""
    told = events.where((F.col("role") == BROKER) & F.col("kind").isin(*PRESENCE))
    silent_us = F.round(F.coalesce("gap_s", F.lit(0.0)) * 1e6).cast("bigint")
    return told.select(
        "worker",
        F.coalesce("service", F.lit("")).alias("service"),
        "log",
        "kind",
        "ts",
        F.timestamp_micros(micros(F.col("ts")) - silent_us).alias("heard_at"),
        F.floor(micros(F.col("ts")) / F.lit(_BUCKET_US)).alias("bucket"),
    )


def _with_holes(events: DataFrame) -> DataFrame:
    """Return the logs that have lost rows: what is not in them may have happened."""
    return events.where(F.col("kind") == DROPPED).select("log").distinct()
