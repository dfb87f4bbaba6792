"""Witnesses for runs without a dispatch: logs that would contain the missing event.

A journal may be incomplete: a broker may keep none, and a killed broker loses its last tenth of a
second. So a run without a dispatch is a contradiction only if a log covers that time:

- the log of a broker with which the worker was registered for this service before and after the
  start, without another registration in between; or,
- for a request that nobody accepted either, the log of the client whose id is in the call id.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import later, micros
from requite.story.rules import ORDER_SLACK_S
from requite.story.vocabulary import (
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
"""Events are in a log that continues this long after them: engines sweep their tables, and journals
write, several times a second."""

_BUCKET_US: Final = 10 * 10**6
"""Heartbeats within this distance of a start are used; brokers check workers every second or so."""


def undispatched(suspects: DataFrame, events: DataFrame) -> DataFrame:
    """Return the requests that a worker started more often than brokers dispatched them to it."""
    near = _starts(suspects).join(_signs(events), ["worker", "service", "bucket"])
    by_log = Window.partitionBy("request_id", "worker", "log")
    sign = F.struct("log", "kind", F.max("ts").over(by_log).alias("until"))
    is_before = F.col("ts") <= F.col("started_at")
    is_after = F.col("heard_at") >= F.col("started_at")
    judged = (
        near.withColumn("told", sign)
        .groupBy(*_COLUMNS, "worker", "started_at")
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
    """Return the requests that a worker started without an event in their client's log."""
    nobody = ~F.col("is_asked")
    started = F.array_min(F.filter("events", lambda event: event["kind"] == STARTED)["ts"])
    ran = suspects.where(nobody & (F.col("tally")["begun"] > 0)).select(
        *_COLUMNS,
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


_COLUMNS: Final = ("request_id", "service", "evidence", "date", "is_asked")


def is_asked() -> Column:
    """Return whether a client or a broker has events of a request."""
    tally = F.col("tally")
    return (tally["made"] + tally["taken"] + tally["given"]) > 0


def rests_on_missing_events() -> Column:
    """Return whether a worker ran an unknown request, or ran one more often than dispatched."""
    is_unasked = ~is_asked() & (F.col("tally")["begun"] > 0)
    return is_unasked | (F.size(_starts_beyond_dispatches()) > 0)


def _starts_beyond_dispatches() -> Column:
    """Return each worker's first start with fewer dispatches than starts up to then.

    Later starts may exceed dispatches because a crashed broker lost the event of a dispatch.
    """

    def of_kind(kind: str) -> Column:
        return F.filter("events", lambda event: event["kind"] == kind)

    begun, given = of_kind(STARTED), of_kind(DISPATCHED)

    def among(events: Column, worker: Column) -> Column:
        return F.filter(events, lambda event: event["worker"] == worker)

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
    """Return a row per unexplained start and bucket of time to search for heartbeats."""
    starts = suspects.withColumn("start", F.explode(_starts_beyond_dispatches()))
    middle = F.floor(micros(F.col("start")["started_at"]) / F.lit(_BUCKET_US))
    buckets = F.explode(F.array(middle - 1, middle, middle + 1))
    return starts.select(*_COLUMNS, "start.*", buckets.alias("bucket"))


def _signs(events: DataFrame) -> DataFrame:
    """Return the brokers' events on workers; `heard_at` is the worker's last message."""
    presence = events.where((F.col("role") == BROKER) & F.col("kind").isin(*PRESENCE))
    silent_us = F.round(F.coalesce("gap_s", F.lit(0.0)) * 1e6).cast("bigint")
    return presence.select(
        "worker",
        F.coalesce("service", F.lit("")).alias("service"),
        "log",
        "kind",
        "ts",
        F.timestamp_micros(micros(F.col("ts")) - silent_us).alias("heard_at"),
        F.floor(micros(F.col("ts")) / F.lit(_BUCKET_US)).alias("bucket"),
    )


def _with_holes(events: DataFrame) -> DataFrame:
    """Return the logs that have lost rows; a missing event proves nothing in them."""
    return events.where(F.col("kind") == DROPPED).select("log").distinct()
