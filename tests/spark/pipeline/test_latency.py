"""Histograms and percentiles: exact counts, merged by addition, with an error of at most 2 %."""

from __future__ import annotations

import random
from math import ceil, log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.events import collect, instant, rows_frame, schema_names
from tests.spark.pipeline import model

from requite.spark import schemas
from requite.spark.gold.latency import (
    GROWTH,
    LOWEST_MS,
    PERCENTILES,
    bucket_of,
    gold_latency_histogram,
    gold_service_minute,
    percentiles,
    upper_edge_ms,
)


def test_an_edge_is_never_too_low_and_at_most_two_percent_too_high(spark: SparkSession) -> None:
    rng = random.Random(1)
    micros = [1, 2, 3, 49, 50, 51, *(round(10 ** rng.uniform(0, 11)) for _ in range(5000))]
    edges = [round(1.02**bucket) for bucket in range(1, 1270)]
    values = [each / 1000 for each in (*micros, *edges)]
    frame = rows_frame(spark, [{"ms": value} for value in values], "ms double")
    rows = collect(frame.select("ms", upper_edge_ms(bucket_of(F.col("ms"))).alias("upper")))
    assert len(rows) == len(values)
    for row in rows:
        assert row["ms"] <= row["upper"] * (1 + 1e-9)
        assert row["upper"] <= row["ms"] * GROWTH * (1 + 1e-9)


def test_values_below_the_resolution_are_in_the_first_bucket(spark: SparkSession) -> None:
    frame = rows_frame(spark, [{"ms": 0.0}, {"ms": LOWEST_MS}], "ms double")
    rows = collect(frame.select(bucket_of(F.col("ms")).alias("bucket")))
    assert [row["bucket"] for row in rows] == [0, 0]


@given(
    st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99])
)
def test_nearest_rank_on_edges_keeps_the_bound(values: list[float], share: float) -> None:
    buckets = sorted(ceil(log(value / LOWEST_MS) / log(GROWTH)) for value in values)
    read = LOWEST_MS * GROWTH ** buckets[ceil(share * len(values)) - 1]
    true = model.percentile(values, share)
    assert true * (1 - 1e-9) <= read <= true * GROWTH * (1 + 1e-9)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Requests of two services over three minutes."""
    rng = random.Random(2)
    made: list[dict[str, Any]] = []
    for number in range(600):
        at = instant(rng.uniform(0, 180))
        row = {
            "request_id": f"{number:032x}",
            "service": rng.choice(("echo", "sum")),
            "accepted_at": at,
            "outcome": rng.choice(("OK", "OK", "OK", "FAILED", None)),
            "ends": rng.choice((1, 1, 1, 2)),
            "attempts": rng.choice((0, 1, 1, 2, 3)),
            "total_ms": round(rng.lognormvariate(2, 1.5), 3),
            "date": at.date(),
        }
        if row["outcome"] is None:
            row |= {"total_ms": None, "ends": 0}
        made.append(row)
    made.append({"request_id": "orphan", "service": "echo", "outcome": "OK", "date": at.date()})
    return made


@pytest.fixture(scope="module")
def requests(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return rows_frame(spark, rows, schemas.SILVER_REQUESTS)


def grouped(rows: list[dict[str, Any]]) -> dict[tuple[Any, str], list[dict[str, Any]]]:
    groups: dict[tuple[Any, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("accepted_at"):
            key = model.minute(row["accepted_at"]), row["service"]
            groups.setdefault(key, []).append(row)
    return groups


def test_minutes_match_the_model(requests: DataFrame, rows: list[dict[str, Any]]) -> None:
    frame = gold_service_minute(requests)
    assert frame.columns == schema_names(schemas.GOLD_SERVICE_MINUTE)
    found = {(row["minute"], row["service"]): row for row in collect(frame)}
    expected = grouped(rows)
    assert found.keys() == expected.keys()
    for key, group in expected.items():
        row, times = found[key], [each["total_ms"] for each in group if each["outcome"]]
        assert row["accepted"] == len(group)
        assert row["replied"] == sum(each["outcome"] == "OK" for each in group)
        assert row["failed"] == sum(each["outcome"] == "FAILED" for each in group)
        assert row["retries"] == sum(max(each["attempts"] - 1, 0) for each in group)
        assert row["duplicates"] == sum(max(each["ends"] - 1, 0) for each in group)
        assert row["mean_ms"] == pytest.approx(sum(times) / len(times))
        for name, share in PERCENTILES.items():
            true = model.percentile(times, share)
            assert true * (1 - 1e-9) <= row[name] <= true * GROWTH * (1 + 1e-9)


def test_histograms_merge_by_addition(requests: DataFrame, rows: list[dict[str, Any]]) -> None:
    histogram = gold_latency_histogram(requests)
    assert histogram.columns == schema_names(schemas.GOLD_LATENCY_HISTOGRAM)
    merged = {row["service"]: row for row in collect(percentiles(histogram, "service"))}
    for service, row in merged.items():
        times = [
            each["total_ms"]
            for each in rows
            if each["service"] == service and each["outcome"] and each.get("accepted_at")
        ]
        for name, share in PERCENTILES.items():
            true = model.percentile(times, share)
            assert true * (1 - 1e-9) <= row[name] <= true * GROWTH * (1 + 1e-9)
    assert sum(row["n"] for row in collect(histogram)) == sum(
        bool(row["outcome"] and row.get("accepted_at")) for row in rows
    )
