"""Over Spark Connect: the same functions, from a client that has no Spark of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from tests.spark.bulk.services import Recorded
from tests.spark.deploy.client import ROWS
from tests.spark.deploy.connect import ConnectServer
from tests.support.live import Process

from requite.chronicle import Happening, Kind, Role
from requite.journal import Journal

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400)]

WITHIN_S = 240
FLIGHTS = 10
CLIENT = b"client-1"


def call_id(number: int) -> bytes:
    return CLIENT + number.to_bytes(8, "big")


def write_journal(folder: Path) -> None:
    """Write what a broker would: calls that went well, and one that never ended."""
    now = time.monotonic() - 10.0
    with Journal(folder, Role.BROKER, b"broker-1") as journal:
        flights = journal.chronicle.flights
        for number in range(FLIGHTS):
            at = now + number / 100
            row = (at, at, at + 0.01, at + 5.0, call_id(number), b"echo", b"worker-1", 5, 5)
            flights.append(row)
        lost = Happening(now, Kind.ACCEPTED, call_id(99), b"echo", size=5, value=now + 1.0)
        journal.chronicle.happenings.append(lost)
        late = (now + 8.0, now + 8.0, now + 8.1, inf, call_id(100), b"echo", b"worker-1", 5, 5)
        flights.append(late)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What the client tells; it is run once, since all of this takes its time to start."""
    folder = tmp_path_factory.mktemp("connect")
    write_journal(folder / "journal")
    recorded, server = Recorded(), ConnectServer(folder / "server")
    client = Process("-m", "tests.spark.deploy.client", server.url, recorded.url(), str(folder))
    try:
        told = json.loads(client.line())
        code, errors = client.ended(WITHIN_S)
        assert code == 0, errors
        yield told
    finally:
        client.dispose()
        server.end()
        recorded.close()


def test_the_client_has_no_spark_of_its_own(told: Any) -> None:
    assert told["session"].startswith("pyspark.sql.connect")


def test_the_journal_is_a_table(told: Any) -> None:
    counts = told["journal"]
    assert counts["accepted"] == FLIGHTS + 2
    assert counts["answered"] == counts["dispatched"] == FLIGHTS + 1


def test_bulk_calls_are_made_by_the_server(told: Any) -> None:
    assert told["calls"] == {"statuses": ["OK"], "right": ROWS, "keys": ROWS}


def test_seeds_are_run_by_the_server(told: Any) -> None:
    assert told["sweep"] == ["OK", "OK", "OK"]


def test_the_streaming_audit_runs_on_the_server(told: Any) -> None:
    assert told["alerts"] == ["MISSED_DEADLINE"]


def test_the_runner_runs_on_the_server(told: Any) -> None:
    audit = told["run"]["audit"]
    assert audit["accepted"] == FLIGHTS + 2
    assert audit["exactly_one"] == FLIGHTS + 1
    assert audit["missing"] == 1
    assert not told["run"]["ok"]
