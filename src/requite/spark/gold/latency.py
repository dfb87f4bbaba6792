"""Latency: histograms with logarithmic buckets, and percentiles and counts per minute.

Bucket `b` counts latencies in (upper(b - 1), upper(b)], where upper(b) is 0.001 ms × 1.02^b; bucket
0 has everything up to 0.001 ms, the resolution of the journal. A percentile read from a histogram
is the upper edge of the bucket that contains the true one: never too low, and at most 2 % too high.
Buckets hold exact counts: histograms of several minutes or services merge by adding `n`.

Requests count in the minute of their acceptance, with any outcome: a timeout is a long wait, not a
missing value.
"""

from __future__ import annotations

from math import log
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.clock import minute_of
from requite.story.vocabulary import OK

LOWEST_MS: Final = 0.001
GROWTH: Final = 1.02
PERCENTILES: Final = {"p50_ms": 0.50, "p95_ms": 0.95, "p99_ms": 0.99}


def bucket_of(latency_ms: Column) -> Column:
    """Return the bucket number of a latency."""
    # Latencies are whole microseconds, and only the first is an edge, where the logarithm is
    # exact: rounding errors move no latency into a wrong bucket.
    ratio = F.greatest(latency_ms, F.lit(LOWEST_MS)) / LOWEST_MS
    bucket = F.ceil(F.ln(ratio) / log(GROWTH)).cast("int")
    return F.when(latency_ms.isNotNull(), bucket)


def upper_edge_ms(bucket: Column) -> Column:
    """Return the upper edge of a bucket."""
    return F.lit(LOWEST_MS) * F.pow(F.lit(GROWTH), bucket)


def gold_latency_histogram(requests: DataFrame) -> DataFrame:
    """Count the ended `silver_requests` by minute, service and bucket."""
    ended = _by_bucket(requests).where(F.col("bucket").isNotNull())
    upper = upper_edge_ms(F.col("bucket")).alias("upper_ms")
    return ended.select("minute", "service", "bucket", upper, "n", "date")


def percentiles(histogram: DataFrame, *key: str) -> DataFrame:
    """Return the percentiles (nearest rank) of each group of histogram rows."""
    merged = histogram.groupBy(*key, "bucket").agg(
        F.sum("n").alias("n"), F.max("upper_ms").alias("upper_ms")
    )
    bars = F.sort_array(F.collect_list(F.struct("bucket", "n", "upper_ms")))
    grouped = merged.groupBy(*key).agg(F.sum("n").alias("n"), bars.alias("bars"))
    return grouped.select(*key, *_ranks(F.col("bars"), F.col("n")))


def _ranks(bars: Column, total: Column) -> list[Column]:
    """Return the percentiles of sorted bars."""
    return [_rank(bars, F.ceil(total * share)).alias(name) for name, share in PERCENTILES.items()]


def _rank(bars: Column, wanted: Column) -> Column:
    """Return the upper edge of the bar at which the cumulative count reaches `wanted`."""
    start = F.struct(
        F.lit(0).cast("bigint").alias("reached"), F.lit(None).cast("double").alias("upper_ms")
    )

    def add(state: Column, bar: Column) -> Column:
        is_there = state["reached"] >= wanted
        upper_ms = F.when(is_there, state["upper_ms"]).otherwise(bar["upper_ms"])
        return F.struct((state["reached"] + bar["n"]).alias("reached"), upper_ms.alias("upper_ms"))

    return F.aggregate(bars, start, add, lambda state: state["upper_ms"])


def gold_service_minute(requests: DataFrame) -> DataFrame:
    """Count each service's requests and outcomes, with latency percentiles, per minute.

    `failed` ended with anything but OK; `retries` are attempts beyond the first; `duplicates` are
    ends beyond the first.
    """
    sums = "accepted", "replied", "failed", "retries", "duplicates"
    bar = F.struct("bucket", "n", upper_edge_ms(F.col("bucket")).alias("upper_ms"))
    bars = F.sort_array(F.collect_list(F.when(F.col("bucket").isNotNull(), bar)))
    counted = (
        _by_bucket(requests)
        .groupBy("date", "minute", "service")
        .agg(
            *(F.sum(name).alias(name) for name in sums),
            F.sum("spent_ms").alias("spent_ms"),
            F.sum("n").alias("n"),
            bars.alias("bars"),
        )
    )
    mean_ms = F.try_divide("spent_ms", "n").alias("mean_ms")
    ranks = _ranks(F.col("bars"), F.col("n"))
    return counted.select("minute", "service", *sums, *ranks, mean_ms, "date")


def _by_bucket(requests: DataFrame) -> DataFrame:
    """Count accepted requests by minute, service and bucket; bucket null: still open."""
    accepted = requests.where(F.col("accepted_at").isNotNull())
    keyed = accepted.withColumns(
        {"minute": minute_of(F.col("accepted_at")), "bucket": bucket_of(F.col("total_ms"))}
    )
    outcome, zero = F.col("outcome"), F.lit(0)
    return keyed.groupBy("date", "minute", "service", "bucket").agg(
        F.count("*").alias("accepted"),
        F.count_if(outcome == OK).alias("replied"),
        F.count_if(outcome != OK).alias("failed"),
        F.sum(F.greatest(F.col("attempts") - 1, zero).cast("bigint")).alias("retries"),
        F.sum(F.greatest(F.col("ends") - 1, zero).cast("bigint")).alias("duplicates"),
        F.sum("total_ms").alias("spent_ms"),
        F.count("total_ms").alias("n"),
    )
