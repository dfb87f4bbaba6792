"""Advice: how many workers and client slots a service needs, and how long its callers should wait.

workers   enough that at the busiest window a share of `target` of their servers is busy, and at
          least two, so that one may be lost
slots     C = P × L, from the slotted client's P = C / L (RPC over AMQP, "Limits on throughput"):
          what all clients together need to carry the highest rate P when a reply takes L, for
          which the 99th percentile stands rather than the mean
timeout   twice that latency, and what it takes to notice a lost worker in between: a request
          whose worker dies can still be answered by another one in time
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.heartbeat import INTERVAL_S_DEFAULT, LIVENESS_DEFAULT
from requite.spark.gold.latency import percentiles

TARGET: Final = 0.7
"""Above it queues grow fast: at 70 % of one server the wait is 2.3 services long, at 90 % nine."""

WORKERS_MIN: Final = 2
NOTICE_S: Final = INTERVAL_S_DEFAULT * LIVENESS_DEFAULT

_ROUND_MS: Final = 10
_ROUNDING: Final = 1e-9  # 2.1 / 0.7 is a little more than 3


def gold_rightsizing(
    capacity: DataFrame,
    histogram: DataFrame,
    *,
    target: float = TARGET,
    notice_s: float = NOTICE_S,
) -> DataFrame:
    """Advise each service, from the windows and latencies that are given (a week of them, say)."""
    peaks = _peaks(capacity).join(percentiles(histogram, "service"), "service", "left")
    sized = peaks.withColumns(
        {
            "per_worker": F.coalesce(F.try_divide("peak.servers", "peak.workers"), F.lit(1.0)),
            "slots": F.ceil(F.col("rate") * F.col("p99") / 1000).cast("int"),
            "timeout_ms": _timeout_ms(F.col("p99"), notice_s),
        }
    ).withColumn("recommended", _workers(target))
    return sized.select(
        F.col("service").alias("group"),
        "current",
        "recommended",
        F.lit(target).alias("target_utilisation"),
        "slots",
        "timeout_ms",
        _reason(target, notice_s).alias("reason"),
    )


def _peaks(capacity: DataFrame) -> DataFrame:
    """Find the window with the most busy servers, the highest rate, and the workers of today."""
    window = F.struct("window", "arrival_rate", "service_s", "busy_servers", "workers", "servers")
    return capacity.groupBy("service").agg(
        F.max_by(window, F.struct("busy_servers", "window")).alias("peak"),
        F.max("arrival_rate").alias("rate"),
        F.max_by("workers", "window").alias("current"),
    )


def _workers(target: float) -> Column:
    exact = F.col("peak.busy_servers") / target / F.greatest("per_worker", F.lit(1.0))
    needed = F.ceil(exact - _ROUNDING).cast("int")
    known = F.col("peak.service_s").isNotNull()
    return F.when(known, F.greatest(needed, F.lit(WORKERS_MIN)))


def _timeout_ms(p99: Column, notice_s: float) -> Column:
    return (F.ceil((2 * p99 + notice_s * 1000) / _ROUND_MS) * _ROUND_MS).cast("bigint")


def _reason(target: float, notice_s: float) -> Column:
    unknown = F.lit("No worker has answered anything, so there is nothing to reckon with.")
    sentences = F.concat_ws(" ", _load(), _advice(target), _slots(notice_s))
    return F.when(F.col("peak.service_s").isNull(), unknown).otherwise(sentences)


def _load() -> Column:
    return F.format_string(
        "In the busiest minute (%s UTC) %,.1f requests/s of %,.2f ms each kept %,.2f servers busy.",
        F.date_format("peak.window", "yyyy-MM-dd HH:mm"),
        F.col("peak.arrival_rate"),
        F.col("peak.service_s") * 1000,
        F.col("peak.busy_servers"),
    )


def _advice(target: float) -> Column:
    recommended, current = F.col("recommended"), F.col("current")
    change = (
        F.when(recommended > current, F.format_string("add %d", recommended - current))
        .when(recommended < current, F.format_string("%d could go", current - recommended))
        .otherwise(F.lit("keep them"))
    )
    return F.format_string(
        "To keep %d %% of them busy, with %,.1f per worker and never fewer than %d workers, takes "
        "%d; there are %d: %s.",
        F.lit(round(target * 100)),
        F.col("per_worker"),
        F.lit(WORKERS_MIN),
        recommended,
        current,
        change,
    )


def _slots(notice_s: float) -> Column:
    return F.format_string(
        "99 %% of the replies took at most %,.2f ms, so %,.1f requests/s occupy %d client slots "
        "(C = P × L); the timeout leaves room for that latency twice, and %,.1f s to notice a lost "
        "worker.",
        F.col("p99"),
        F.col("rate"),
        F.col("slots"),
        F.lit(notice_s),
    )
