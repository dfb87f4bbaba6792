"""Collects rows of small or limited DataFrames."""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

Row: TypeAlias = dict[str, Any]


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows of a small DataFrame as dicts; times are aware, in UTC."""
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def first_of(frame: DataFrame, most: int, *order: Column) -> tuple[int, list[Row]]:
    """Return the number of rows of a DataFrame, and its first `most` rows in an order."""
    counted = frame.withColumn("known", F.count("*").over(Window.partitionBy(F.lit(1))))
    rows = rows_of(counted.orderBy(*order).limit(most))
    known = [row.pop("known") for row in rows]
    return (known[0] if known else 0), rows
