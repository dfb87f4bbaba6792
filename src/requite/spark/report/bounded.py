"""Rows of frames that are small, or are made so."""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

Row: TypeAlias = dict[str, Any]


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows of a small frame as dicts; times are aware, in UTC."""
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def first_of(frame: DataFrame, most: int, *order: Column) -> tuple[int, list[Row]]:
    """Return how many rows a frame of thousands has, and the first of them in an order."""
    counted = frame.withColumn("known", F.count("*").over(Window.partitionBy(F.lit(1))))
    rows = rows_of(counted.orderBy(*order).limit(most))
    known = [row.pop("known") for row in rows]
    return (known[0] if known else 0), rows
