"""The example that asks a service for every airport, run as its page says; long: on all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples.neighbours import compare, enrich
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark import once
from tests.support.live import BrokerProcess, Process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

AIRPORTS_MIN = 28_000
SOME = 1_000


@pytest.fixture
def broker_with_nearest(processes: list[Process]) -> BrokerProcess:
    broker = BrokerProcess()
    worker = ("worker", "requite.examples:nearest", "--connect", broker.url)
    processes += [broker, Process("-m", "requite.cli", *worker)]
    broker.await_workers("nearest", 1, within_s=30)
    return broker


@pytest.mark.parametrize("rows", [SOME, pytest.param(None, marks=pytest.mark.long)])
def test_it_runs_as_its_page_says(
    broker_with_nearest: BrokerProcess, processes: list[Process], tmp_path: Path, rows: int | None
) -> None:
    folder = tmp_path / "neighbours"
    words = ["examples/neighbours.py", broker_with_nearest.url, str(folder)]
    words += [] if rows is None else ["--rows", str(rows)]
    example = Process(*words, **once.environment(tmp_path))
    processes.append(example)
    output = ""
    while "agree" not in output:
        output += example.line() + "\n"
    code, errors = example.ended()
    assert code == 0, errors
    [counted] = re.findall(r"\| *OK *\| *(\d+)\|", output)
    assert int(counted) == rows if rows else int(counted) >= AIRPORTS_MIN
    assert len(re.findall(r"^\| *[A-Z]\w+ *\| *\d+\|$", output, re.M)) == 1, "no other status"
    assert list(folder.glob("part-*.parquet"))


def test_a_wrong_neighbour_would_be_noticed(
    spark: SparkSession, broker_with_nearest: BrokerProcess, tmp_path: Path
) -> None:
    found = enrich(spark, broker_with_nearest.url, str(tmp_path / "some"), rows=50)
    assert compare(found) == []

    def changed(column: str, value: object) -> DataFrame:
        return found.withColumn(
            column, F.when(F.col("icao") == first, F.lit(value)).otherwise(F.col(column))
        )

    first = found.collect()[0].icao
    for column, value in (("neighbour", "XXXX"), ("metres", 1)):
        [line] = compare(changed(column, value))
        assert line.startswith(f"{first}: the service says")
