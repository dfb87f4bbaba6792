"""`requite spark watch`: the alerts that it prints, its exit codes, and invalid arguments."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.metrics.scrape import get, scrape
from tests.spark import spark_settings
from tests.spark.deploy.journals import call_id
from tests.support.live import Process, eventually

from requite.chronicle import EventRow, Kind, WriterRole
from requite.cli.app import run as run_command
from requite.cli.exit_codes import ExitCode
from requite.journal import Journal

WITHIN_S = 60


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_alerts_are_printed_while_the_journal_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", WriterRole.BROKER, b"broker-1") as journal:
        folders = ["--journal", str(tmp_path / "journal"), "--to", str(tmp_path / "out")]
        http = ["--http", "127.0.0.1:0"]
        words = ["-m", "requite.cli", "spark", "watch", *folders, "--json", *http]
        watch = Process(*words, **spark_settings.environment(tmp_path))
        try:
            url = eventually(lambda: _monitor_of(watch.errors()), "the URL of the metrics")
            answer = get(url, "/ready")
            assert answer.status == 503
            assert answer.said["flaw"] == "the first batch has not ended"
            now = time.monotonic()
            lost = EventRow(now, Kind.ACCEPTED, call_id(1), b"echo", value=now + 0.5)
            journal.chronicle.event_rows.append(lost)
            alert = json.loads(watch.line())
            eventually(lambda: get(url, "/ready").status == 200, "a batch has ended")
            seen = scrape(url)
            assert seen.value("requite_watch_alerts_total", kind="MISSED_DEADLINE") == 1
            assert seen.value("requite_watch_alerts_total", kind="LATE") == 0
            assert (seen.value("requite_watch_batches_total") or 0) >= 1
            eventually(lambda: scrape(url).value("requite_watch_rows_total"), "rows were read")
            watch.signal(signal.SIGINT)
            assert json.loads(watch.line()) == {"alerts": 1}
            code, errors = watch.ended(WITHIN_S)
        finally:
            watch.dispose()
    assert code == ExitCode.FAILED, errors
    assert "StackOverflowError" not in errors
    assert alert["request_id"] == call_id(1).hex()
    assert alert["kind"] == "MISSED_DEADLINE"
    assert alert["service"] == "echo"
    assert alert["deadline"] < alert["noticed_at"]
    assert [event["kind"] for event in alert["evidence"]] == ["accepted"]
    table = pq.read_table(tmp_path / "out" / "alerts")
    assert table.column("request_id").to_pylist() == [call_id(1).hex()]


def _monitor_of(errors: str) -> str:
    found = re.search(r"metrics at (http://\S+)/metrics", errors)
    return found[1] if found else ""


def test_invalid_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["spark", "watch", "--journal", str(tmp_path / "no")]) == ExitCode.USAGE
    assert "there is no journal" in capsys.readouterr().err
    (tmp_path / "a.txt").write_text("mine")
    assert run_command(["spark", "watch", "--journal", str(tmp_path)]) == ExitCode.USAGE
    assert "is not a journal: it contains a.txt, and no log" in capsys.readouterr().err
    assert run_command(["spark", "watch"]) == ExitCode.USAGE
    assert run_command(["spark", "watch", "--journal", "here", "--for", "0"]) == ExitCode.USAGE
    assert "--journal" in capsys.readouterr().err
