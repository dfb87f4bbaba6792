"""Lakes: claimed and refused folders, markers, and replaced days."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.events import collect, instant, rows_frame

from requite.errors import ConfigurationError, LakeDamaged, LakeError
from requite.spark import schemas
from requite.spark.delta.catalog import Catalog
from requite.spark.lake import Lake
from requite.spark.marker import FORMAT, claim, save

TODAY = instant(0).date()
TOMORROW = TODAY + timedelta(days=1)


def marked(root: Path) -> dict[str, Any]:
    """Return the record in the marker of a lake."""
    record: dict[str, Any] = json.loads((root / "_requite" / "lake.json").read_text())
    return record


def test_a_new_or_empty_folder_becomes_a_lake(tmp_path: Path) -> None:
    new, empty = tmp_path / "deep" / "new", tmp_path / "empty"
    empty.mkdir()
    for root in (new, empty):
        claim(str(root), "/journal")
        claim(str(root), "/journal")
        assert marked(root)["journal"] == "/journal"


def test_a_foreign_folder_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty and not a lake"):
        claim(str(tmp_path), "/journal")
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ConfigurationError, match="not a lake"):
        claim(str(file), "/journal")


@pytest.mark.parametrize("left", [[], ["lake.new"]])
def test_files_of_a_run_that_died_at_its_start_do_not_block_others(
    tmp_path: Path, left: list[str]
) -> None:
    (tmp_path / "_requite").mkdir()
    for name in left:
        (tmp_path / "_requite" / name).write_text("{")
    claim(str(tmp_path), "/journal")
    assert marked(tmp_path)["journal"] == "/journal"


@pytest.mark.parametrize("left", ["_requite/state.json", "silver_requests"])
def test_a_lake_that_has_lost_its_marker_is_refused(tmp_path: Path, left: str) -> None:
    (tmp_path / "_requite").mkdir()
    (tmp_path / left).write_text("{}")
    with pytest.raises(ConfigurationError, match="not empty and not a lake"):
        claim(str(tmp_path), "/journal")


def test_a_lake_has_one_journal(tmp_path: Path) -> None:
    claim(str(tmp_path), "/journal")
    message = (
        "belongs to the journal /journal: pass a new folder for the lake of the journal /other"
    )
    with pytest.raises(ConfigurationError, match=message):
        claim(str(tmp_path), "/other")


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    claim(str(tmp_path), "/journal")
    save(str(tmp_path), {"format": FORMAT + 1, "journal": "/journal"})
    with pytest.raises(ConfigurationError, match="newer version"):
        claim(str(tmp_path), "/journal")


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_marker_is_an_error(tmp_path: Path, text: str) -> None:
    claim(str(tmp_path), "/journal")
    (tmp_path / "_requite" / "lake.json").write_text(text)
    with pytest.raises(LakeDamaged, match=r"lake\.json is damaged"):
        claim(str(tmp_path), "/journal")


def test_the_marker_is_replaced_as_a_whole(tmp_path: Path) -> None:
    save(str(tmp_path), {"batch": 1})
    save(str(tmp_path), {"batch": 2})
    assert marked(tmp_path) == {"batch": 2}
    assert [each.name for each in (tmp_path / "_requite").iterdir()] == ["lake.json"]


def test_a_lake_without_its_marker_is_damaged(tmp_path: Path) -> None:
    claim(str(tmp_path), "/journal")
    with Catalog(str(tmp_path)).running():
        pass
    (tmp_path / "_requite" / "lake.json").unlink()
    with pytest.raises(LakeDamaged, match=r"_requite/lake.json is missing"):
        claim(str(tmp_path), "/journal")


def heartbeat(worker: str, day: int) -> dict[str, Any]:
    at = instant(86400 * day)
    return {"worker": worker, "ts": at, "date": at.date()}


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    """A lake during a run."""
    lake = Lake.at(spark, tmp_path)
    with lake.catalog.running():
        yield lake


def test_days_are_replaced_and_the_others_kept(spark: SparkSession, lake: Lake) -> None:
    name = "silver_heartbeats"
    assert collect(lake.table(name)) == []

    def replace(*new: dict[str, Any], days: list[Any]) -> list[tuple[Any, ...]]:
        frame = rows_frame(spark, list(new), schemas.SILVER_HEARTBEATS)
        assert lake.replace_days(name, frame, days=days) == len(new)
        rows = [(row["worker"], row["ts"], row["date"]) for row in collect(lake.table(name))]
        return sorted(rows)

    def row(worker: str, day: int) -> tuple[Any, ...]:
        return tuple(heartbeat(worker, day).values())

    days = [TODAY, TOMORROW]
    both = [row("a", 0), row("b", 1)]
    assert replace(heartbeat("a", 0), heartbeat("b", 1), days=days) == both
    assert replace(heartbeat("c", 1), days=[TOMORROW]) == [row("a", 0), row("c", 1)]
    # A day is replaced even if no rows of it are left.
    assert replace(heartbeat("d", 1), days=days) == [row("d", 1)]
    assert replace(days=days) == []
    assert lake.table(name).columns == [
        column.split()[0] for column in schemas.SILVER_HEARTBEATS.split(",")
    ]


def test_a_write_error_of_a_task_is_an_error_of_one_sentence(
    spark: SparkSession, lake: Lake
) -> None:
    (Path(lake.root) / "gold_worker_liveness").write_text("a file in the place of a folder")
    rows = rows_frame(spark, [{"service": "echo"}], schemas.GOLD_WORKER_LIVENESS)
    with pytest.raises(LakeError, match=r"/gold_worker_liveness cannot be written: File exists"):
        lake.replace("gold_worker_liveness", rows)
