"""From real journals to verdicts: what was written, what storage did to it, what the verb says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cli.command import COMMAND, ENVIRONMENT, Ended
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.events import collect
from tests.spark.source.journals import NOON_US, WORKER, Writing, call_id, flight

from requite.chronicle import Happening, Kind, Role
from requite.cli.app import run as run_command
from requite.cli.spark import run as verb
from requite.request import Status
from requite.spark import runner
from requite.spark.lake import Lake

pytestmark = pytest.mark.timeout(300)


def test_flights_and_happenings_of_all_roles_become_one_life(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    row = flight(1, queued=True)
    with Writing(journal) as writing:
        writing.flights([row])
    with Writing(journal, Role.CLIENT, b"client-1") as writing:
        writing.flights([(0.0, 0.0, 0.8, 5.0, call_id(1), b"echo", b"", 10, 1)])
    with Writing(journal, Role.WORKER, WORKER) as writing:
        writing.flights([(0.25, 0.3, 0.7, 5.0, call_id(1), b"echo", WORKER, 10, 1)])
    summary = runner.run(spark, journal, tmp_path / "lake")
    assert (summary.audit.accepted, summary.audit.exactly_one) == (1, 1)
    lake = Lake(spark, tmp_path / "lake")
    (request,) = collect(lake.table("silver_requests"))
    assert request["request_id"] == call_id(1).hex()
    assert (request["queue_ms"], request["service_ms"], request["total_ms"]) == (
        250.0,
        400.0,
        800.0,
    )
    assert (request["outcome"], request["attempts"], request["worker"]) == ("OK", 1, WORKER.hex())
    (attempt,) = collect(lake.table("silver_attempts"))
    assert (attempt["attempt"], attempt["result"], attempt["busy_ms"]) == (1, "OK", 400.0)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def test_what_is_damaged_is_told_and_nothing_else_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    with Writing(journal) as writing:
        writing.flights([flight(number, number / 8) for number in range(10)])
        whole = writing.segments()[0].read_bytes().rstrip(b"\0")
        writing.flights([flight(number, number / 8) for number in range(10, 20)])
        writing.flights([flight(number, number / 8) for number in range(20, 30)])
        writing.happenings([Happening(4.0, 77, call_id(90), b"echo")])
        writing.raw(bytes([2, 9]) + bytes(62))  # flights by schema version 9
    (segment,) = writing.segments()
    flip(segment, len(whole) + 100)

    summary = runner.run(spark, journal, tmp_path / "lake")
    assert summary.audit.exactly_one == 20
    assert summary.audit.ok
    assert not summary.audit.complete
    assert summary.quarantined == summary.audit.damaged
    lake = Lake(spark, tmp_path / "lake")
    quarantine = collect(lake.table("bronze_quarantine"))
    assert len(quarantine) == summary.quarantined >= 3
    assert all(row["reason"] for row in quarantine)
    assert any("77" in row["reason"] for row in quarantine)


def test_segments_that_were_cut_end_where_they_end(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Writing(journal) as writing:
        writing.flights([flight(number, number / 8) for number in range(10)])
        whole = len(writing.segments()[0].read_bytes().rstrip(b"\0"))
        writing.flights([flight(number, number / 8) for number in range(10, 20)])
    os.truncate(writing.segments()[0], whole + 200)
    summary = runner.run(spark, journal, tmp_path / "lake")
    assert summary.audit.exactly_one == 10
    assert summary.audit.ok
    assert (summary.audit.damaged, summary.audit.complete) == (1, False)
    again = runner.run(spark, journal, tmp_path / "lake")
    assert (again.audit.damaged, again.quarantined) == (1, 0)


def test_a_journal_without_logs_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    summary = runner.run(spark, tmp_path / "journal", tmp_path / "lake")
    assert (summary.new_events, summary.audit.accepted, summary.audit.ok) == (0, 0, True)


def test_a_log_that_grows_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    with Writing(journal) as writing:
        writing.happenings([Happening(0.0, Kind.ACCEPTED, call_id(1), b"echo", value=5.0)])
        first = runner.run(spark, journal, lake)
        assert (first.new_events, first.audit.in_flight) == (1, 1)
        outcome = {"worker": WORKER, "attempt": 1, "outcome": Status.OK}
        writing.happenings([Happening(0.5, Kind.ANSWERED, call_id(1), b"echo", **outcome)])
        writing.log.rotate()
        writing.flights([flight(2, 1.0)], NOON_US)
        second = runner.run(spark, journal, lake)
    assert second.new_events == 4
    assert (second.audit.exactly_one, second.audit.in_flight) == (2, 0)


# --- the verb -------------------------------------------------------------------------------------
@pytest.fixture
def in_this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verb use the session of the tests, and leave it running."""

    @contextmanager
    def session(_master: str | None) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(verb, "_session", session)


@pytest.mark.usefixtures("in_this_session")
def test_the_verb_shows_steps_and_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    write_journal(journal)
    words = ["spark", "run", "--journal", str(journal), "--lake", str(lake)]
    code = run_command([*words, "--json"])
    captured = capsys.readouterr()
    assert code == 1
    record = json.loads(captured.out.splitlines()[-1])
    assert record["ok"] is False
    assert record["audit"]["accepted"] == ACCEPTED
    assert record["audit"]["exactly_one"] == ENDED
    assert record["audit"]["missing"] == 1
    assert f"{ACCEPTED} accepted, {ENDED} ended exactly once, 1 missing" in captured.out
    assert "audit_verdicts has the evidence" in captured.out
    for step in ("journal", "silver requests", "gold capacity", "audit"):
        assert step in captured.err

    # As of a time at which nothing was overdue yet; and a time that is none.
    assert run_command([*words, "--as-of", "2020-01-01T00:00:00Z"]) == 0
    assert "1 still in flight" in capsys.readouterr().out
    assert run_command([*words, "--as-of", "noonish"]) == 2
    assert "is no time" in capsys.readouterr().err
    assert run_command([*words, "--as-of", "0001-01-01"]) == 2
    assert "--as-of: no journal tells of 0001-01-01" in capsys.readouterr().err


@pytest.mark.usefixtures("in_this_session")
def test_the_verb_refuses_what_cannot_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    absent = run_command(
        ["spark", "run", "--journal", str(tmp_path / "no"), "--lake", str(tmp_path / "lake")]
    )
    assert (absent, "there is no journal at" in capsys.readouterr().err) == (2, True)
    (tmp_path / "journal").mkdir()
    foreign = run_command(
        ["spark", "run", "--journal", str(tmp_path / "journal"), "--lake", str(tmp_path / "mine")]
    )
    assert (foreign, "not a lake of requite" in capsys.readouterr().err) == (2, True)
    none = run_command(
        ["spark", "run", "--journal", str(tmp_path / "mine"), "--lake", str(tmp_path / "lake")]
    )
    told = "is not a journal: it has file, and no log"
    assert (none, told in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "lake").exists()


@pytest.mark.e2e
@pytest.mark.slow
def test_the_command_itself_in_a_process_of_its_own(tmp_path: Path) -> None:
    journal, lake, report = tmp_path / "journal", tmp_path / "lake", tmp_path / "report.html"
    with Writing(journal) as writing:
        # More than a pipe holds: a reader that is not read to its end would notice.
        writing.flights([flight(number, number / 1000) for number in range(3000)])
    places: list[Any] = ["--journal", journal, "--lake", lake, "--report", report]
    words = [*COMMAND, "spark", "run", *places, "--master", "local[1]", "--json"]
    process = subprocess.run(words, env=ENVIRONMENT, capture_output=True, timeout=240, check=False)
    done = Ended(process)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    assert done.record["audit"]["exactly_one"] == 3000
    assert "3,000 accepted, 3,000 ended exactly once" in done.out
    assert "<svg" in report.read_text(encoding="utf-8")
