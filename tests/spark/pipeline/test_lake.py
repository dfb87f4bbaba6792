"""Lakes: which folders are ours, who may change them, and days that are replaced."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import collect, instant, rows_frame

from requite.errors import ConfigurationError
from requite.spark import schemas
from requite.spark.lake import Lake, claim, load, locked, save

TODAY = instant(0).date()
TOMORROW = TODAY + timedelta(days=1)


def test_a_new_or_empty_folder_becomes_a_lake(tmp_path: Path) -> None:
    new, empty = tmp_path / "deep" / "new", tmp_path / "empty"
    empty.mkdir()
    for root in (new, empty):
        claim(root, "/journal")
        claim(root, "/journal")
        assert load(root / "_requite" / "lake.json")["journal"] == "/journal"


def test_a_folder_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty and not a lake"):
        claim(tmp_path, "/journal")
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ConfigurationError, match="not a lake"):
        claim(file, "/journal")


@pytest.mark.parametrize("left", [[], ["lake.new"]])
def test_what_a_run_left_that_died_at_once_keeps_nobody_out(
    tmp_path: Path, left: list[str]
) -> None:
    (tmp_path / "_requite").mkdir()
    for name in left:
        (tmp_path / "_requite" / name).write_text("{")
    claim(tmp_path, "/journal")
    assert load(tmp_path / "_requite" / "lake.json")["journal"] == "/journal"


@pytest.mark.parametrize("left", ["_requite/state.json", "silver_requests"])
def test_a_lake_that_has_lost_its_marker_is_refused(tmp_path: Path, left: str) -> None:
    (tmp_path / "_requite").mkdir()
    (tmp_path / left).write_text("{}")
    with pytest.raises(ConfigurationError, match="not empty and not a lake"):
        claim(tmp_path, "/journal")


def test_a_lake_has_one_journal(tmp_path: Path) -> None:
    claim(tmp_path, "/journal")
    told = "is fed by the journal /journal: name another lake, a new folder, for the journal /other"
    with pytest.raises(ConfigurationError, match=told):
        claim(tmp_path, "/other")


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, "/journal")
    save(tmp_path / "_requite" / "lake.json", {"format": 2, "journal": "/journal"})
    with pytest.raises(ConfigurationError, match="newer version"):
        claim(tmp_path, "/journal")


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_marker_is_told_of(tmp_path: Path, text: str) -> None:
    claim(tmp_path, "/journal")
    (tmp_path / "_requite" / "lake.json").write_text(text)
    with pytest.raises(ConfigurationError, match="is damaged"):
        claim(tmp_path, "/journal")


def test_one_run_at_a_time(tmp_path: Path) -> None:
    claim(tmp_path, "/journal")
    with (
        locked(tmp_path),
        pytest.raises(ConfigurationError, match="is at work on the lake"),
        locked(tmp_path),
    ):
        pytest.fail("two runs were let in")
    with locked(tmp_path):
        pass


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    claim(tmp_path, "/journal")
    code = (
        "import sys, pathlib; from requite.spark.lake import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(ConfigurationError, match=f"process {other.pid}"), locked(tmp_path):
            pytest.fail("two runs were let in")
        other.kill()
    with locked(tmp_path):
        pass


def test_our_own_files_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load(path) == {}
    save(path, {"batch": 1})
    save(path, {"batch": 2})
    assert json.loads(path.read_text()) == {"batch": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def heartbeat(worker: str, day: int) -> dict[str, Any]:
    at = instant(86400 * day)
    return {"worker": worker, "ts": at, "date": at.date()}


def test_days_are_replaced_and_the_others_kept(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    name = "silver_heartbeats"
    assert collect(lake.table(name)) == []

    def replace(*rows: dict[str, Any], days: list[Any]) -> set[str]:
        frame = rows_frame(spark, list(rows), schemas.SILVER_HEARTBEATS)
        lake.replace_days(name, frame, days=days)
        return {row["worker"] for row in collect(lake.table(name))}

    days = [TODAY, TOMORROW]
    assert replace(heartbeat("a", 0), heartbeat("b", 1), days=days) == {"a", "b"}
    assert replace(heartbeat("c", 1), days=[TOMORROW]) == {"a", "c"}
    # A day of which nothing is left is emptied, too.
    assert replace(heartbeat("d", 1), days=days) == {"d"}
    assert replace(days=days) == set()
    assert lake.table(name).columns == [
        column.split()[0] for column in schemas.SILVER_HEARTBEATS.split(",")
    ]
