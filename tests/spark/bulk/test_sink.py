"""`format("requite")` as a sink: batch writes and micro-batches whose rows become requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.bulk.services import Recorded

import requite.spark
from requite.errors import ConfigurationError
from requite.spark.sink.replies import Replies
from requite.spark.sink.writer import arrow_writer, stream_writer

# The first test of a run waits for Spark to start, which a busy machine takes a minute for.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OPTIONS = {"url": "mdp://127.0.0.1:1/echo", "body": "body", "key": "id"}


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    requite.spark.register(spark)


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(count, numPartitions=partitions).select(
        "id", F.col("id").cast("string").alias("body")
    )


def write(df: DataFrame, recorded: Recorded, **more: str) -> None:
    options = OPTIONS | {"url": recorded.url()} | more
    df.write.format("requite").options(**options).mode("append").save()


# --- batch ----------------------------------------------------------------------------------------
def test_rows_of_a_write_become_requests(spark: SparkSession, recorded: Recorded) -> None:
    write(numbers(spark, 100), recorded)
    assert recorded.bodies == {b"%d" % n: 1 for n in range(100)}
    assert len(recorded.keys) == 100


def test_replies_are_written_where_the_option_says(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    df = spark.createDataFrame([(1, "one"), (2, None), (3, "three")], "id int, body string")
    write(df, recorded, repliesTo=str(tmp_path))
    write(df.selectExpr("0 AS id", "'0' AS body").limit(1), recorded, repliesTo=str(tmp_path))
    rows = spark.read.parquet(str(tmp_path)).collect()
    told = {(row.id, row.status, row.reply and bytes(row.reply)) for row in rows}
    assert told == {(1, "OK", b"one"), (2, "BadRow", None), (3, "OK", b"three"), (0, "OK", b"0")}
    assert len({UUID(row.requite_write) for row in rows}) == 2
    assert not list((tmp_path / "_requite").iterdir())


def test_a_row_without_a_reply_fails_a_write_that_keeps_none(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    df = spark.createDataFrame([(1, "one"), (2, None), (3, "three")], "id int, body string")
    message = re.escape("1 of 3 rows have no reply; the first ended with BadRow: the body is null")
    with pytest.raises(PySparkException, match=message):
        write(df, recorded)
    with pytest.raises(PySparkException, match=message):
        write(df, recorded, repliesTo=str(tmp_path), onError="fail")
    assert set(recorded.bodies) == {b"one", b"three"}, "all rows are tried"
    assert not list(tmp_path.glob("requite_write=*")), "nothing is published"
    write(df, recorded, onError="ignore")


def test_named_jobs_keep_their_ids(spark: SparkSession, recorded: Recorded) -> None:
    more = {"rate": "500", "taskSlots": "2", "retryOn": "NoService, CallTimeout"}
    for job in ("march", "march", "april"):
        write(numbers(spark, 10), recorded, job=job, **more)
    assert sorted(recorded.keys.values()) == [1] * 10 + [2] * 10


# --- micro-batches --------------------------------------------------------------------------------
@pytest.fixture
def inbox(tmp_path: Path, spark: SparkSession) -> Iterator[Path]:
    """A folder of JSON files that a stream reads, one file per micro-batch."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    yield folder
    for query in spark.streams.active:
        query.stop()


def put(inbox: Path, name: str, *numbers: int) -> None:
    lines = (f'{{"id": {n}, "body": "{n}"}}\n' for n in numbers)
    (inbox / f"{name}.json").write_text("".join(lines))


def stream(spark: SparkSession, inbox: Path, recorded: Recorded, **more: str) -> None:
    """Process what is there, and end."""
    read = spark.readStream.schema("id int, body string").option("maxFilesPerTrigger", 1)
    options = OPTIONS | {"url": recorded.url(), "checkpointLocation": str(inbox.parent / "ckpt")}
    query = (
        read.json(str(inbox))
        .writeStream.format("requite")
        .options(**(options | more))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_commit(inbox: Path) -> int:
    """Make Spark believe that it was ended before the last micro-batch was committed."""
    commits = sorted((inbox.parent / "ckpt" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    last = commits[-1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    return int(last.name)


def test_a_replayed_micro_batch_sends_the_same_ids(
    spark: SparkSession, recorded: Recorded, inbox: Path
) -> None:
    put(inbox, "a", 1, 2, 3)
    put(inbox, "b", 4, 5)
    stream(spark, inbox, recorded)
    first = dict(recorded.keys)
    assert len(first) == 5
    assert forget_last_commit(inbox) == 1
    put(inbox, "c", 6)
    stream(spark, inbox, recorded)
    assert recorded.bodies == {b"1": 1, b"2": 1, b"3": 1, b"4": 2, b"5": 2, b"6": 1}
    assert len(recorded.keys) == 6, "no more ids than rows"
    assert first.keys() <= recorded.keys.keys()


def test_a_replayed_micro_batch_leaves_one_reply_per_row(
    spark: SparkSession, recorded: Recorded, inbox: Path, tmp_path: Path
) -> None:
    replies = str(tmp_path / "replies")
    put(inbox, "a", 1, 2, 3)
    put(inbox, "b", 4, 5)
    stream(spark, inbox, recorded, repliesTo=replies)
    forget_last_commit(inbox)
    put(inbox, "c", 6)
    stream(spark, inbox, recorded, repliesTo=replies)
    rows = spark.read.parquet(replies).orderBy("id").collect()
    assert [(row.id, row.status) for row in rows] == [(n, "OK") for n in range(1, 7)]
    assert {UUID(row.idempotency_key) for row in rows} == recorded.keys.keys()
    assert set(recorded.keys.values()) == {1}, "what is committed is not sent again"
    assert {row.requite_write.rsplit("-", 1)[1] for row in rows} == {"0", "1", "2"}


def test_a_micro_batch_by_position_has_ids_of_its_own(
    spark: SparkSession, recorded: Recorded, inbox: Path
) -> None:
    put(inbox, "a", 1, 2)
    put(inbox, "b", 3)
    options: dict[str, Any] = {"keyByPosition": "true", "key": ""}
    stream(spark, inbox, recorded, **options)
    forget_last_commit(inbox)
    stream(spark, inbox, recorded, **options)
    assert sorted(recorded.keys.values()) == [1, 1, 2]


def test_calls_within_a_stream_keep_their_ids(
    spark: SparkSession, recorded: Recorded, inbox: Path, tmp_path: Path
) -> None:
    def run() -> None:
        read = spark.readStream.schema("id int, body string").option("maxFilesPerTrigger", 1)
        answered = requite.spark.call(
            read.json(str(inbox)), recorded.url(), body="body", key="id", job="numbers"
        )
        write = answered.writeStream.option("checkpointLocation", str(inbox.parent / "ckpt"))
        write.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(tmp_path / "out" / f"batch={number}"))

    put(inbox, "a", 1, 2)
    put(inbox, "b", 3)
    run()
    forget_last_commit(inbox)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.id for row in rows) == [1, 2, 3]
    assert {UUID(row.idempotency_key) for row in rows} == recorded.keys.keys()
    assert recorded.bodies == {b"1": 1, b"2": 1, b"3": 2}


# --- what is refused at once ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": ""}, "requires the option url"),
        ({"body": ""}, "requires the option body"),
        ({"key": ""}, "name the column that identifies a row"),
        ({"body": "nope"}, "no column 'nope' for the body; the columns are id, body"),
        ({"body": "id"}, "has the type int"),
        ({"window": "many"}, "the option window must be a number, not 'many'"),
        ({"timeout": "0"}, "a timeout must be positive"),
        ({"onError": "cry"}, "onError must be fail or keep or ignore, not 'cry'"),
        ({"onError": "keep"}, "requires a folder for the rows: set repliesTo"),
        ({"inFlightMax": "5"}, "set taskSlots as well"),
        ({"rate": "5"}, "rate is divided among tasks: set taskSlots as well"),
        ({"rate": "-5", "taskSlots": "1"}, "rate must be a positive number of requests per second"),
        ({"retryOn": "NoService,Nope"}, "retry_on cannot contain Nope"),
        ({"retryAttempts": "0"}, "the option retryAttempts must be at least 1"),
        ({"inFlightMax": "5", "taskSlots": "0"}, "the option taskSlots must be at least 1, not 0"),
        ({"window": "-1"}, "the option window must be at least 1, not -1"),
        ({"keyByPosition": "true"}, "either the option key or keyByPosition, not both"),
        ({"repliesTwo": "x"}, "unknown option repliestwo; the options of the sink are repliesTo"),
        ({"path": "x"}, "unknown option path"),
        ({"giveUp": "maybe"}, "giveUp must be true or false"),
    ],
)
def test_options_that_cannot_work_are_refused(
    spark: SparkSession, change: dict[str, str], message: str
) -> None:
    schema = spark.createDataFrame([], "id int, body string").schema
    for make in (arrow_writer, stream_writer):
        with pytest.raises(ConfigurationError, match=message):
            make(OPTIONS | change, schema, overwrite=False)


def test_requests_cannot_be_overwritten(spark: SparkSession, recorded: Recorded) -> None:
    schema = spark.createDataFrame([], "id int, body string").schema
    with pytest.raises(ConfigurationError, match=r"use mode\('append'\)"):
        arrow_writer(OPTIONS, schema, overwrite=True)


@pytest.mark.parametrize("place", ["{}/file/replies", "file://{}/file/replies", "nowhere://{}"])
def test_a_place_that_takes_no_replies_is_refused(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("mine")
    schema = spark.createDataFrame([], "id int, body string").schema
    options = OPTIONS | {"repliesTo": place.format(tmp_path)}
    for make in (arrow_writer, stream_writer):
        with pytest.raises(ConfigurationError, match="cannot write replies to"):
            make(options, schema, overwrite=False)


def test_nothing_is_sent_whose_reply_could_not_be_kept(tmp_path: Path) -> None:
    def batches() -> Iterator[Any]:
        pytest.fail("a request was sent")
        yield

    (tmp_path / "_requite").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="_requite"):
        Replies(str(tmp_path)).stage(batches(), "w")


def test_a_write_is_published_once(tmp_path: Path) -> None:
    import pyarrow as pa

    def batches(n: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [n]})

    replies = Replies(f"file://{tmp_path}")
    assert replies.stage(iter(()), "w") is None
    late = replies.stage(batches(3), "w")  # of a task that lost the race
    parts = [replies.stage(batches(n), "w") for n in (1, 2)]
    assert not replies.has("w")
    replies.publish("w", [part for part in parts if part])
    assert replies.has("w")
    assert late is not None
    replies.publish("w", [late])
    files = list((tmp_path / "requite_write=w").iterdir())
    assert {file.name for file in files} == {part.name for part in parts if part}
    assert not list((tmp_path / "_requite").iterdir())
