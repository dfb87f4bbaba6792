"""The requests in a Titanic store as a table: `log=titanic`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.spark.source.journals import NOON_US

from requite.engine import Store as StoreEffect
from requite.protocols.titanic import records
from requite.spark.durable.reader import TitanicReader
from requite.spark.durable.survey import PURPOSE as OURS
from requite.spark.durable.survey import survey
from requite.spark.schemas import TITANIC
from requite.spark.source.options import read_options
from requite.storage import Log
from requite.titanic.store import PURPOSE, StoreSettings, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(180)  # the first test of a run starts the JVM

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND_US = 1_000_000


def uuid(number: int) -> bytes:
    return UUID(int=number).bytes


def submitted(number: int, *frames: bytes, service: bytes = b"echo") -> bytes:
    at_us = NOON_US + number * SECOND_US
    return records.encode_submitted(uuid(number), at_us, service, b"", frames or (b"hi",))


def answered(number: int, *frames: bytes) -> bytes:
    return records.encode_answered(uuid(number), NOON_US + 60 * SECOND_US, 2, frames or (b"yes",))


class StoreWriter:
    """Writes records to a Titanic store."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.store = open_store(folder, StoreSettings(sync=False, **settings))

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def write(self, *payloads: bytes) -> None:
        self.store.submit(StoreEffect("ticket", payloads))
        [stored] = self.store.work()
        assert len(stored.positions) == len(payloads)


def write_some(folder: Path) -> None:
    """Write five requests: answered, poisoned, waiting, tried and closed; the last has no row."""
    with StoreWriter(folder) as writer:
        writer.write(submitted(1, b"a", b"bc"), submitted(2), submitted(3), submitted(4))
        writer.write(submitted(5), answered(5), records.encode_closed(uuid(5), NOON_US, b"", 0))
        writer.write(records.encode_tried(uuid(2), NOON_US, 3, True, "it always fails"))
        writer.write(records.encode_tried(uuid(4), NOON_US, 1, False, "out of stock"))
        writer.write(answered(1, b"yes", b"!"))


def read(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    return spark.read.format("requite").options(log="titanic", **options).load(str(folder))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=lambda row: row["uuid"] or "")


def test_each_request_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    frame = read(spark, tmp_path)
    assert frame.schema == spark.createDataFrame([], TITANIC).schema
    first, poisoned, waiting, tried = rows_of(frame)
    assert first == {
        "uuid": uuid(1).hex(),
        "service": "echo",
        "state": "answered",
        "attempts": 2,
        "submitted_at": NOON.replace(second=1),
        "answered_at": NOON.replace(minute=1),
        "size": 3,
        "reply_size": 4,
        "reason": None,
        "body": b"abc",
        "reply": b"yes!",
    }
    assert (poisoned["state"], poisoned["attempts"]) == ("poisoned", 3)
    assert (poisoned["reason"], poisoned["reply"]) == ("it always fails", None)
    assert (waiting["state"], waiting["attempts"], waiting["body"]) == ("waiting", 0, b"hi")
    assert (tried["state"], tried["attempts"], tried["reason"]) == ("waiting", 1, "out of stock")


def test_a_negative_reply_has_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        refused = records.encode_answered(uuid(1), NOON_US, 1, [b"no apples"], is_negative=True)
        writer.write(submitted(1), refused)
    [row] = rows_of(read(spark, tmp_path))
    assert (row["state"], row["reason"]) == ("answered", "no apples")
    assert (row["reply"], row["reply_size"]) == (b"no apples", 9)


def test_a_store_is_read_while_titanic_writes(spark: SparkSession, tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.write(*(submitted(number) for number in range(1, 1001)))
        frame = read(spark, tmp_path, columns="service, state", partitionBytes="20k")
        assert frame.groupBy("service", "state").count().collect()[0]["count"] == 1000
        writer.write(answered(7))
        answers = frame.where("state = 'answered'")
        assert answers.count() == 1


def test_a_damaged_record_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.write(submitted(1, b"first"), submitted(2, b"second"), submitted(3, b"third"))
    [segment] = tmp_path.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[data.index(b"second")] ^= 1
    segment.write_bytes(data)
    lost, first, third = rows_of(read(spark, tmp_path))
    assert (first["body"], third["body"]) == (b"first", b"third")
    assert (lost["state"], lost["uuid"], lost["body"]) == ("unreadable", None, None)
    assert "checksum" in lost["reason"] or "damaged" in lost["reason"]


def test_records_copied_by_compaction_count_once(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, segment_size_bytes=4096) as writer:
        for number in range(1, 200):
            writer.write(submitted(number, b"x" * 100))
            if number % 5:
                writer.write(records.encode_closed(uuid(number), NOON_US, b"", 0))
        for _ in range(100):
            writer.store.work()
        assert writer.store.view().removed_segments
        assert [kept.uuid for kept in survey(tmp_path)] == [uuid(n) for n in range(5, 200, 5)]


def test_columns_of_the_journal_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no column 'seq'; the columns are uuid, service"):
        read(spark, tmp_path, columns="uuid, seq")


def test_partitions_are_planned_by_the_size_of_requests(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.write(*(submitted(number, b"x" * 1000) for number in range(1, 101)))
    for columns, count in (("uuid", 2), ("body", 10)):
        options = {"path": str(tmp_path), "log": "titanic", "partitionBytes": "12k"}
        checked = read_options(options | {"columns": columns})
        assert len(TitanicReader(checked, checked.columns).partitions()) == count


def test_folders_without_a_store_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with Log.open(tmp_path / "other", purpose=b"TEST") as log:
        log.commit([b"x"])
    with pytest.raises(Exception, match="is not a store of Titanic"):
        read(spark, tmp_path / "other").collect()
    with pytest.raises(Exception, match="does not exist on this machine"):
        read(spark, tmp_path / "nowhere").collect()


def test_a_store_cannot_be_read_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    write_some(tmp_path)
    frame = spark.readStream.format("requite").option("log", "titanic").load(str(tmp_path))
    with pytest.raises(Exception, match="a table, not a stream"):
        frame.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).trigger(availableNow=True).start().awaitTermination()


def test_the_purpose_is_that_of_titanic() -> None:
    assert OURS == PURPOSE
