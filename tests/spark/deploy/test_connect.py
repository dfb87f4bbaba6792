"""Over Spark Connect: the same functions, from a client that has no Spark of its own."""

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
def told(connect_url: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the client tells; it is run once, since all of this takes its time to start."""
    folder = tmp_path_factory.mktemp("connect")
    return ask(connect_url, folder, "journal", "calls", "sweep", "alerts")


def ask(url: str, folder: Path, *parts: str) -> Any:
    """Run a client that does some things; return what it tells of them."""
    write_journal(folder / "journal")
    recorded = Recorded()
    words = ("-m", "tests.spark.deploy.client", url, recorded.url(), str(folder))
    client = Process(*words, *parts)
    try:
        told = json.loads(client.line())
        code, errors = client.ended(WITHIN_S)
        assert code == 0, errors
        return told
    finally:
        client.dispose()
        recorded.close()


def test_the_client_has_no_spark_of_its_own(told: Any) -> None:
    assert told["session"].startswith("pyspark.sql.connect")


def test_the_journal_is_a_table(told: Any) -> None:
    counts = told["journal"]
    assert counts["accepted"] == ACCEPTED
    assert counts["answered"] == counts["dispatched"] == ENDED


def test_bulk_calls_are_made_by_the_server(told: Any) -> None:
    assert told["calls"] == {"statuses": ["OK"], "right": ROWS, "keys": ROWS}


def test_seeds_are_run_by_the_server(told: Any) -> None:
    assert told["sweep"] == ["OK", "OK", "OK"]


def test_the_streaming_audit_runs_on_the_server(told: Any) -> None:
    assert told["alerts"] == ["MISSED_DEADLINE"]


@pytest.mark.long
def test_the_runner_runs_on_the_server(connect_url: str, tmp_path: Path) -> None:
    told = ask(connect_url, tmp_path, "run")
    audit = told["run"]["audit"]
    assert audit["accepted"] == ACCEPTED
    assert audit["exactly_one"] == ENDED
    assert audit["missing"] == 1
    assert not told["run"]["ok"]
