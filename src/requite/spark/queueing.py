"""How many requests wait in the brokers' queues, and how long the oldest of them has."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import MINUTE_US, date_of, micros, minute_of, still_waiting_us
from requite.spark.vocabulary import ACCEPTED, BROKER, DISPATCHED, OUTCOMES, QUEUED, REDELIVERED

_KEY: Final = ("service", "minute")


def waits(lives: DataFrame, now: datetime) -> DataFrame:
    """Return when requests waited: service, begin_us, end_us (microseconds since 1970).

    A wait begins when a broker queues a request, for the first time or again, and ends when the
    request is dispatched or ends. One without an end goes on until `now`, or the deadline.
    """
    events = F.col("events")
    begins = F.filter(
        events, lambda event: event["kind"].isin(QUEUED, REDELIVERED) & (event["role"] == BROKER)
    )

    def wait(begin: Column) -> Column:
        ends = F.filter(events, lambda event: _is_end(event, begin))
        begin_us, deadline = micros(begin["ts"]), F.array_max(events["deadline"])
        open_until = still_waiting_us(now, begin_us, deadline)
        end_us = F.coalesce(micros(F.array_min(ends["ts"])), open_until)
        return F.struct(begin_us.alias("begin_us"), end_us.alias("end_us"))

    waited = lives.where(F.size(begins) > 0)
    exploded = waited.select("service", F.explode(F.transform(begins, wait)).alias("wait"))
    return exploded.select("service", "wait.begin_us", "wait.end_us").where("end_us > begin_us")


def _is_end(event: Column, begin: Column) -> Column:
    return (
        event["kind"].isin(DISPATCHED, *OUTCOMES)
        & (event["log"] == begin["log"])
        & (event["seq"] > begin["seq"])
    )


def gold_queue_depth(lives: DataFrame, now: datetime) -> DataFrame:
    """Tell, per minute and service, the deepest and the mean queue, and the longest wait in it.

    `avg_depth` is the mean over the whole minute, `oldest_age_s` how long the request that had
    waited longest in that minute had waited then. Minutes in which requests were accepted and none
    waited have zeros.
    """
    pieces = _by_minute(waits(lives, now))
    deepest = _deepest(pieces)
    means = pieces.groupBy(*_KEY).agg(
        (F.sum(F.col("end_us") - F.col("begin_us")) / MINUTE_US).alias("avg_depth"),
        (F.max(F.col("end_us") - F.col("since_us")) / 1e6).alias("oldest_age_s"),
    )
    waited = means.join(deepest, list(_KEY))
    told = _quiet_minutes(lives).join(waited, list(_KEY), "full")
    zero = {"max_depth": F.lit(0), "avg_depth": F.lit(0.0), "oldest_age_s": F.lit(0.0)}
    filled = (F.coalesce(F.col(name), value).alias(name) for name, value in zero.items())
    return told.select("minute", "service", *filled, date_of(F.col("minute")).alias("date"))


def _by_minute(waits: DataFrame) -> DataFrame:
    """Cut waits where a minute ends, so that each minute can be told by itself."""
    begin, end = F.col("begin_us"), F.col("end_us")
    first = begin - F.pmod(begin, F.lit(MINUTE_US))
    minutes = waits.select(
        "service",
        "begin_us",
        "end_us",
        F.explode(F.sequence(first, end - 1, F.lit(MINUTE_US))).alias("minute_us"),
    )
    return minutes.select(
        "service",
        F.timestamp_micros("minute_us").alias("minute"),
        F.greatest("begin_us", "minute_us").alias("begin_us"),
        F.least(end, F.col("minute_us") + MINUTE_US).alias("end_us"),
        F.col("begin_us").alias("since_us"),
    )


def _deepest(pieces: DataFrame) -> DataFrame:
    """Walk along each minute: one more where a piece begins, one fewer where it ends."""
    steps = F.array(
        F.struct(F.col("begin_us").alias("at_us"), F.lit(1).alias("step")),
        F.struct(F.col("end_us").alias("at_us"), F.lit(-1).alias("step")),
    )
    edges = pieces.select(*_KEY, F.explode(steps).alias("edge")).select(*_KEY, "edge.*")
    # At one instant those that leave go first: who is handed out at once has not waited.
    along = Window.partitionBy(*_KEY).orderBy("at_us", "step")
    depth = F.sum("step").over(along.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    walked = edges.withColumn("depth", depth)
    return walked.groupBy(*_KEY).agg(F.max("depth").alias("max_depth"))


def _quiet_minutes(lives: DataFrame) -> DataFrame:
    """Return the minutes in which a broker accepted anything."""
    accepted = F.filter(
        "events", lambda event: (event["kind"] == ACCEPTED) & (event["role"] == BROKER)
    )
    at = lives.select("service", F.explode(accepted["ts"]).alias("at"))
    return at.select("service", minute_of(F.col("at")).alias("minute")).distinct()
