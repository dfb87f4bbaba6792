"""The example `neighbours`, which calls a service for every airport.

Most tests use 1,000 airports in the session of the tests. A long test runs the example for all
airports in a separate process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import neighbours
from examples.neighbours import compare, enrich
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark import spark_settings
from tests.support.live import BrokerProcess, Process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

AIRPORTS_MIN = 28_000
SOME = 1_000


@pytest.fixture(scope="module")
def broker_with_nearest() -> Iterator[BrokerProcess]:
    broker = BrokerProcess()
    worker = ("worker", "requite.examples:nearest", "--connect", broker.url)
    worker_process = Process("-m", "requite.cli", *worker)
    try:
        broker.await_workers("nearest", 1, within_s=30)
        yield broker
    finally:
        worker_process.dispose()
        broker.dispose()
        broker.forget_observer()


def check(output: str, folder: Path) -> int:
    """Assert that the example found no difference; return the number of airports with a reply."""
    assert "agree" in output
    [counted] = re.findall(r"\| *OK *\| *(\d+)\|", output)
    assert len(re.findall(r"^\| *[A-Z]\w+ *\| *\d+\|$", output, re.M)) == 1, "no other status"
    assert list(folder.glob("part-*.parquet"))
    return int(counted)


def test_some_airports_get_their_neighbours(
    spark: SparkSession,
    broker_with_nearest: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped: list[SparkSession] = []
    monkeypatch.setattr(neighbours, "local_session", lambda *_, **__: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda session: stopped.append(session))
    folder = tmp_path / "neighbours"
    code = neighbours.main([broker_with_nearest.url, str(folder), "--rows", str(SOME)])
    output = capsys.readouterr().out
    assert code == 0, output
    assert check(output, folder) == SOME
    assert stopped == [spark]


@pytest.mark.long
def test_the_example_runs_as_its_page_says(
    broker_with_nearest: BrokerProcess, processes: list[Process], tmp_path: Path
) -> None:
    folder = tmp_path / "neighbours"
    words = ["examples/neighbours.py", broker_with_nearest.url, str(folder)]
    example = Process(*words, **spark_settings.environment(tmp_path))
    processes.append(example)
    output = ""
    while "agree" not in output:
        output += example.line() + "\n"
    code, errors = example.ended()
    assert code == 0, errors
    assert check(output, folder) >= AIRPORTS_MIN


def test_compare_reports_a_wrong_neighbour(
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
