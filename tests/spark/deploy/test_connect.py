"""Spark Connect: functions of requite, called by a client without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark.bulk.services import Recorded
from tests.spark.deploy.client import ROWS
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.support.live import Process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(500)]

WITHIN_S = 240


@pytest.fixture(scope="module")
def results(connect_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of the client, which runs once, because its start takes long."""
    folder = tmp_path_factory.mktemp("connect")
    return run_client(connect_url, folder, "journal", "calls", "sweep", "alerts")


def run_client(url: str, folder: Path, *parts: str) -> Any:
    """Write a journal, and run a client over it; return the results of its parts."""
    write_journal(folder / "journal")
    recorded = Recorded()
    words = ("-m", "tests.spark.deploy.client", url, recorded.url(), str(folder))
    client = Process(*words, *parts)
    try:
        results = json.loads(client.line())
        code, errors = client.ended(WITHIN_S)
        assert code == 0, errors
        return results
    finally:
        client.dispose()
        recorded.close()


def test_the_client_uses_spark_connect(results: Any) -> None:
    assert results["session"].startswith("pyspark.sql.connect")


def test_the_journal_is_a_table(results: Any) -> None:
    counts = results["journal"]
    assert counts["accepted"] == ACCEPTED
    assert counts["answered"] == counts["dispatched"] == ENDED


def test_bulk_calls_are_made_by_the_server(results: Any) -> None:
    assert results["calls"] == {"statuses": ["OK"], "right": ROWS, "keys": ROWS}


def test_seeds_are_run_by_the_server(results: Any) -> None:
    assert results["sweep"] == ["OK", "OK", "OK"]


def test_the_streaming_audit_runs_on_the_server(results: Any) -> None:
    assert results["alerts"] == ["MISSED_DEADLINE"]


@pytest.mark.long
def test_the_runner_runs_on_the_server(connect_url: str, tmp_path: Path) -> None:
    results = run_client(connect_url, tmp_path, "run")
    audit = results["run"]["audit"]
    assert audit["accepted"] == ACCEPTED
    assert audit["exactly_one"] == ENDED
    assert audit["missing"] == 1
    assert not results["run"]["ok"]
