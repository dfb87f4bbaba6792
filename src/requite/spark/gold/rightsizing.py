"""Recommends the number of workers and client slots, and the timeout, for each service.

workers   enough that in the busiest minute a share of `target` of their servers is busy, and at
          least two, so that one may be lost
slots     C = P × L, from the slotted client's P = C / L (RPC over AMQP, "Limits on throughput"):
          the slots that all clients together need for the highest rate P at a latency of L, for
          which the 99th percentile is used rather than the mean
timeout   twice that latency, plus the time to detect a lost worker: a request whose worker crashes
          can still be answered by another one in time

L is the latency of OK replies: the duration of other requests depends on their callers' timeouts,
and advice from these would only confirm the timeouts. L is at least the mean time of the busiest
minute's requests from queueing to the end of the work: if callers give up early, only the fastest
replies arrive.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.core.liveness import INTERVAL_S_DEFAULT, LIVENESS_DEFAULT
from requite.spark.gold.latency import bucket_of, percentiles, upper_edge_ms
from requite.story.vocabulary import MANAGEMENT, OK

TARGET: Final = 0.7
"""Above it queues grow fast: the wait on one server is 2.3 service times at 70 %, 9 at 90 %."""

WORKERS_MIN: Final = 2
NOTICE_S: Final = INTERVAL_S_DEFAULT * LIVENESS_DEFAULT

_ROUND_MS: Final = 10
_SMALLEST: Final = 0.01
_ROUNDING: Final = 1e-9  # 2.1 / 0.7 is a little more than 3


def gold_rightsizing(
    capacity: DataFrame,
    requests: DataFrame,
    *,
    target: float = TARGET,
    notice_s: float = NOTICE_S,
) -> DataFrame:
    """Compute recommendations per service from `gold_capacity` and `silver_requests`.

    The brokers' own services (`mmi.`) are left out.
    """
    peaks = _peaks(capacity.where(~F.col("service").startswith(MANAGEMENT)))
    sized = peaks.join(_replies(requests), "service", "left").withColumns(
        {
            "per_worker": F.coalesce(F.try_divide("peak.servers", "peak.workers"), F.lit(1.0)),
            "reply_ms": _reply_ms(),
        }
    )
    advised = sized.withColumns(
        {
            "slots": F.ceil(F.col("rate") * F.col("reply_ms") / 1000).cast("int"),
            "timeout_ms": _timeout_ms(F.col("reply_ms"), notice_s),
            "recommended": _workers(target),
        }
    )
    return advised.select(
        "service",
        "current",
        "recommended",
        F.lit(target).alias("target_utilisation"),
        "slots",
        "timeout_ms",
        _reason(target, notice_s).alias("reason"),
    )


def _peaks(capacity: DataFrame) -> DataFrame:
    """Return the minute with the most busy servers, the highest rate, and the latest workers."""
    columns = "minute", "arrival_rate", "service_s", "measured_wait_ms"
    whole = F.struct(*columns, "busy_servers", "workers", "servers")
    return capacity.groupBy("service").agg(
        F.max_by(whole, F.struct("busy_servers", "minute")).alias("peak"),
        F.max("arrival_rate").alias("rate"),
        F.max_by("workers", "minute").alias("current"),
    )


def _replies(requests: DataFrame) -> DataFrame:
    """Return the latency percentiles of OK replies, by service."""
    replied = requests.where((F.col("outcome") == OK) & F.col("total_ms").isNotNull())
    counted = replied.groupBy("service", bucket_of(F.col("total_ms")).alias("bucket")).agg(
        F.count("*").alias("n")
    )
    return percentiles(counted.withColumn("upper_ms", upper_edge_ms(F.col("bucket"))), "service")


def _reply_ms() -> Column:
    """Return the latency to plan for; null without an OK reply."""
    wait_ms = F.coalesce("peak.measured_wait_ms", F.lit(0.0))
    least = F.col("peak.service_s") * 1000 + wait_ms
    return F.when(F.col("p99_ms").isNotNull(), F.greatest("p99_ms", least))


def _workers(target: float) -> Column:
    exact = F.col("peak.busy_servers") / target / F.greatest("per_worker", F.lit(1.0))
    needed = F.ceil(exact - _ROUNDING).cast("int")
    known = F.col("peak.service_s").isNotNull()
    return F.when(known, F.greatest(needed, F.lit(WORKERS_MIN)))


def _timeout_ms(reply_ms: Column, notice_s: float) -> Column:
    return (F.ceil((2 * reply_ms + notice_s * 1000) / _ROUND_MS) * _ROUND_MS).cast("bigint")


def _reason(target: float, notice_s: float) -> Column:
    unknown = F.lit("No worker has answered a request, so there is no data for a recommendation.")
    sentences = F.concat_ws(" ", _load(), _advice(target), _slots(notice_s))
    return F.when(F.col("peak.service_s").isNull(), unknown).otherwise(sentences)


def _load() -> Column:
    return F.format_string(
        "In the busiest minute (%s UTC) %s of %s each kept %s servers busy.",
        F.date_format("peak.minute", "yyyy-MM-dd HH:mm"),
        _rate(F.col("peak.arrival_rate")),
        _duration(F.col("peak.service_s") * 1000),
        _figure(F.col("peak.busy_servers")),
    )


def _advice(target: float) -> Column:
    recommended, current = F.col("recommended"), F.col("current")
    change = (
        F.when(recommended > current, F.format_string("add %d", recommended - current))
        .when(recommended < current, F.format_string("%d could go", current - recommended))
        .otherwise(F.lit("keep them"))
    )
    return F.format_string(
        "Keeping %d %% of them busy, with %s per worker and at least %d workers, takes "
        "%d workers; there are %d: %s.",
        F.lit(round(target * 100)),
        _figure(F.col("per_worker")),
        F.lit(WORKERS_MIN),
        recommended,
        current,
        change,
    )


def _slots(notice_s: float) -> Column:
    nothing = F.lit(
        "No reply was OK, so the latency is unknown, and there is no recommendation for slots and "
        "timeout."
    )
    latency = F.format_string("99 %% of the replies took at most %s", _duration(F.col("p99_ms")))
    longer = F.format_string(
        ", and in the busiest minute waiting and work took %s on average",
        _duration(F.col("reply_ms")),
    )
    known = F.format_string(
        "%s%s, so %s occupy %d client slots (C = P × L); the timeout is twice that latency plus "
        "%s s to detect a lost worker.",
        latency,
        F.when(F.col("reply_ms") > F.col("p99_ms"), longer).otherwise(F.lit("")),
        _rate(F.col("rate")),
        F.col("slots"),
        _figure(F.lit(notice_s)),
    )
    return F.when(F.col("p99_ms").isNull(), nothing).otherwise(known)


# --- figures, formatted as in the report's tables -------------------------------------------------
def _figure(value: Column) -> Column:
    """Format a number with about three digits; only 0 becomes 0."""
    return (
        F.when(value >= 100, F.format_string("%,.0f", value))
        .when(value >= 10, F.format_string("%.1f", value))
        .when((value >= _SMALLEST) | (value == 0), F.format_string("%.2f", value))
        .otherwise(F.lit(f"less than {_SMALLEST:g}"))
    )


def _rate(per_second: Column) -> Column:
    """Format a rate in the smallest unit of time in which it is at least 1, else per day."""

    def unit(seconds: int, name: str) -> Column:
        return F.struct(F.lit(seconds).alias("seconds"), F.lit(f" requests/{name}").alias("name"))

    chosen = (
        F.when(per_second >= 1, unit(1, "s"))
        .when(per_second * 60 >= 1, unit(60, "min"))
        .when(per_second * 3600 >= 1, unit(3600, "h"))
        .otherwise(unit(86400, "day"))
    )
    return F.concat(_figure(per_second * chosen["seconds"]), chosen["name"])


def _duration(ms: Column) -> Column:
    is_short = ms < 1000
    figure = _figure(F.when(is_short, ms).otherwise(ms / 1000))
    return F.concat(figure, F.when(is_short, " ms").otherwise(" s"))
