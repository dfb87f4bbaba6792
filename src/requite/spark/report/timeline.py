"""Reads latency, throughput and queue depth per step of time from a lake.

Steps shorter than a minute are computed from `silver_requests`, which then cover a few minutes at
most; longer ones from the gold tables. In both cases a query returns few rows per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.gold.latency import bucket_of, percentiles, upper_edge_ms
from requite.spark.lake import Lake
from requite.spark.report.bounded import rows_of
from requite.spark.report.facts import Depth, Flow, Pace, Span
from requite.spark.report.steps import SAMPLES, depths, is_fine
from requite.story.vocabulary import OK


def pace(lake: Lake, span: Span) -> tuple[Pace, ...]:
    """Return the latency percentiles of ended requests by step of their acceptance."""
    rows = rows_of(percentiles(_histogram(lake, span), "step").orderBy("step"))
    return tuple(
        Pace(span.began + row["step"] * span.step, row["p50_ms"], row["p95_ms"], row["p99_ms"])
        for row in rows
    )


def _histogram(lake: Lake, span: Span) -> DataFrame:
    if not is_fine(span):
        minutes = lake.table("gold_latency_histogram")
        return _within(minutes.withColumn("step", _step("minute", span)), span)
    ended = lake.table("silver_requests").where(F.col("total_ms").isNotNull())
    placed = ended.select(_step("accepted_at", span), bucket_of(F.col("total_ms")).alias("bucket"))
    counted = _within(placed, span).groupBy("step", "bucket").agg(F.count("*").alias("n"))
    return counted.withColumn("upper_ms", upper_edge_ms(F.col("bucket")))


def flow(lake: Lake, span: Span, services: Sequence[str]) -> tuple[Flow, ...]:
    """Return ended requests by step and service; services not in `services` are summed.

    Short steps count requests when they ended, others when they were accepted.
    """
    if is_fine(span):
        ended = lake.table("silver_requests").where(F.col("finished_at").isNotNull())
        good = (F.col("outcome") == OK).cast("bigint")
        frame = ended.select(
            _step("finished_at", span), "service", good.alias("replied"), (1 - good).alias("failed")
        )
    else:
        counts = lake.table("gold_service_minute")
        frame = counts.select(_step("minute", span), "service", "replied", "failed")
    name = F.when(F.col("service").isin(*services), F.col("service")).otherwise(F.lit(""))
    sums = (F.sum("replied").alias("replied"), F.sum("failed").alias("failed"))
    grouped = _within(frame, span).groupBy("step", name.alias("name")).agg(*sums)
    return tuple(
        Flow(span.began + row["step"] * span.step, row["name"], row["replied"], row["failed"])
        for row in rows_of(grouped.orderBy("step", "name"))
    )


def queue(lake: Lake, span: Span) -> tuple[Depth, ...]:
    """Return the number of waiting requests by step.

    In short steps, requests wait from acceptance to the start of work, including the time without a
    broker; in others, in the brokers' queues.
    """
    return _sampled_queue(lake, span) if is_fine(span) else _queue_of_minutes(lake, span)


def _queue_of_minutes(lake: Lake, span: Span) -> tuple[Depth, ...]:
    """Sum the services' depths per minute; then take maximum and mean per step."""
    minutes = (
        lake.table("gold_queue_depth")
        .groupBy("minute")
        .agg(
            F.sum("max_depth").alias("deepest"),
            F.sum("avg_depth").alias("average"),
            F.max("oldest_age_s").alias("oldest"),
        )
    )
    steps = minutes.groupBy(_step("minute", span)).agg(
        F.max("deepest").alias("deepest"),
        F.avg("average").alias("average"),
        F.max("oldest").alias("oldest"),
    )
    return tuple(
        Depth(span.began + row["step"] * span.step, row["deepest"], row["average"], row["oldest"])
        for row in rows_of(_within(steps, span).orderBy("step"))
    )


def _sampled_queue(lake: Lake, span: Span) -> tuple[Depth, ...]:
    requests = lake.table("silver_requests").where(F.col("accepted_at").isNotNull())
    left = F.coalesce("started_at", "finished_at")
    sample = span.step / SAMPLES
    changes = F.array(
        F.struct(_number("accepted_at", span, sample).alias("sample"), F.lit(1).alias("change")),
        F.struct(_number(left, span, sample).alias("sample"), F.lit(-1).alias("change")),
    )
    summed = (
        requests.select(F.explode(changes).alias("c"))
        .where(F.col("c.sample").isNotNull())
        .groupBy("c.sample")
        .agg(F.sum("c.change").alias("change"))
    )
    waited = (F.unix_micros(left) - F.unix_micros("accepted_at")) / 1e6
    longest = _within(requests.groupBy(_step(left, span)).agg(F.max(waited).alias("oldest")), span)
    return depths(
        span,
        {row["sample"]: row["change"] for row in rows_of(summed)},
        {row["step"]: max(row["oldest"], 0.0) for row in rows_of(longest)},
    )


def _step(at: str | Column, span: Span) -> Column:
    return _number(at, span, span.step).alias("step")


def _number(at: str | Column, span: Span, length: timedelta) -> Column:
    """Return the number of an instant's step of a given length since the span's beginning."""
    microsecond = timedelta(microseconds=1)
    began, step = round(span.began.timestamp() * 1_000_000), length // microsecond
    return F.floor((F.unix_micros(at) - began) / step)


def _within(frame: DataFrame, span: Span) -> DataFrame:
    return frame.where(F.col("step").between(0, len(span.steps) - 1))
