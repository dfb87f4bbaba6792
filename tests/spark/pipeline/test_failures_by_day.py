"""Failures whose reasons differ only in numbers, ids or quoted text are one row."""

from __future__ import annotations

from datetime import date
from typing import Any

from pyspark.sql import SparkSession
from tests.spark.events import collect, instant, rows_frame, schema_names

from requite.spark import schemas
from requite.spark.gold.failures import gold_failures, over_days

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


def failed(number: int, reason: str | None, **columns: Any) -> dict[str, Any]:
    row = {"request_id": f"{number:032x}", "service": "echo", "outcome": "FAILED", "date": MONDAY}
    row |= {"finished_at": instant(number), "error_class": "RemoteFailure", "reason": reason}
    return row | columns


def test_similar_failures_are_grouped(spark: SparkSession) -> None:
    rows = [
        failed(1, "ValueError: bad row 17 of 'a.csv'"),
        failed(2, "ValueError: bad row 18 of 'b.csv'"),
        failed(3, 'valueerror: bad row 1,234.5 of "c.csv"', date=TUESDAY),
        failed(4, "KeyError: deadbeefdeadbeef"),
        failed(5, "KeyError: 0123456789abcdef"),
        failed(6, None, error_class=None, outcome="POISONED"),
        failed(7, "ValueError: bad row 17 of 'a.csv'", service="sum"),
        failed(8, "the queue is full", outcome="OVERLOADED"),
        failed(9, None, outcome="OK", error_class=None),
    ]
    frame = gold_failures(rows_frame(spark, rows, schemas.SILVER_REQUESTS))
    assert sorted(frame.columns) == sorted(schema_names(schemas.GOLD_FAILURES))
    by_day = collect(frame)
    assert len(by_day) == 5
    found = sorted(collect(over_days(frame)), key=lambda row: row["first_seen"])
    assert [row["n"] for row in found] == [3, 2, 1, 1]
    assert [row["error_class"] for row in found][2] == "POISONED"
    first = found[0]
    assert (first["first_seen"], first["last_seen"]) == (instant(1), instant(3))
    assert first["sample_request_id"] == f"{1:032x}"
    assert first["fingerprint"] == found[3]["fingerprint"]
    assert first["fingerprint"] != found[1]["fingerprint"]
