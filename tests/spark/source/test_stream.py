"""The journal as a stream: every event once, over restarts, limits, torn tails and retention."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.source.journals import Row, Writing, expected, in_order, span, write_some

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


class Following:
    """A query that writes what it reads to Parquet, run with `availableNow` again and again."""

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
def following(spark: SparkSession, tmp_path: Path) -> Following:
    return Following(spark, tmp_path / "journal", tmp_path)


def test_each_run_reads_what_is_new(following: Following) -> None:
    with Writing(following.journal) as writing:
        writing.spans([span(1)])
        following.run()
        assert following.rows() == expected(following.journal)
        writing.spans([span(2, 1.0), span(3, 1.5, queued=True)])
        write_some(following.journal, role=WriterRole.CLIENT)
        following.run()
        assert following.rows() == expected(following.journal)
        following.run()
        assert following.batches() == 2, "a run without news is no batch"


def test_the_end_of_a_log_that_was_cut_is_told_once(following: Following) -> None:
    logs = []
    for role, cut in ((WriterRole.BROKER, 24), (WriterRole.CLIENT, 31), (WriterRole.WORKER, 500)):
        logs.append(write_some(following.journal, role=role))
        [file] = logs[-1].glob("*.seg")
        os.truncate(file, file.stat().st_size - cut)
    following.run()
    assert following.rows() == expected(following.journal)
    ends = [(row["log"], row["reason"]) for row in following.rows() if row["raw"] is not None]
    assert ends == sorted((log.name, CUT) for log in logs)
    following.run()
    assert following.batches() == 1


def test_the_end_of_a_log_whose_writer_was_killed_is_told_then(following: Following) -> None:
    with Writing(following.journal) as writing:
        writing.spans([span(1)])
        [file] = writing.segments()
        written = len(file.read_bytes().rstrip(b"\0"))
        writing.spans([span(2, 1.0)])
        data = bytearray(file.read_bytes())
        data[written + 100 :] = bytes(len(data) - written - 100)
        file.write_bytes(data)
        following.run()
        assert [row["raw"] for row in following.rows()] == [None] * 3
        writing.log._folder.unlock()
        following.run()
        assert following.rows() == expected(following.journal)
        assert [row["reason"] for row in following.rows() if row["raw"] is not None] == [TORN]


def test_a_limit_cuts_batches_between_records(following: Following) -> None:
    with Writing(following.journal) as writing:
        for number in range(40):
            writing.spans([span(number, number / 8)])
    write_some(following.journal, role=WriterRole.CLIENT)
    following.options = {"maxBytesPerTrigger": "2k"}
    following.run()
    assert following.rows() == expected(following.journal)
    assert following.batches() > 2


def test_damage_and_a_torn_tail_in_a_stream(following: Following) -> None:
    with Writing(following.journal) as writing:
        for number in range(3):
            writing.spans([span(number, number / 8)])
        (segment,) = writing.segments()
        data = bytearray(segment.read_bytes())
        data[len(data.rstrip(b"\0")) - 150] ^= 1  # in the last but one record
        segment.write_bytes(data)
        writing.spans([span(3, 1.0)])
        following.run()
        assert sum(row["raw"] is not None for row in following.rows()) == 1
        end = len(segment.read_bytes().rstrip(b"\0")) // 8 * 8 + 8
        torn = b"\xf5RQ\xb1 torn"
        with segment.open("r+b") as file:
            file.seek(end + 8)
            file.write(torn)
        following.run()
        assert following.batches() == 1
        with segment.open("r+b") as file:
            file.seek(end + 8)
            file.write(bytes(len(torn)))
        writing.spans([span(4, 2.0)])
        following.run()
    assert following.rows() == expected(following.journal)


def test_a_batch_that_failed_is_read_again_as_it_was(
    spark: SparkSession, tmp_path: Path, following: Following
) -> None:
    """The journal grows between the failure and the restart; the batch keeps its end."""
    batches: list[tuple[int, int]] = []

    def fail(batch: Any, number: int) -> None:
        batches.append((number, batch.count()))
        if len(batches) == 1:
            raise RuntimeError("the machine burns")

    def run() -> Exception | None:
        stream = spark.readStream.format("requite").load(str(following.journal))
        writer = stream.writeStream.foreachBatch(fail).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(following.checkpoint)).start()
        try:
            query.awaitTermination(120)
        except Exception as error:
            return error
        return None

    with Writing(following.journal) as writing:
        writing.spans([span(1), span(2)])
        assert "the machine burns" in str(run())
        writing.spans([span(3)])
        assert run() is None
    assert batches == [(0, 6), (0, 6), (1, 3)]


# --- offsets, without Spark ---------------------------------------------------------------------
def stream_reader(journal: Path, **options: str) -> JournalStreamReader:
    checked = read_options({"path": str(journal), **options})
    return JournalStreamReader(checked, checked.columns)


def read_between(journal: Path, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    """Return what a fresh reader, as after a restart, finds between two offsets."""
    reader = stream_reader(journal)
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return in_order(row for batch in batches for row in batch.to_pylist())


def steps(reader: JournalStreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the offsets at which batches end, until nothing is new."""
    limit = reader.getDefaultReadLimit()
    offsets = [start]
    while (end := reader.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(end)
    return offsets


def write_segments(journal: Path, calls: Sequence[int] = range(3000)) -> Writing:
    with Writing(journal, segment_size=80_000) as writing:
        for start in calls[::100]:
            writing.spans([span(each, each / 8) for each in range(start, start + 100)])
    assert len(writing.segments()) == 3
    return writing


@pytest.mark.parametrize("limit", ["1", "10k", "70k", "1g"])
def test_limits_neither_lose_nor_repeat(tmp_path: Path, limit: str) -> None:
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


def test_available_now_ends_with_what_was_there(tmp_path: Path) -> None:
    with Writing(tmp_path) as writing:
        writing.spans([span(1)])
        reader = stream_reader(tmp_path)
        reader.prepareForTriggerAvailableNow()
        writing.spans([span(2)])
        write_some(tmp_path, role=WriterRole.CLIENT)
        offsets = steps(reader, reader.initialOffset())
        assert len(offsets) == 2
        assert len(read_between(tmp_path, *offsets)) == 3


def test_segments_that_were_removed_unread_are_told(tmp_path: Path) -> None:
    writing = write_segments(tmp_path)
    offsets = steps(stream_reader(tmp_path, maxBytesPerTrigger="40k"), {"version": 1, "logs": {}})
    first, second, third = writing.segments()
    start, end = offsets[1], offsets[-1]
    first.unlink()
    found = read_between(tmp_path, start, end)
    (missed,) = [row for row in found if row["raw"] is not None]
    following = int(second.stem)
    next_due = start["logs"][writing.path.name]["next"]
    assert missed["reason"] == (
        f"removed before it was read (records {next_due} to {following - 1})"
    )
    assert missed["segment"] == following
    assert [row for row in found if row["raw"] is None] == [
        row for row in expected(tmp_path) if row["segment"] >= following
    ]
    second.unlink()
    third.unlink()
    (missed,) = read_between(tmp_path, start, end)
    assert "removed before it was read (records" in missed["reason"]


def test_segments_that_were_read_may_be_removed(tmp_path: Path) -> None:
    writing = write_segments(tmp_path)
    reader = stream_reader(tmp_path)
    first, second, _ = writing.segments()
    offsets = steps(stream_reader(tmp_path, maxBytesPerTrigger="1"), {"version": 1, "logs": {}})
    name = writing.path.name
    at_end = [each for each in offsets[1:] if each["logs"][name]["next"] == int(second.stem)]
    first.unlink()
    for start in at_end:
        found = read_between(tmp_path, start, offsets[-1])
        assert found == expected(tmp_path)
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == offsets[-1]


def test_a_log_that_vanished_is_told_and_forgotten(tmp_path: Path) -> None:
    write_some(tmp_path, role=WriterRole.CLIENT)
    with Writing(tmp_path) as writing:
        writing.spans([span(1)])
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    for segment in writing.segments():
        segment.unlink()
    (writing.path / "lock").unlink(missing_ok=True)
    writing.path.rmdir()
    found = read_between(tmp_path, start, end)
    (missed,) = [row for row in found if row["raw"] is not None]
    assert missed["log"] == writing.path.name
    assert "removed before it was read (record" in missed["reason"]
    assert steps(reader, end) == [end]
    write_some(tmp_path, role=WriterRole.WORKER)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert writing.path.name not in later["logs"]
    assert not [row for row in read_between(tmp_path, end, later) if row["raw"] is not None]


def test_a_log_that_was_read_may_vanish(tmp_path: Path) -> None:
    log = write_some(tmp_path)
    (end,) = steps(stream_reader(tmp_path), {"version": 1, "logs": {}})[1:]
    for file in log.iterdir():
        file.unlink()
    log.rmdir()
    assert steps(stream_reader(tmp_path), end) == [end]


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        ({"version": 2, "logs": {}}, "upgrade requite"),
        ({"logs": {}}, "an offset that is not of a journal"),
        ({"version": 1, "logs": {"x": {"segment": 0}}}, "an offset that is not of a journal"),
    ],
)
def test_offsets_of_others_are_refused(tmp_path: Path, offset: dict[str, Any], words: str) -> None:
    write_some(tmp_path)
    reader = stream_reader(tmp_path)
    with pytest.raises(ValueError, match=words):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


def test_commit_deletes_nothing(tmp_path: Path) -> None:
    log = write_some(tmp_path)
    reader = stream_reader(tmp_path)
    before = {file: file.read_bytes() for file in log.iterdir()}
    reader.commit(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))
    assert {file: file.read_bytes() for file in log.iterdir()} == before


@pytest.mark.parametrize("gone", [0, 1], ids=["the first", "one in the middle"])
def test_a_segment_that_is_missing_is_told(tmp_path: Path, gone: int) -> None:
    writing = write_segments(tmp_path)
    segments = writing.segments()
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

    # A table of what there is now may begin anywhere, and has no holes either.
    options = read_options({"path": str(tmp_path)})
    reader = JournalReader(options, options.columns)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    table = in_order(row for batch in batches for row in batch.to_pylist())
    assert table == (found if gone else kept) == expected(tmp_path)


@pytest.mark.parametrize("limit", ["1", "1g"])
def test_a_segment_of_another_log_is_told_and_not_read(tmp_path: Path, limit: str) -> None:
    paths = []
    for name in (b"broker-1", b"broker-2"):
        with Writing(tmp_path / "journal", name=name, nameless=False) as writing:
            for number in range(3):
                writing.spans([span(number, number / 8)])
        paths.append(writing.path)
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


def test_copies_of_a_log_that_is_written_lose_nothing(tmp_path: Path) -> None:
    """Each is torn where the writer had come to; the fourth one is taken for the last, wrongly."""
    journal, copied = tmp_path / "journal", tmp_path / "copied"
    reader = stream_reader(copied)
    offset, found = reader.initialOffset(), list[Row]()
    with Writing(journal) as writing:
        log = copied / writing.path.name
        for number in range(8):
            [segment] = writing.segments()
            start = len(segment.read_bytes().rstrip(b"\0")) // 8 * 8 + 8
            writing.spans([span(number, number / 8)])
            data = bytearray(segment.read_bytes())
            data[start + 30 :] = bytes(len(data) - start - 30)
            log.mkdir(parents=True, exist_ok=True)
            (log / segment.name).write_bytes(data)
            if number == 3:
                os.utime(log / segment.name, (0, 0))
            end = reader.latestOffset(offset, reader.getDefaultReadLimit())
            found += read_between(copied, offset, end)
            offset = end
            told = [row["reason"] for row in found if row["raw"] is not None]
            assert told == [TORN] * (number >= 3)
        shutil.copytree(writing.path, log, dirs_exist_ok=True)
    end = reader.latestOffset(offset, reader.getDefaultReadLimit())
    found += read_between(copied, offset, end)
    assert in_order(row for row in found if row["raw"] is None) == expected(journal)
