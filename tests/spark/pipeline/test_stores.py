"""Journals and lakes in an object store, a local S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import SparkSession
from tests.spark.deploy.journals import ACCEPTED, ENDED, write_journal
from tests.spark.events import collect
from tests.spark.tables import append, replace, rows_of, written
from tests.support.s3 import SECRET, make_bucket, s3, settings_of

import requite.spark
from requite.cli.app import run as run_command
from requite.cli.spark.options import SparkOptions
from requite.errors import ConfigurationError, LakeBusy, LakeDamaged, LakeError
from requite.journal.shipping import Shipper
from requite.spark import runner, schemas
from requite.spark.delta.catalog import FILES_MAX, Catalog
from requite.spark.delta.files import Reader, filesystem, share_out
from requite.spark.delta.table import Table, create
from requite.spark.lake import Lake
from requite.spark.marker import MARKER, claim
from requite.spark.sql import ask
from requite.storage.stores import open_store

__all__ = ["s3"]

pytestmark = pytest.mark.timeout(300)

BEATS = "silver_heartbeats"
MONDAY = datetime(2026, 3, 2, tzinfo=UTC).date()
TUESDAY = MONDAY + timedelta(days=1)
SOON = datetime.now(UTC) + timedelta(minutes=10)


@pytest.fixture(scope="module", autouse=True)
def settings(s3: str) -> Iterator[dict[str, str]]:
    """Set the environment variables of the store in this process; yield them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings_of(s3).items():
            patch.setenv(name, value)
        yield settings_of(s3)


@pytest.fixture
def bucket(s3: str) -> str:
    """The URL of a new bucket."""
    return make_bucket(s3)


# --- the tables -----------------------------------------------------------------------------------
def test_only_one_of_concurrent_commits_of_a_version_succeeds(bucket: str) -> None:
    create(bucket, BEATS, run=0)
    read = [Table.open(bucket, BEATS) for _ in range(4)]
    ready, outcomes = Barrier(len(read)), list[object]()

    def commit(table: Table | None) -> None:
        assert table is not None
        ready.wait()
        try:
            outcomes.append(table.commit([], [], run=1).version)
        except LakeBusy as error:
            outcomes.append(type(error))

    threads = [Thread(target=commit, args=(table,)) for table in read]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes)) == sorted(map(str, [1, LakeBusy, LakeBusy, LakeBusy]))
    again = Table.open(bucket, BEATS)
    assert again is not None
    assert again.commit([], [], run=2).version == 2


def test_a_lake_in_a_store_behaves_like_one_in_a_folder(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"{bucket}/lake"
    claim(root, "/journal")
    claim(root, "/journal")
    with pytest.raises(ConfigurationError, match="belongs to the journal /journal"):
        claim(root, "/other")
    for number in range(2):
        catalog = Catalog(root)
        with catalog.running():
            beats = [{"worker": f"{number} {each}", "date": MONDAY} for each in range(FILES_MAX)]
            append(catalog, BEATS, *([beat] for beat in beats))
            catalog.end({"number": number})
            with pytest.raises(LakeBusy, match="is writing the lake"), Catalog(root).running():
                pytest.fail("two runs were let in")
            catalog.merge()
    assert catalog.vacuum() == 0
    monkeypatch.setattr("requite.spark.delta.catalog.RETENTION_H", 0)
    with catalog.running():
        catalog.end({"number": "more"})
        [stray] = written(root, BEATS, [{"worker": "stray", "date": TUESDAY}])
        assert catalog.vacuum() >= 1 + FILES_MAX  # with the merged files
    assert f"{BEATS}/{stray.path}" not in open_store(root).sizes(BEATS)
    after = Catalog(root)
    merged = Table.open(root, BEATS)
    assert merged is not None
    assert len(merged.files) <= FILES_MAX
    workers = {row["worker"] for row in rows_of(after, BEATS)}
    assert workers == {row["worker"] for row in polars.read_delta(f"{root}/{BEATS}").to_dicts()}
    assert len(workers) == 2 * FILES_MAX
    dying = Catalog(root)
    dying._begin()
    dying._settle()
    replace(dying, BEATS, [{"worker": "wrong", "date": MONDAY}])
    dying._stop()
    with Catalog(root).running():
        pass
    assert {row["worker"] for row in rows_of(Catalog(root), BEATS)} == workers


def test_a_task_reads_its_share_of_files_and_names_an_unreadable_one(bucket: str) -> None:
    added = written(bucket, BEATS, *([{"worker": each, "date": MONDAY}] for each in "ab"))
    shares = share_out([(file.path, file.size) for file in added])
    assert shares == (tuple(file.path for file in added),)
    assert share_out([("a", 9 << 20), ("b", 1), ("c", 1)]) == (("a",), ("b", "c"))
    reader = Reader(bucket, BEATS, schemas.TABLES[BEATS], shares)
    numbers = pa.RecordBatch.from_pydict({"id": [0]})
    found = pa.Table.from_batches(reader(iter([numbers])))
    assert found.column("worker").to_pylist() == ["a", "b"]
    assert found.column("date").to_pylist() == [MONDAY, MONDAY]
    gone = Reader(bucket, BEATS, schemas.TABLES[BEATS], (("date=2026-03-02/gone.parquet",),))
    with pytest.raises(LakeError, match=r"date=2026-03-02/gone\.parquet cannot be read"):
        list(gone(iter([numbers])))


@pytest.mark.parametrize("act", ["delete", "cut", "swap"])
def test_a_changed_or_missing_file_is_named(bucket: str, act: str) -> None:
    catalog = Catalog(bucket)
    with catalog.running():
        append(catalog, BEATS, [{"worker": "a", "date": MONDAY}])
        catalog.end({})
    [file] = catalog.files(BEATS)
    path, store = f"{BEATS}/{file.path}", filesystem(bucket)
    if act == "delete":
        store.delete_file(path)
    else:
        data = open_store(bucket).get(path, file.size)
        open_store(bucket).put(path, data[:-9] if act == "cut" else data[::-1])
    with pytest.raises(LakeDamaged, match=file.path.rpartition("/")[2]):
        Catalog(bucket).files(BEATS)


def test_a_place_that_is_not_a_lake_is_refused_and_not_changed(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(bucket).put("mine/photo.jpg", b"mine")
    with pytest.raises(ConfigurationError, match="not empty and not a lake"):
        claim(bucket, "/journal")
    assert open_store(bucket).parts() == ["mine/"]
    with Catalog(f"{bucket}/lost").running():
        pass
    with pytest.raises(LakeDamaged, match=rf"{MARKER} is missing"):
        claim(f"{bucket}/lost", "/journal")
    with pytest.raises(ConfigurationError, match="bucket does not exist") as raised:
        claim("s3://nobodys-bucket/lake", "/journal")
    assert SECRET not in str(raised.value)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "nobody")
    with pytest.raises(ConfigurationError, match="write abfss://CONTAINER@ACCOUNT"):
        filesystem("az://container/lake")


@pytest.mark.parametrize(
    ("lake", "message"),
    [
        ("s3a://nobodys-bucket/lake", "The specified bucket does not exist"),
        ("hdfs://name/lake", "and hdfs: is not supported"),
    ],
)
def test_an_impossible_url_of_a_lake_is_refused_before_spark_starts(
    lake: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(SparkOptions, "session", None)
    assert run_command(["spark", "run", "--journal", str(tmp_path), "--lake", lake]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    journal = ["--journal", lake, "--lake", str(tmp_path)]
    assert run_command(["spark", "run", *journal]) == 2


# --- the pipeline ---------------------------------------------------------------------------------
@pytest.fixture
def inherited(
    spark: SparkSession, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass the variables of the store to Spark's processes, as a cluster does."""
    for name, value in settings.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)


@pytest.mark.usefixtures("inherited")
def test_an_audit_needs_no_folder(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    journal, lake = f"{bucket}/journal", f"{bucket}/lake"
    write_journal(tmp_path)
    Shipper(tmp_path, open_store(journal)).ship()
    audit = runner.run(spark, journal.replace("s3:", "s3a:"), lake.replace("s3:", "s3a:")).audit
    assert (audit.accepted, audit.exactly_one, audit.missing) == (ACCEPTED, ENDED, 1)
    assert audit.complete
    assert DeltaTable(f"{lake}/silver_requests").count() == ACCEPTED
    assert sorted(path.name for path in tmp_path.iterdir()) == [".logs", "broker-62726f6b65722d31"]
    delete_file_of(lake, "audit_verdicts")
    with pytest.raises(LakeDamaged, match=r"audit_verdicts/date=.* is missing"):
        runner.run(spark, journal, lake)


@pytest.mark.long
@pytest.mark.usefixtures("inherited")
def test_a_lake_in_a_store_has_the_tables_of_one_in_a_folder(
    spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    folder, journal, lake = tmp_path / "journal", f"{bucket}/journal", f"{bucket}/lake"
    shipper = Shipper(folder, open_store(journal))
    write_journal(folder)
    shipper.ship()
    first = runner.run(spark, journal.replace("s3:", "s3a:"), lake, as_of=SOON)
    assert (first.audit.accepted, first.audit.exactly_one) == (ACCEPTED, ENDED)
    assert (first.audit.missing, first.audit.complete) == (1, True)
    assert runner.run(spark, journal, lake, as_of=SOON).new_events == 0
    write_journal(folder, b"broker-2", 1000)
    shipper.ship()
    report = tmp_path / "report.html"
    later = runner.run(spark, journal, lake.replace("s3:", "s3a:"), as_of=SOON, report=report)
    runner.run(spark, folder, tmp_path / "lake", as_of=SOON)
    assert later.audit.accepted == 2 * ACCEPTED
    assert contents(spark, lake) == contents(spark, tmp_path / "lake")
    assert f"{2 * ACCEPTED}" in report.read_text()
    answer = ask(spark, lake, "DESCRIBE silver_requests", 100)
    assert [row[2] for row in answer.rows] == [*schemas.SILVER_REQUESTS.comments.values()]
    assert DeltaTable(f"{lake}/silver_requests").count() == 2 * ACCEPTED
    requite.spark.register(spark)
    events = spark.read.format("requite").load(journal).where("kind = 'accepted'")
    assert events.count() == 2 * ACCEPTED


def contents(spark: SparkSession, root: str | Path) -> dict[str, list[Any]]:
    """Return the rows of all tables that are computed from events."""
    lake = Lake.at(spark, root)
    names = [name for name in schemas.LAKE if name.startswith(("audit_", "silver_", "bronze_ev"))]
    return {name: sorted(map(repr, collect(lake.table(name)))) for name in names}


def delete_file_of(root: str, name: str) -> None:
    """Delete a file of a table."""
    store, file = filesystem(root), Catalog(root).files(name)[0]
    assert isinstance(store.base_fs, fs.S3FileSystem)
    store.delete_file(f"{name}/{file.path}")
