"""The local session of tests and runs: time zone, Python workers, warnings, addresses."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(180)  # the first test of a run starts the JVM


def test_instants_are_utc(spark: SparkSession) -> None:
    query = "SELECT unix_seconds(timestamp'2026-03-01 12:00:00') AS seconds"
    instant = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert spark.sql(query).collect()[0].seconds == instant.timestamp()


def test_workers_run_this_python(spark: SparkSession) -> None:
    def name_python(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for batch in batches:
            names = [sys.executable] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(names)], names=["python"])

    rows = spark.range(2).mapInArrow(name_python, "python string").collect()
    assert {row.python for row in rows} == {sys.executable}


def test_pandas_and_streams_raise_no_warning(spark: SparkSession) -> None:
    import pandas as pd

    frame = spark.createDataFrame(pd.DataFrame({"n": [1, 2, 3]}))
    assert frame.toPandas()["n"].sum() == 6
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = stream.writeStream.format("memory").queryName("rates")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert spark.table("rates").count() == 5


def test_there_is_one_session(spark: SparkSession) -> None:
    from requite.spark.session import local_session

    assert local_session("another") is spark


def test_spark_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
