"""The tables of a lake without Spark: ended, dead and concurrent runs, and merged files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars
import pytest
from deltalake import DeltaTable, Field, Schema
from tests.spark.tables import append, replace, rows_of, written

from requite.errors import ConfigurationError, LakeBusy, LakeDamaged, LakeError
from requite.spark import schemas
from requite.spark.delta import process
from requite.spark.delta.catalog import FILES_MAX, RUNS, Catalog, to_merge
from requite.spark.delta.files import FILE_BYTES_MAX, day_folder
from requite.spark.delta.table import File

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
EVENTS, BEATS, LIVENESS = "bronze_events", "silver_heartbeats", "gold_worker_liveness"


def beat(worker: str, day: date = MONDAY) -> dict[str, Any]:
    return {"worker": worker, "date": day}


def event(number: int, day: date = MONDAY) -> dict[str, Any]:
    return {"log": "broker-1", "seq": number, "date": day}


def workers(catalog: Catalog) -> list[str]:
    return sorted(row["worker"] for row in rows_of(catalog, BEATS))


def dead_run(root: Path) -> Catalog:
    """Start a run of a process that other runs consider dead."""
    running = Catalog(str(root))
    with mock.patch.object(process, "_started", return_value="long ago"):
        running._begin()
    running._settle()
    return running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake after one run."""
    catalog = Catalog(str(tmp_path))
    with catalog.running():
        append(catalog, EVENTS, [event(1)])
        replace(catalog, BEATS, [beat("a"), beat("b", TUESDAY)])
        catalog.end({"number": 1})
    return tmp_path


def test_changes_of_a_run_are_visible_once_it_ends(root: Path) -> None:
    later = Catalog(str(root))
    with later.running():
        replace(later, BEATS, [beat("c", TUESDAY)], [TUESDAY])
        assert workers(later) == ["a", "c"]
        assert workers(Catalog(str(root))) == ["a", "b"]
        later.end({"number": 2})
    after = Catalog(str(root))
    assert workers(after) == ["a", "c"]
    assert after.last.state == {"number": 2}


def test_a_table_that_no_run_has_written_is_empty(root: Path) -> None:
    assert rows_of(Catalog(str(root)), LIVENESS) == []


@pytest.mark.parametrize("left", ["nothing", "a row", "a table"])
def test_changes_of_a_dead_run_are_undone(root: Path, left: str) -> None:
    dying = dead_run(root)
    if left != "nothing":
        append(dying, EVENTS, [event(2)])
        replace(dying, BEATS, [beat("wrong")])
    if left == "a table":
        replace(dying, LIVENESS, [{"service": "wrong"}])
    catalog = Catalog(str(root))
    with catalog.running():
        assert workers(catalog) == ["a", "b"]
        assert rows_of(catalog, LIVENESS) == []
        assert [file.rows for file in catalog.files(EVENTS)] == [1]
        catalog.end({})
    assert workers(Catalog(str(root))) == ["a", "b"]


def test_a_second_run_is_refused_during_a_run(root: Path) -> None:
    is_busy = f"process {os.getpid()} .* is writing the lake at"
    with Catalog(str(root)).running():
        other = Catalog(str(root))
        with pytest.raises(LakeBusy, match=is_busy), other.running():
            pytest.fail("two runs were let in")
    with Catalog(str(root)).running():
        pass


def test_of_two_runs_that_begin_at_once_one_is_refused(root: Path) -> None:
    """Both runs have checked for others before either begins."""
    first, second = Catalog(str(root)), Catalog(str(root))
    second._require_nobody = lambda: None  # type: ignore[method-assign]
    first._begin()
    with pytest.raises(LakeBusy, match="run again"):
        second._begin()


def test_a_run_that_was_taken_for_dead_cannot_commit(root: Path) -> None:
    slow = dead_run(root)
    with Catalog(str(root)).running():
        with pytest.raises(LakeBusy, match="run again"):
            replace(slow, BEATS, [beat("late")])
        with pytest.raises(LakeBusy, match="run again"):
            slow.end({})
    assert workers(Catalog(str(root))) == ["a", "b"]


def test_the_run_of_a_killed_process_does_not_block_others(root: Path) -> None:
    code = (
        "import sys; from requite.spark.delta.catalog import Catalog\n"
        "with Catalog(sys.argv[1]).running(): print('in', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(LakeBusy, match=f"process {other.pid} "), Catalog(str(root)).running():
            pytest.fail("two runs were let in")
        other.kill()
    with Catalog(str(root)).running():
        pass


@pytest.mark.parametrize(("silent_s", "is_let_in"), [(60, False), (1000, True)])
def test_a_run_of_another_machine_counts_as_dead_after_a_silence(
    root: Path, monkeypatch: pytest.MonkeyPatch, silent_s: float, is_let_in: bool
) -> None:
    dead_run(root)
    now = max(note.at for note in Catalog(str(root))._notes.values()) / 1000
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    monkeypatch.setattr("time.time", lambda: now + silent_s)
    catalog = Catalog(str(root))
    if is_let_in:
        catalog._begin()
    else:
        with pytest.raises(LakeBusy, match="is writing the lake"):
            catalog._begin()


def test_uncommitted_files_are_ignored(root: Path) -> None:
    """Killed and speculative tasks leave such files."""
    written(root, BEATS, [beat("x"), beat("y", TUESDAY)])
    assert workers(Catalog(str(root))) == ["a", "b"]


# --- merging and deleting -------------------------------------------------------------------------
def test_small_files_are_merged_without_losing_rows(root: Path) -> None:
    for number in range(FILES_MAX + 5):
        catalog = Catalog(str(root))
        with catalog.running():
            append(catalog, EVENTS, [event(number), event(number, TUESDAY)])
            replace(catalog, BEATS, [beat(str(number))], [MONDAY])
            catalog.end({"number": number})
            catalog.merge()
    catalog = Catalog(str(root))
    for name in (EVENTS, BEATS, RUNS):
        table = DeltaTable(root / name)
        per_day = [path.rpartition("/")[0] for path in table.file_uris()]
        assert max(map(per_day.count, per_day)) <= FILES_MAX
    with catalog.running():
        assert len(catalog.table(EVENTS).files) < 2 * FILES_MAX
        expected = sorted(row["seq"] for row in rows_of(catalog, EVENTS))
        assert expected == sorted([1, *range(FILES_MAX + 5), *range(FILES_MAX + 5)])
    assert Catalog(str(root)).last.state == {"number": FILES_MAX + 4}


def test_only_the_smallest_files_are_merged() -> None:
    def files(*sizes: int) -> list[File]:
        return [File(f"date=2026-03-02/{n}.parquet", size, 1) for n, size in enumerate(sizes)]

    assert to_merge(files(*[1] * FILES_MAX)) == []
    (chosen,) = to_merge(files(*[1] * FILES_MAX, 1000))
    assert sum(file.size for file in chosen) == FILES_MAX
    assert to_merge(files(*[FILE_BYTES_MAX] * 20)) == []


def test_vacuum_deletes_only_files_that_no_reader_needs(root: Path) -> None:
    before = Catalog(str(root))
    catalog = Catalog(str(root))
    with catalog.running():
        replace(catalog, BEATS, [beat("c")])
        stray = written(root, BEATS, [beat("x")])
        catalog.end({})
        assert catalog.vacuum() == 0
        assert workers(before) == ["a", "b"]
        long_ago = 1_700_000_000
        os.utime(root / BEATS / stray[0].path, (long_ago, long_ago))
        assert catalog.vacuum() == 1
    assert workers(Catalog(str(root))) == ["c"]


def test_vacuum_shortens_logs_and_the_last_run_stays_readable(root: Path) -> None:
    catalog = Catalog(str(root))
    log = root / EVENTS / "_delta_log"
    with catalog.running():
        for number in range(25):
            append(catalog, EVENTS, [event(number)])
        catalog.end({})
        for path in log.iterdir():
            os.utime(path, (1, 1))
        before = len(list(log.iterdir()))
        catalog.vacuum()
    assert len(list(log.iterdir())) < before / 2
    assert len(rows_of(Catalog(str(root)), EVENTS)) == 26


# --- other readers --------------------------------------------------------------------------------
def test_polars_duckdb_and_pandas_read_the_same_tables(root: Path) -> None:
    place = str(root / BEATS)
    assert polars.read_delta(place).filter(polars.col("date") == MONDAY)["worker"].to_list() == [
        "a"
    ]
    table = DeltaTable(place)
    beats = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql("SELECT worker, date FROM beats ORDER BY worker").fetchall()
    assert found == [("a", MONDAY), ("b", TUESDAY)]
    assert sorted(table.to_pandas()["worker"]) == ["a", "b"]


# --- failures -------------------------------------------------------------------------------------
def test_a_full_disk_is_an_error_of_one_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(str(root))

    def full(*_arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    with catalog.running():
        monkeypatch.setattr("requite.spark.delta.catalog.write", full)
        with pytest.raises(LakeError, match=r"cannot be written: No space left on device$"):
            catalog.end({})
    assert workers(Catalog(str(root))) == ["a", "b"]


def test_a_table_changed_by_another_writer_is_damaged(root: Path) -> None:
    DeltaTable(root / BEATS).delete("worker = 'a'")
    with (
        pytest.raises(LakeDamaged, match=f"{BEATS}/_delta_log: version 2 was not written by req"),
        Catalog(str(root)).running(),
    ):
        pytest.fail("it was let in")


def test_a_reader_checks_only_the_files_of_requested_days(root: Path) -> None:
    folder = root / BEATS / day_folder(TUESDAY)
    for file in folder.iterdir():
        file.unlink()
    catalog = Catalog(str(root))
    assert [file.day for file in catalog.files(BEATS, lambda day: day == MONDAY)] == [MONDAY]
    with pytest.raises(LakeDamaged, match=rf"{BEATS}/date=2026-03-03/\S+ is missing"):
        catalog.files(BEATS)


def test_the_row_of_a_run_has_its_state_and_versions(root: Path) -> None:
    (row,) = polars.read_delta(str(root / RUNS)).to_dicts()
    assert json.loads(row["state"]) == {"number": 1}
    assert sorted(json.loads(row["versions"])) == [EVENTS, BEATS]


def test_delta_tables_have_descriptions_and_comments(root: Path) -> None:
    table = DeltaTable(str(root / BEATS))
    assert table.metadata().description == schemas.SILVER_HEARTBEATS.about
    found = {field.name: field.metadata for field in table.schema().fields}
    expected = schemas.SILVER_HEARTBEATS.comments
    assert found == {name: {"comment": comment} for name, comment in expected.items()}


def test_a_lake_without_comments_can_be_continued(tmp_path: Path) -> None:
    def bare(name: str) -> Any:
        columns = schemas.columns_of(schemas.TABLES[name])
        types = {"int": "integer", "bigint": "long"}
        return Schema([Field(key, types.get(kind, kind)) for key, kind in columns.items()])

    catalog = Catalog(str(tmp_path))
    with mock.patch("requite.spark.delta.table._schema", bare), catalog.running():
        replace(catalog, BEATS, [beat("a")])
        catalog.end({})
    later = Catalog(str(tmp_path))
    with later.running():
        append(later, BEATS, [beat("b")])
        later.end({})
    assert workers(Catalog(str(tmp_path))) == ["a", "b"]
    assert polars.read_delta(str(tmp_path / BEATS)).height == 2


def make_older_lake(root: Path, name: str) -> Catalog:
    """Create a lake of a version whose table lacks the columns `log` and `worker`."""
    columns = schemas.columns_of(schemas.TABLES[name])
    older = {key: kind for key, kind in columns.items() if key not in ("log", "worker")}
    older_table = schemas.Table("About", "\n".join(f"{key} {older[key]}: It." for key in older))
    catalog = Catalog(str(root))
    with mock.patch.dict(schemas.TABLES, {name: older_table}), catalog.running():
        append(catalog, name, [{"date": MONDAY}])
        catalog.end({})
    return Catalog(str(root))


def test_a_cleared_table_of_another_version_gets_the_current_columns(tmp_path: Path) -> None:
    make_older_lake(tmp_path, BEATS)
    dying = dead_run(tmp_path)
    dying.clear()
    again = Catalog(str(tmp_path))
    with again.running():
        assert len(rows_of(again, BEATS)) == 1
        append(again, EVENTS, [event(1)])
        again.clear()
        append(again, BEATS, [beat("a")])
        again.end({})
    assert polars.read_delta(str(tmp_path / BEATS))["worker"].to_list() == ["a"]
    assert [row["seq"] for row in rows_of(Catalog(str(tmp_path)), EVENTS)] == [1]


def test_events_with_the_columns_of_another_version_are_refused(tmp_path: Path) -> None:
    catalog = make_older_lake(tmp_path, EVENTS)
    expected = f"{EVENTS} was written by another version of requite, with other columns: pass a new"
    with pytest.raises(ConfigurationError, match=expected), catalog.running():
        pytest.fail("it was let in")


def test_another_version_of_requite_or_of_a_table_has_another_digest() -> None:
    digests = [schemas.lake_digest()]
    with mock.patch.object(schemas, "__version__", "another"):
        digests.append(schemas.lake_digest())
    for name in ("gold_failures", "gold_new"):
        with mock.patch.dict(schemas.LAKE, {name: schemas.Table("About", "a int: It.")}):
            digests.append(schemas.lake_digest())
    assert len(set(digests)) == len(digests)
    assert schemas.lake_digest() == digests[0]
