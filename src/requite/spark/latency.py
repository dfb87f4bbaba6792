"""Latency: histograms of logarithmic buckets, and the percentiles and counts of each minute.

Bucket `b` counts latencies in (upper(b - 1), upper(b)], where upper(b) is 0.001 ms × 1.02^b; bucket
0 has everything up to 0.001 ms, the resolution of the journal. So a percentile read from a
histogram is the upper edge of the bucket in which the true one lies: never too low, and at most 2 %
too high. Histograms are exact counts: those of several minutes or services merge by adding `n`.

Requests count in the minute in which they were accepted, and with whatever outcome they ended: a
timeout is a long wait, not a missing value.
"""

from __future__ import annotations

from math import log
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from requite.spark.clock import minute_of
from requite.spark.vocabulary import OK

LOWEST_MS: Final = 0.001
GROWTH: Final = 1.02
PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

_KEY: Final = ("date", "minute", "service")


def bucket_of(latency_ms: Column) -> Column:
    """Return the number of the bucket in which a latency lies."""
    # Journals count whole microseconds, none of which is an edge but the first, for which the
    # logarithm is exact; so its rounding errors move nothing into a wrong bucket.
    ratio = F.greatest(latency_ms, F.lit(LOWEST_MS)) / LOWEST_MS
    return F.ceil(F.ln(ratio) / log(GROWTH)).cast("int")


def upper_edge_ms(bucket: Column) -> Column:
    """Return the highest latency that a bucket counts."""
    return F.lit(LOWEST_MS) * F.pow(F.lit(GROWTH), bucket)


def gold_latency_histogram(requests: DataFrame) -> DataFrame:
    """Count `silver_requests` that have ended by minute, service and bucket."""
    ended = requests.where(F.col("total_ms").isNotNull() & F.col("accepted_at").isNotNull())
    keyed = ended.select(
        minute_of(F.col("accepted_at")).alias("minute"),
        "service",
        bucket_of(F.col("total_ms")).alias("bucket"),
        "date",
    )
    counted = keyed.groupBy("minute", "service", "bucket", "date").agg(F.count("*").alias("n"))
    upper = upper_edge_ms(F.col("bucket")).alias("upper_ms")
    return counted.select("minute", "service", "bucket", upper, "n", "date")


def percentiles(histogram: DataFrame, *key: str) -> DataFrame:
    """Read the percentiles (nearest rank) of each group of histogram rows off its buckets."""
    merged = histogram.groupBy(*key, "bucket").agg(
        F.sum("n").alias("n"), F.max("upper_ms").alias("upper_ms")
    )
    group = Window.partitionBy(*key)
    so_far = group.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = merged.withColumns(
        {"reached": F.sum("n").over(so_far), "total": F.sum("n").over(group)}
    )
    return ranked.groupBy(*key).agg(
        *(
            F.min(F.when(F.col("reached") >= F.ceil(F.col("total") * share), F.col("upper_ms")))
            .alias(name)
            for name, share in PERCENTILES.items()
        )
    )  # fmt: skip


def gold_service_minute(requests: DataFrame, histogram: DataFrame) -> DataFrame:
    """Tell what each service was asked and how it answered, minute by minute.

    `failed` ended with anything but OK; `retries` are attempts beyond the first; `duplicates` are
    outcomes beyond the first.
    """
    accepted = requests.where(F.col("accepted_at").isNotNull())
    keyed = accepted.withColumn("minute", minute_of(F.col("accepted_at")))
    outcome = F.col("outcome")
    counted = keyed.groupBy(*_KEY).agg(
        F.count("*").alias("accepted"),
        F.count_if(outcome == OK).alias("replied"),
        F.count_if(outcome != OK).alias("failed"),
        F.sum(F.greatest(F.col("attempts") - 1, F.lit(0))).cast("bigint").alias("retries"),
        F.sum(F.greatest(F.col("outcomes") - 1, F.lit(0))).cast("bigint").alias("duplicates"),
        F.avg("total_ms").alias("mean_ms"),
    )
    joined = counted.join(percentiles(histogram, *_KEY), list(_KEY), "left")
    counts = "accepted", "replied", "failed", "retries", "duplicates"
    return joined.select("minute", "service", *counts, *PERCENTILES, "mean_ms", "date")
