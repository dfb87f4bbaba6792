"""The tables of a lake, as a report reads them: what is not there yet is empty."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from requite.spark import schemas


class Tables(NamedTuple):
    """A lake: a folder with one folder per table."""

    spark: SparkSession
    lake: str
    table_format: str = "parquet"

    def read(self, name: str) -> DataFrame:
        """Return a table with the columns that `schemas` declares for it."""
        schema = getattr(schemas, name.upper())
        reader = self.spark.read.format(self.table_format).schema(schema)
        try:
            return reader.load(f"{self.lake.rstrip('/')}/{name}")
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], schema)


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a small frame as dicts; times are aware, in UTC."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows
