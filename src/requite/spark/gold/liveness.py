"""Workers as seen by the brokers: first and last contact, gaps, load, and status."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.core.liveness import INTERVAL_S_DEFAULT, LIVENESS_DEFAULT
from requite.spark.clock import Instant, micros
from requite.story.vocabulary import HEARTBEAT, WORKER_DRAINED, WORKER_JOINED, WORKER_LOST

GAP_S: Final = 2 * INTERVAL_S_DEFAULT
"""A silence longer than this is a gap: a heartbeat is late by a whole interval."""

SILENT_S: Final = LIVENESS_DEFAULT * INTERVAL_S_DEFAULT
"""A worker without events for this long is silent, if its broker still journals others."""


def gold_worker_liveness(
    heartbeats: DataFrame, now: Instant, *, gap_s: float = GAP_S, silent_s: float = SILENT_S
) -> DataFrame:
    """Summarise each worker from all `silver_heartbeats`; `status` is as of `now`.

    Status: `alive`; `lost`: a broker considered it lost; `drained`: it signed off; `silent`:
    neither, but it has no events for `silent_s`. `last_seen` is the last message from the worker,
    before the silence of a loss or a gap. `busy_fraction` is the mean share of its capacity in use.
    """
    kind, ts, gap = F.col("kind"), F.col("ts"), F.coalesce("gap_s", F.lit(0.0))
    heard_at = F.timestamp_micros(micros(ts) - F.round(gap * 1e6).cast("bigint"))
    beating = (kind == HEARTBEAT) & (F.col("capacity") > 0)
    known = heartbeats.where(F.col("worker").isNotNull())
    grouped = known.groupBy("worker", "service").agg(
        F.min(heard_at).alias("first_seen"),
        F.max(heard_at).alias("last_seen"),
        F.count_if(gap > gap_s).alias("gaps"),
        F.max(gap).alias("longest_gap_s"),
        F.avg(F.when(beating, F.col("busy") / F.col("capacity"))).alias("busy_fraction"),
        F.max(ts).alias("told_at"),
        F.max(F.when(kind == WORKER_JOINED, ts)).alias("joined_at"),
        F.max(F.when(kind == WORKER_LOST, ts)).alias("lost_at"),
        F.max(F.when(kind == WORKER_DRAINED, ts)).alias("drained_at"),
    )
    columns = "first_seen", "last_seen", "gaps", "longest_gap_s", "busy_fraction"
    return grouped.select("worker", "service", *columns, _status(now, silent_s).alias("status"))


def _status(now: Instant, silent_s: float) -> Column:
    """Return the status of a worker; a lost one may have joined again."""
    joined_at = F.col("joined_at")

    def has_left(at: str) -> Column:
        return F.col(at).isNotNull() & (joined_at.isNull() | (F.col(at) >= joined_at))

    silence_us = micros(F.lit(now)) - micros(F.col("told_at"))
    return (
        F.when(has_left("drained_at"), "drained")
        .when(has_left("lost_at"), "lost")
        .when(silence_us > round(silent_s * 1e6), "silent")
        .otherwise("alive")
    )
