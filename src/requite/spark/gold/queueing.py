"""The depth of the brokers' queues, and the age of the oldest waiting request."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import (
    MINUTE_US,
    Instant,
    Periods,
    date_of,
    micros,
    minutes_of,
    still_waiting_us,
    until_next_day,
)

_KEY: Final = ("service", "minute")


def gold_queue_depth(waits: DataFrame, now: Instant, *, within: Periods | None = None) -> DataFrame:
    """Compute maximum and mean queue depth and the longest wait per minute and service.

    Source: `silver_waits`. `avg_depth` is the mean over the whole minute; `oldest_age_s` is the
    longest time that any request had waited by then. Minutes in which requests were accepted and
    none waited have zeros. `within` limits the table to the minutes of some periods.
    """
    edges = _edges(_by_minute(_spans(waits, now), within))
    # At equal instants requests leave before others enter: these have not waited together.
    along = Window.partitionBy(*_KEY).orderBy("at_us", "step")
    depth = F.sum("step").over(along.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    walked = edges.withColumn("depth", depth).groupBy(*_KEY)
    depths = walked.agg(
        F.greatest(F.max("depth"), F.lit(0)).alias("max_depth"),
        (F.sum("waited_us") / MINUTE_US).alias("avg_depth"),
        (F.max("age_us") / 1e6).alias("oldest_age_s"),
    )
    columns = "max_depth", "avg_depth", "oldest_age_s"
    return depths.select("minute", "service", *columns, date_of(F.col("minute")).alias("date"))


def _spans(waits: DataFrame, now: Instant) -> DataFrame:
    """Return the waits of requests: service, begin_us, end_us (microseconds since 1970).

    An open wait lasts until `now`, or until the deadline if earlier.
    """
    begin_us = micros(F.col("begin_at"))
    open_until = still_waiting_us(now, begin_us, F.col("deadline"))
    end_us = F.greatest(begin_us, F.coalesce(micros(F.col("end_at")), open_until))
    end_us = until_next_day(begin_us, end_us)
    return waits.select("service", begin_us.alias("begin_us"), end_us.alias("end_us"))


def _by_minute(spans: DataFrame, within: Periods | None) -> DataFrame:
    """Split spans at the ends of minutes, so that each minute is computed independently."""
    begin, end = F.col("begin_us"), F.col("end_us")
    minutes = minutes_of(begin, end, within)
    pieces = spans.select("service", "begin_us", "end_us", F.explode(minutes).alias("minute_us"))
    return pieces.select(
        "service",
        F.timestamp_micros("minute_us").alias("minute"),
        F.greatest("begin_us", "minute_us").alias("begin_us"),
        F.least(end, F.col("minute_us") + MINUTE_US).alias("end_us"),
        F.col("begin_us").alias("since_us"),
    )


def _edges(pieces: DataFrame) -> DataFrame:
    """Return the changes of depth: +1 at the beginning of a piece, -1 at its end."""
    begin, end = F.col("begin_us"), F.col("end_us")

    def edge(at: Column, step: int, waited: Column, age: Column) -> Column:
        columns = {"at_us": at, "step": F.lit(step), "waited_us": waited, "age_us": age}
        return F.struct(*(value.alias(name) for name, value in columns.items()))

    nothing = F.lit(0).cast("bigint")
    enters = edge(begin, 1, end - begin, end - F.col("since_us"))
    leaves = edge(end, -1, nothing, nothing)
    passes = edge(begin, 0, nothing, nothing)
    edges = F.when(end > begin, F.array(enters, leaves)).otherwise(F.array(passes))
    return pieces.select(*_KEY, F.explode(edges).alias("edge")).select(*_KEY, "edge.*")
