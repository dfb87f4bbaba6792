"""The journal as a table: good and damaged input, refused options, filters."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.source.journals import (
    LogWriter,
    Row,
    call_id,
    expected,
    in_order,
    span,
    write_some,
)

from requite.chronicle import EventRow, Kind, WriterRole
from requite.journal import Journal
from requite.journal.blocks import HEADER, SCHEMA_VERSION, BlockType
from requite.spark import register
from requite.spark.schemas import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(180)  # the first test of a run starts the JVM


def read(spark: SparkSession, journal: Path, **options: Any) -> DataFrame:
    return spark.read.format("requite").options(**options).load(str(journal))


def rows_of(frame: DataFrame) -> list[Row]:
    return in_order(iter(frame.toArrow().to_pylist()))


def flip(segment: Path, offset: int) -> None:
    data = bytearray(segment.read_bytes())
    data[offset] ^= 0x10
    segment.write_bytes(data)


# --- good input -----------------------------------------------------------------------------------
def test_spark_finds_the_format_without_registration(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    frame = read(spark, tmp_path)
    assert frame.schema == spark.createDataFrame([], SOURCE).schema
    assert rows_of(frame) == expected(tmp_path)
    assert frame.count() == len(expected(tmp_path)) == 10 * 3 + 5 + 2


def test_the_format_can_be_registered(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    write_some(tmp_path)
    assert rows_of(read(spark, tmp_path)) == expected(tmp_path)


def test_logs_of_all_roles_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    for role in (WriterRole.BROKER, WriterRole.CLIENT, WriterRole.WORKER):
        write_some(tmp_path, role=role)
    frame = read(spark, tmp_path)
    assert rows_of(frame) == expected(tmp_path)
    assert {row["role"] for row in frame.toArrow().to_pylist()} == {"broker", "client", "worker"}


def test_one_log_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path, role=WriterRole.CLIENT)
    log = write_some(tmp_path)
    assert rows_of(read(spark, log)) == expected(log)


def test_events_of_a_journal_are_read(spark: SparkSession, tmp_path: Path) -> None:
    with Journal(tmp_path, WriterRole.BROKER, b"broker-1") as journal:
        for number in range(2000):
            journal.chronicle.spans.append(span(number, number / 100))
        journal.chronicle.event_rows.append(EventRow(21.0, Kind.WORKER_LOST, value=2.5))
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    kinds = [row["kind"] for row in found]
    assert kinds.count("answered") == 2000
    assert kinds.count("worker_lost") == 1


@pytest.mark.parametrize("partition_bytes", [1 << 20, 30_001])
def test_each_row_is_in_one_partition(
    spark: SparkSession, tmp_path: Path, partition_bytes: int
) -> None:
    with LogWriter(tmp_path, segment_size=100_000) as writer:
        for start in range(0, 3000, 100):
            writer.spans([span(number, number / 8) for number in range(start, start + 100)])
    assert len(writer.segments()) > 1
    frame = read(spark, tmp_path, partitionBytes=partition_bytes, columns="log,segment,byte_offset")
    found = {(row["segment"], row["byte_offset"]) for row in frame.toArrow().to_pylist()}
    assert frame.count() == len(found) == 3000 * 3
    size = sum(segment.stat().st_size for segment in writer.segments())
    assert frame.rdd.getNumPartitions() == -(-size // partition_bytes)


def test_columns_are_read_in_the_requested_order(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    frame = read(spark, tmp_path, columns="kind, ts,request_id")
    assert frame.columns == ["kind", "ts", "request_id"]
    wanted = [{name: row[name] for name in frame.columns} for row in expected(tmp_path)]
    found = frame.toArrow().to_pylist()
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_a_schema_may_be_given(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    reader = spark.read.format("requite").schema("seq bigint, kind string")
    assert reader.load(str(tmp_path)).where("kind = 'answered'").count() == 11


def test_an_empty_journal_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame = read(spark, tmp_path)
    assert frame.count() == 0
    assert rows_of(frame) == []
    with LogWriter(tmp_path):
        assert frame.count() == 0


def test_a_journal_is_read_while_it_is_written(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        assert read(spark, tmp_path).count() == 3
        writer.spans([span(2)])
        assert rows_of(read(spark, tmp_path)) == expected(tmp_path)
        # A torn record is not damage, because the writer may still complete it.
        (segment,) = writer.segments()
        written = segment.read_bytes().rstrip(b"\0")
        with segment.open("r+b") as file:
            file.seek(-(-len(written) // 8) * 8 + 8)
            file.write(b"half a record")
        assert read(spark, tmp_path).count() == 6


# --- bad input ------------------------------------------------------------------------------------
@pytest.fixture
def several_blocks(tmp_path: Path) -> LogWriter:
    """A log of ten blocks of ten spans."""
    with LogWriter(tmp_path) as writer:
        for start in range(0, 100, 10):
            writer.spans([span(number, number / 8) for number in range(start, start + 10)])
    return writer


def test_a_flipped_bit_loses_one_block_and_is_reported(
    spark: SparkSession, tmp_path: Path, several_blocks: LogWriter
) -> None:
    (segment,) = several_blocks.segments()
    flip(segment, segment.stat().st_size // 2)
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    (damage,) = [row for row in found if row["raw"] is not None]
    assert "checksum" in damage["reason"]
    assert damage["kind"] is None
    assert damage["log"] == several_blocks.path.name
    assert len(found) == 9 * 30 + 1


@pytest.mark.parametrize("partition_bytes", [8 << 20, 500])
def test_every_flipped_byte_is_reported_once(
    spark: SparkSession, tmp_path: Path, several_blocks: LogWriter, partition_bytes: int
) -> None:
    """This includes bytes of the header, and damaged records that span partitions."""
    (segment,) = several_blocks.segments()
    for offset in (3, 2000, 4000):
        flip(segment, offset)
    frame = read(spark, tmp_path, partitionBytes=partition_bytes)
    found = rows_of(frame)
    assert found == expected(tmp_path)
    assert sum(row["raw"] is not None for row in found) == 3


def test_a_truncated_segment_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_size=100_000) as writer:
        for start in range(0, 3000, 100):
            writer.spans([span(number, number / 8) for number in range(start, start + 100)])
    first, *_ = writer.segments()
    with first.open("r+b") as file:
        file.truncate(50_000)
    for partition_bytes in (8 << 20, 30_000):
        found = rows_of(read(spark, tmp_path, partitionBytes=partition_bytes))
        assert found == expected(tmp_path)
        assert any("cut off" in (row["reason"] or "") for row in found)


def test_an_invalid_segment_is_reported(
    spark: SparkSession, tmp_path: Path, several_blocks: LogWriter
) -> None:
    (segment,) = several_blocks.segments()
    segment.write_bytes(b"this is something else")
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    assert found[0]["raw"] == b"this is something else"


def test_unknown_kinds_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        writer.event_rows([EventRow(1.0, 77, call_id(1)), EventRow(2.0, Kind.CLOSED)])
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    (odd,) = [row for row in found if row["raw"] is not None]
    assert (odd["kind"], odd["reason"]) == ("unknown:77", "unknown kind 77")
    assert odd["request_id"] == call_id(1).hex()


def test_a_later_schema_version_is_quarantined_and_the_rest_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """This version cannot find the end of the additional columns of the next version."""
    later = HEADER.pack(BlockType.SPANS, SCHEMA_VERSION + 1, 0, 1, 0, 0) + bytes(72)
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        writer.raw(later)
        writer.spans([span(2)])
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    (odd,) = [row for row in found if row["raw"] is not None]
    assert odd["raw"] == later
    assert "version 2" in odd["reason"]
    assert {row["request_id"] for row in found} == {None, call_id(1).hex(), call_id(2).hex()}
    assert {row["schema_version"] for row in found} == {None, 1}


def test_invalid_blocks_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.raw(b"short")
        writer.raw(HEADER.pack(9, SCHEMA_VERSION, 0, 0, 0, 0))
        writer.raw(HEADER.pack(BlockType.SPANS, SCHEMA_VERSION, 0, 1000, 0, 0))
        writer.spans([span(1)])
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    assert sum(row["raw"] is not None for row in found) == 3
    assert len(found) == 6


def test_an_event_with_an_invalid_instant_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        writer.event_rows([EventRow(float("nan"), Kind.OPENED)])
    found = rows_of(read(spark, tmp_path))
    assert found == expected(tmp_path)
    (odd,) = [row for row in found if row["raw"] is not None]
    assert odd["ts"] is None
    assert odd["raw"][:8] == struct.pack("<d", float("nan"))


def test_a_segment_removed_by_retention_during_a_read_is_reported(
    spark: SparkSession, tmp_path: Path
) -> None:
    with LogWriter(tmp_path, segment_size=100_000) as writer:
        for start in range(0, 3000, 100):
            writer.spans([span(number, number / 8) for number in range(start, start + 100)])
    first, *others = writer.segments()
    frame = read(spark, tmp_path)
    planned = frame.rdd  # partitions are fixed from here on
    assert planned.getNumPartitions() == 1
    first.unlink()
    rows = planned.collect()
    (missed,) = [row for row in rows if row.raw is not None]
    assert "removed before it was read" in missed.reason
    assert (missed.segment, missed.byte_offset, missed.raw) == (0, 0, b"")
    assert {row.segment for row in rows} == {0, *(int(other.stem) for other in others)}


def test_a_log_that_a_task_cannot_see_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    log = write_some(tmp_path)
    planned = read(spark, tmp_path).rdd
    planned.getNumPartitions()
    log.rename(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="does not share the journal's folder"):
        planned.collect()


# --- refused options and paths --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "ts"}, "unknown option 'colums'; the options are path, log, columns"),
        ({"columns": "ts,whatever"}, "no column 'whatever'; the columns are schema_version"),
        ({"columns": "ts,ts"}, "names a column twice"),
        ({"columns": ""}, "no column ''"),
        ({"partitionBytes": "many"}, "partitionBytes='many': must be a number of bytes"),
        ({"partitionBytes": "0"}, "partitionBytes='0': must be a number of bytes"),
        ({"maxBytesPerTrigger": "-1"}, "maxBytesPerTrigger='-1': must be a number of bytes"),
        ({"log": "diary"}, "must be one of journal, titanic"),
        ({"pushdown": "perhaps"}, "must be true or false"),
    ],
)
def test_invalid_options_of_the_source_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match="ConfigurationError") as raised:
        read(spark, tmp_path, **options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.write_text("x"), "is a file; a journal is a folder"),
        (lambda path: (path / "sub").mkdir(parents=True), "is not a journal: it contains sub"),
    ],
)
def test_a_path_that_is_not_a_journal_is_refused(
    spark: SparkSession, tmp_path: Path, make: Any, message: str
) -> None:
    make(tmp_path / "journal")
    with pytest.raises(Exception, match="ConfigurationError") as raised:
        read(spark, tmp_path / "journal").count()
    assert message in str(raised.value)


def test_an_unsupported_url_scheme_is_refused(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="and hdfs: is not supported"):
        spark.read.format("requite").load("hdfs://name/journal")


def test_a_file_url_is_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    assert spark.read.format("requite").load(tmp_path.as_uri()).count() > 0


def test_a_schema_with_other_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    for schema, message in (
        ("what int", "no column 'what'"),
        ("ts string", "is of type timestamp"),
    ):
        with pytest.raises(Exception, match=message):
            spark.read.format("requite").schema(schema).load(str(tmp_path)).count()


# --- filters --------------------------------------------------------------------------------------
FILTERS = [
    "kind = 'answered'",
    "kind IN ('queued', 'dropped')",
    f"request_id = '{call_id(3).hex()}'",
    f"request_id = '{call_id(3).hex()}' AND kind = 'accepted'",
    "request_id = 'not a request'",
    "role = 'client'",
    "log LIKE 'broker%' AND role = 'broker'",
    "log = 'nobody'",
    "kind IS NULL",
    "kind = 'answered' OR role = 'client'",
    "NOT kind = 'answered'",
    "kind = 'answered' AND kind = 'accepted'",
    "ts > timestamp'2026-03-02 12:00:01'",
]


@pytest.fixture(scope="module")
def filtered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    journal = tmp_path_factory.mktemp("filtered")
    write_some(journal)
    log = write_some(journal, role=WriterRole.CLIENT)
    flip(next(log.glob("*.seg")), 400)
    spark.createDataFrame(read(spark, journal).toArrow()).createOrReplaceTempView("unpushed")
    yield journal
    spark.catalog.dropTempView("unpushed")


@pytest.mark.parametrize("condition", FILTERS)
def test_pushed_filters_find_the_same_rows(
    spark: SparkSession, filtered: Path, condition: str
) -> None:
    found = rows_of(read(spark, filtered).where(condition))
    assert found == rows_of(spark.table("unpushed").where(condition))


def test_without_pushdown_the_same_rows_are_found(spark: SparkSession, filtered: Path) -> None:
    key = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(key, "false")
    try:
        frame = read(spark, filtered, pushdown="false").where("kind = 'answered'")
        assert frame.count() == spark.table("unpushed").where("kind = 'answered'").count()
    finally:
        spark.conf.set(key, "true")
