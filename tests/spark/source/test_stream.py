"""The journal as a stream: every event once, over restarts, limits, torn tails and retention."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.source.journals import LogWriter, Row, expected, in_order, span, write_some

from requite.chronicle import WriterRole
from requite.journal.stats import stats
from requite.spark.source.batch import JournalReader
from requite.spark.source.options import read_options
from requite.spark.source.stream import JournalStreamReader
from requite.storage.ending import CUT, TORN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(180)  # the first test of a run starts the JVM


class Follower:
    """A streaming query from a journal to Parquet; each `run` uses `availableNow`."""

    def __init__(self, spark: SparkSession, journal: Path, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.journal = journal
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"
        self.options = options

    def run(self) -> StreamingQuery:
        stream = self.spark.readStream.format("requite").options(**self.options)
        writer = stream.load(str(self.journal)).writeStream.format("parquet")
        query = (
            writer.option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.out))
        )
        query.awaitTermination(120)
        assert query.exception() is None
        return query

    def rows(self) -> list[Row]:
        return in_order(iter(self.spark.read.parquet(str(self.out)).toArrow().to_pylist()))

    def batches(self) -> int:
        return len(list((self.checkpoint / "commits").glob("[0-9]*")))


@pytest.fixture
def follower(spark: SparkSession, tmp_path: Path) -> Follower:
    return Follower(spark, tmp_path / "journal", tmp_path)


def test_each_run_reads_new_events(follower: Follower) -> None:
    with LogWriter(follower.journal) as writer:
        writer.spans([span(1)])
        follower.run()
        assert follower.rows() == expected(follower.journal)
        writer.spans([span(2, 1.0), span(3, 1.5, queued=True)])
        write_some(follower.journal, role=WriterRole.CLIENT)
        follower.run()
        assert follower.rows() == expected(follower.journal)
        follower.run()
        assert follower.batches() == 2, "a run without new events writes no batch"


def test_a_truncated_end_is_reported_once(follower: Follower) -> None:
    logs = []
    for role, cut in ((WriterRole.BROKER, 24), (WriterRole.CLIENT, 31), (WriterRole.WORKER, 500)):
        logs.append(write_some(follower.journal, role=role))
        [file] = logs[-1].glob("*.seg")
        os.truncate(file, file.stat().st_size - cut)
    follower.run()
    assert follower.rows() == expected(follower.journal)
    ends = [(row["log"], row["reason"]) for row in follower.rows() if row["raw"] is not None]
    assert ends == sorted((log.name, CUT) for log in logs)
    follower.run()
    assert follower.batches() == 1


def test_a_torn_end_is_reported_after_the_writer_was_killed(follower: Follower) -> None:
    with LogWriter(follower.journal) as writer:
        writer.spans([span(1)])
        [file] = writer.segments()
        written = len(file.read_bytes().rstrip(b"\0"))
        writer.spans([span(2, 1.0)])
        data = bytearray(file.read_bytes())
        data[written + 100 :] = bytes(len(data) - written - 100)
        file.write_bytes(data)
        follower.run()
        assert [row["raw"] for row in follower.rows()] == [None] * 3
        writer.log._folder.unlock()
        follower.run()
        assert follower.rows() == expected(follower.journal)
        assert [row["reason"] for row in follower.rows() if row["raw"] is not None] == [TORN]


def test_a_limit_splits_batches_between_records(follower: Follower) -> None:
    with LogWriter(follower.journal) as writer:
        for number in range(40):
            writer.spans([span(number, number / 8)])
    write_some(follower.journal, role=WriterRole.CLIENT)
    follower.options = {"maxBytesPerTrigger": "2k"}
    follower.run()
    assert follower.rows() == expected(follower.journal)
    assert follower.batches() > 2


def test_damage_and_a_torn_tail_in_a_stream(follower: Follower) -> None:
    with LogWriter(follower.journal) as writer:
        for number in range(3):
            writer.spans([span(number, number / 8)])
        (segment,) = writer.segments()
        data = bytearray(segment.read_bytes())
        data[len(data.rstrip(b"\0")) - 150] ^= 1  # in the second-last record
        segment.write_bytes(data)
        writer.spans([span(3, 1.0)])
        follower.run()
        assert sum(row["raw"] is not None for row in follower.rows()) == 1
        end = len(segment.read_bytes().rstrip(b"\0")) // 8 * 8 + 8
        torn = b"\xf5RQ\xb1 torn"
        with segment.open("r+b") as file:
            file.seek(end + 8)
            file.write(torn)
        follower.run()
        assert follower.batches() == 1
        with segment.open("r+b") as file:
            file.seek(end + 8)
            file.write(bytes(len(torn)))
        writer.spans([span(4, 2.0)])
        follower.run()
    assert follower.rows() == expected(follower.journal)


def test_a_failed_batch_is_read_again_unchanged(
    spark: SparkSession, tmp_path: Path, follower: Follower
) -> None:
    """The journal grows between the failure and the restart; the batch keeps its end."""
    batches: list[tuple[int, int]] = []

    def fail(batch: Any, number: int) -> None:
        batches.append((number, batch.count()))
        if len(batches) == 1:
            raise RuntimeError("the machine burns")

    def run() -> Exception | None:
        stream = spark.readStream.format("requite").load(str(follower.journal))
        writer = stream.writeStream.foreachBatch(fail).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(follower.checkpoint)).start()
        try:
            query.awaitTermination(120)
        except Exception as error:
            return error
        return None

    with LogWriter(follower.journal) as writer:
        writer.spans([span(1), span(2)])
        assert "the machine burns" in str(run())
        writer.spans([span(3)])
        assert run() is None
    assert batches == [(0, 6), (0, 6), (1, 3)]


# --- offsets, without Spark -----------------------------------------------------------------------
def stream_reader(journal: Path, **options: str) -> JournalStreamReader:
    checked = read_options({"path": str(journal), **options})
    return JournalStreamReader(checked, checked.columns)


def read_between(journal: Path, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    """Return the rows between two offsets, read by a new reader as after a restart."""
    reader = stream_reader(journal)
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return in_order(row for batch in batches for row in batch.to_pylist())


def steps(reader: JournalStreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `start` and the end offset of each batch up to the end of the journal."""
    limit = reader.getDefaultReadLimit()
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    return offsets


def write_segments(journal: Path, calls: Sequence[int] = range(3000)) -> LogWriter:
    with LogWriter(journal, segment_size=80_000) as writer:
        for start in calls[::100]:
            writer.spans([span(each, each / 8) for each in range(start, start + 100)])
    assert len(writer.segments()) == 3
    return writer


@pytest.mark.parametrize("limit", ["1", "10k", "70k", "1g"])
def test_limits_neither_lose_nor_repeat_events(tmp_path: Path, limit: str) -> None:
    write_segments(tmp_path)
    write_some(tmp_path, role=WriterRole.CLIENT)
    offsets = steps(stream_reader(tmp_path, maxBytesPerTrigger=limit), {"version": 1, "logs": {}})
    found = [row for start, end in pairwise(offsets) for row in read_between(tmp_path, start, end)]
    assert in_order(iter(found)) == expected(tmp_path)
    assert len(offsets) > {"1": 33, "10k": 15, "70k": 2, "1g": 1}[limit]


def test_a_log_that_grows_faster_does_not_starve_the_others(tmp_path: Path) -> None:
    write_segments(tmp_path)
    client = write_some(tmp_path, role=WriterRole.CLIENT)
    reader = stream_reader(tmp_path, maxBytesPerTrigger="10k")
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert first["logs"][client.name]["offset"] == (client / f"{0:020}.seg").stat().st_size


def test_available_now_stops_at_the_events_present_at_its_start(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
        reader = stream_reader(tmp_path)
        reader.prepareForTriggerAvailableNow()
        writer.spans([span(2)])
        write_some(tmp_path, role=WriterRole.CLIENT)
        offsets = steps(reader, reader.initialOffset())
        assert len(offsets) == 2
        assert len(read_between(tmp_path, *offsets)) == 3


def test_segments_removed_unread_are_reported(tmp_path: Path) -> None:
    writer = write_segments(tmp_path)
    offsets = steps(stream_reader(tmp_path, maxBytesPerTrigger="40k"), {"version": 1, "logs": {}})
    first, second, third = writer.segments()
    start, end = offsets[1], offsets[-1]
    first.unlink()
    found = read_between(tmp_path, start, end)
    (missed,) = [row for row in found if row["raw"] is not None]
    next_number = int(second.stem)
    next_due = start["logs"][writer.path.name]["next"]
    assert missed["reason"] == (
        f"removed before it was read (records {next_due} to {next_number - 1})"
    )
    assert missed["segment"] == next_number
    assert [row for row in found if row["raw"] is None] == [
        row for row in expected(tmp_path) if row["segment"] >= next_number
    ]
    second.unlink()
    third.unlink()
    (missed,) = read_between(tmp_path, start, end)
    assert "removed before it was read (records" in missed["reason"]


def test_segments_that_were_read_may_be_removed(tmp_path: Path) -> None:
    writer = write_segments(tmp_path)
    reader = stream_reader(tmp_path)
    first, second, _ = writer.segments()
    offsets = steps(stream_reader(tmp_path, maxBytesPerTrigger="1"), {"version": 1, "logs": {}})
    name = writer.path.name
    at_end = [each for each in offsets[1:] if each["logs"][name]["next"] == int(second.stem)]
    first.unlink()
    for start in at_end:
        found = read_between(tmp_path, start, offsets[-1])
        assert found == expected(tmp_path)
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == offsets[-1]


def test_a_removed_log_is_reported_and_forgotten(tmp_path: Path) -> None:
    write_some(tmp_path, role=WriterRole.CLIENT)
    with LogWriter(tmp_path) as writer:
        writer.spans([span(1)])
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    for segment in writer.segments():
        segment.unlink()
    (writer.path / "lock").unlink(missing_ok=True)
    writer.path.rmdir()
    found = read_between(tmp_path, start, end)
    (missed,) = [row for row in found if row["raw"] is not None]
    assert missed["log"] == writer.path.name
    assert "removed before it was read (record" in missed["reason"]
    assert steps(reader, end) == [end]
    write_some(tmp_path, role=WriterRole.WORKER)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert writer.path.name not in later["logs"]
    assert not [row for row in read_between(tmp_path, end, later) if row["raw"] is not None]


def test_a_log_may_be_removed_after_it_was_read(tmp_path: Path) -> None:
    log = write_some(tmp_path)
    (end,) = steps(stream_reader(tmp_path), {"version": 1, "logs": {}})[1:]
    for file in log.iterdir():
        file.unlink()
    log.rmdir()
    assert steps(stream_reader(tmp_path), end) == [end]


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        ({"version": 2, "logs": {}}, "upgrade requite"),
        ({"logs": {}}, "an offset that is not of a journal"),
        ({"version": 1, "logs": {"x": {"segment": 0}}}, "an offset that is not of a journal"),
    ],
)
def test_invalid_offsets_are_refused(tmp_path: Path, offset: dict[str, Any], message: str) -> None:
    write_some(tmp_path)
    reader = stream_reader(tmp_path)
    with pytest.raises(ValueError, match=message):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


def test_commit_deletes_nothing(tmp_path: Path) -> None:
    log = write_some(tmp_path)
    reader = stream_reader(tmp_path)
    before = {file: file.read_bytes() for file in log.iterdir()}
    reader.commit(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))
    assert {file: file.read_bytes() for file in log.iterdir()} == before


@pytest.mark.parametrize("gone", [0, 1], ids=["the first", "one in the middle"])
def test_a_missing_segment_is_reported(tmp_path: Path, gone: int) -> None:
    writer = write_segments(tmp_path)
    segments = writer.segments()
    whole = expected(tmp_path)
    segments[gone].unlink()
    first, last = int(segments[gone].stem), int(segments[gone + 1].stem) - 1
    reason = f"removed before it was read (records {first} to {last})"
    offsets = steps(stream_reader(tmp_path), {"version": 1, "logs": {}})
    found = read_between(tmp_path, offsets[0], offsets[-1])
    missed = [(row["segment"], row["reason"]) for row in found if row["raw"] is not None]
    assert missed == [(last + 1, reason)]
    kept = [row for row in found if row["raw"] is None]
    assert kept == [row for row in whole if row["segment"] != first]

    # A batch read may start at any segment, and reports a gap only after its first one.
    options = read_options({"path": str(tmp_path)})
    reader = JournalReader(options, options.columns)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    table = in_order(row for batch in batches for row in batch.to_pylist())
    assert table == (found if gone else kept) == expected(tmp_path)


@pytest.mark.parametrize("limit", ["1", "1g"])
def test_a_segment_of_another_log_is_reported_and_not_read(tmp_path: Path, limit: str) -> None:
    paths = []
    for name in (b"broker-1", b"broker-2"):
        with LogWriter(tmp_path / "journal", name=name, nameless=False) as writer:
            for number in range(3):
                writer.spans([span(number, number / 8)])
        paths.append(writer.path)
    shutil.copytree(paths[0], tmp_path / "journal" / "broker-0123456789abcdef")
    first, second = (path / f"{0:020}.seg" for path in paths)
    first.rename(tmp_path / "swapped")
    second.rename(first)
    (tmp_path / "swapped").rename(second)
    reader = stream_reader(tmp_path / "journal", maxBytesPerTrigger=limit)
    offsets = steps(reader, {"version": 1, "logs": {}})
    journal = tmp_path / "journal"
    found = [row for start, end in pairwise(offsets) for row in read_between(journal, start, end)]
    assert [(row["log"], row["reason"]) for row in in_order(iter(found))] == [
        ("broker-0123456789abcdef", f"the segment belongs to another log: {paths[0].name}"),
        (paths[0].name, f"the segment belongs to another log: {paths[1].name}"),
        (paths[1].name, f"the segment belongs to another log: {paths[0].name}"),
    ]
    assert in_order(iter(found)) == expected(journal)
    counted = [(log.flaws.total(), log.events.total()) for log in stats(journal)]
    assert counted == [(1, 0)] * 3


def test_copies_of_a_growing_log_lose_no_event(tmp_path: Path) -> None:
    """Each copy ends in a torn record; the fourth one is so old that it is taken for complete."""
    journal, copied = tmp_path / "journal", tmp_path / "copied"
    reader = stream_reader(copied)
    offset, found = reader.initialOffset(), list[Row]()
    with LogWriter(journal) as writer:
        log = copied / writer.path.name
        for number in range(8):
            [segment] = writer.segments()
            start = len(segment.read_bytes().rstrip(b"\0")) // 8 * 8 + 8
            writer.spans([span(number, number / 8)])
            data = bytearray(segment.read_bytes())
            data[start + 30 :] = bytes(len(data) - start - 30)
            log.mkdir(parents=True, exist_ok=True)
            (log / segment.name).write_bytes(data)
            if number == 3:
                os.utime(log / segment.name, (0, 0))
            end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            found += read_between(copied, offset, end)
            offset = end
            reported = [row["reason"] for row in found if row["raw"] is not None]
            assert reported == [TORN] * (number >= 3)
        shutil.copytree(writer.path, log, dirs_exist_ok=True)
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    found += read_between(copied, offset, end)
    assert in_order(row for row in found if row["raw"] is None) == expected(journal)
