"""Damaged files are read again once they change; no event is lost or duplicated.

The oracle is the undamaged journal. A journal is damaged, read, repaired, and read again. Then the
reader has every event exactly once, and reports no damage.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from time import time, time_ns
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from tests.spark.source.journals import LogWriter, span
from tests.spark.source.test_random_damage import COLUMNS, DAMAGES, Truth, Undamaged, undamaged
from tests.spark.source.test_stream import steps, stream_reader

from requite.chronicle import WriterRole
from requite.spark.ingest import Known, find_known
from requite.spark.source.marks import Offset
from requite.spark.source.reread import Outdated, Rereading, Skipped
from requite.spark.source.stream import JournalStreamReader
from requite.storage.shipped import SHIPPED_NAME, Shipped, encode_shipped

__all__ = ["undamaged"]


class Following:
    """Reads a journal repeatedly, as runs of the pipeline do; collects events and bad rows."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.events: Truth = Counter()
        self.bad: list[dict[str, Any]] = []
        self.skipped: list[Skipped] = []
        self.offset: Offset | None = None

    def read(self) -> int:
        """Read new and changed data; return how many events were added."""
        reader, since_ns = stream_reader(self.journal), time_ns()
        again = reader.reread(self.skipped, self.offset or reader.initialOffset())
        end = steps(reader, again.start)[-1]
        shares = [*again.shares]
        shares += reader.partitions(again.start, end) if end != again.start else []
        self.bad = [row for row in self.bad if not any(is_outdated(row, e) for e in again.outdated)]
        before, bad, before_events = self.events.total(), self.bad, self.events.copy()
        known = self._known(again.segments)
        found = self._read_shares(reader, shares, known)
        wrong = {place for place, rows in known.items() if found[place] < rows.num_rows}
        if wrong:
            self.bad = bad
            self.events = Counter({e: n for e, n in before_events.items() if e[:2] not in wrong})
            kept = {place: rows for place, rows in known.items() if place not in wrong}
            self._read_shares(reader, shares, kept)
        segments: dict[str, dict[int, int]] = {}
        for row in sorted(self.bad, key=lambda row: -row["byte_offset"]):
            segments.setdefault(row["log"], {})[row["segment"]] = row["byte_offset"]
        self.skipped, self.offset = reader.note(segments, end, since_ns), end
        return self.events.total() - before

    def _known(self, segments: Collection[tuple[str, int]]) -> dict[tuple[str, int], pa.Table]:
        known: dict[tuple[str, int], pa.Table] = {}
        for place in segments:
            rows = [dict(zip(COLUMNS, e, strict=True)) for e in self.events if e[:2] == place]
            if rows:
                known[place] = pa.Table.from_pylist(rows)
        return known

    def _read_shares(
        self, reader: JournalStreamReader, shares: Sequence[InputPartition], known: Known
    ) -> Counter[tuple[str, int]]:
        """Read shares; return how many known events were found, by segment."""
        found: Counter[tuple[str, int]] = Counter()
        for share in shares:
            for batch in reader.read(share):
                bad = batch.filter(batch.column("raw").is_valid())
                places = ["log", "segment", "byte_offset", "raw", "reason"]
                self.bad = [*self.bad, *bad.select(places).to_pylist()]
                good = batch.filter(pc.is_null(batch.column("raw")))
                place, is_known = find_known(good, known)
                if place is not None:
                    found[place] += pc.sum(is_known).as_py() or 0
                    good = good.filter(pc.invert(is_known))
                self.events.update(zip(*(good.column(n).to_pylist() for n in COLUMNS), strict=True))
        return found


def is_outdated(row: dict[str, Any], each: Outdated) -> bool:
    """Whether a quarantined row is outdated, by the rule of `requite.spark.ingest`."""
    is_there = (row["log"], row["segment"]) == (each.log, each.segment)
    is_gap = row["byte_offset"] == 0 and not row["raw"]
    return is_there and each.since <= row["byte_offset"] and is_gap == each.gaps


def copy(journal: Path, target: Path) -> None:
    """Copy a journal so that its reader takes the copy for complete."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(journal, target)
    for lock in target.glob("*/lock"):
        lock.write_text("1\n")


REPAIRED = sorted(set(DAMAGES) - {"double", "double_the_log", "swap_logs"})
"""Damages that a repair undoes. The others create damaged files, which the repair removes as
retention would, so the reports of them remain."""


@given(how=st.sampled_from(REPAIRED), seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
@example(how="delete", seeds=[1])
@settings(max_examples=40, deadline=None)
def test_what_is_repaired_is_read(undamaged: Undamaged, how: str, seeds: list[int]) -> None:
    copy(undamaged.journal, undamaged.damaged)
    for seed in seeds:
        luck = random.Random(seed)
        places = sorted(path for path in undamaged.damaged.rglob("*") if path.is_file())
        files = [path for path in places if path.name != "lock"]
        DAMAGES[how](luck.choice(files), luck.choice(files), luck)
    following = Following(undamaged.damaged)
    following.read()
    copy(undamaged.journal, undamaged.damaged)
    following.read()
    assert following.bad == []
    assert following.events == undamaged.truth
    assert following.read() == 0


def test_late_segments_are_read_as_they_arrive(undamaged: Undamaged) -> None:
    copy(undamaged.journal, undamaged.damaged)
    [log] = undamaged.damaged.glob("broker-*")
    segments = sorted(log.glob("*.seg"))
    away = undamaged.damaged.parent / "away"
    shutil.rmtree(away, ignore_errors=True)
    away.mkdir()
    for path in segments[:-1]:
        path.rename(away / path.name)
    following = Following(undamaged.damaged)
    following.read()
    first, *others = [path.name for path in segments[:-1]]
    gaps = []
    for name in [*others, first]:
        assert all(row["reason"].startswith("removed") for row in following.bad)
        gaps.append(len(following.bad))
        (away / name).rename(log / name)
        assert following.read() > 0
    assert gaps == [1, *[2] * (len(others) - 1), 1]
    assert following.bad == []
    assert following.events == undamaged.truth


def test_unchanged_damage_is_not_read_again(undamaged: Undamaged) -> None:
    copy(undamaged.journal, undamaged.damaged)
    segment = sorted(undamaged.damaged.glob("broker-*/*.seg"))[1]
    data = bytearray(segment.read_bytes())
    data[700] ^= 1
    segment.write_bytes(data)
    following = Following(undamaged.damaged)
    following.read()
    assert [row["segment"] for row in following.bad] == [each.segment for each in following.skipped]
    reader, offset = stream_reader(undamaged.damaged), following.offset
    assert offset is not None
    assert reader.reread(following.skipped, offset) == Rereading(offset)
    segment.write_bytes(data)  # new modification time, same content
    assert reader.reread(following.skipped, offset) == Rereading(offset)


def test_a_segment_that_changes_during_a_read_is_read_again(undamaged: Undamaged) -> None:
    copy(undamaged.journal, undamaged.damaged)
    segment = sorted(undamaged.damaged.glob("broker-*/*.seg"))[1]
    segment.write_bytes(segment.read_bytes()[:700])
    following = Following(undamaged.damaged)
    following.read()
    reader, offset = stream_reader(undamaged.damaged), following.offset
    assert offset is not None
    [skipped] = following.skipped
    noted = reader.note({skipped.log: {skipped.segment: 0}}, offset, skipped.changed_ns)
    assert reader.reread(noted, offset).shares


def test_segments_removed_after_a_read_are_not_missing(tmp_path: Path) -> None:
    with LogWriter(tmp_path, segment_size=5_000) as writer:
        for number in range(0, 200, 10):
            writer.spans([span(each, each / 8) for each in range(number, number + 10)])
    segments = writer.segments()
    data = bytearray(segments[2].read_bytes())
    data[700] ^= 1
    segments[2].write_bytes(data)
    following = Following(tmp_path)
    following.read()
    bad = following.bad
    for path in segments[:2]:
        path.unlink()
    assert following.read() == 0
    assert following.bad == bad
    segments[2].unlink()
    assert following.read() == 0
    assert following.bad == bad


def test_a_recent_copy_without_a_noted_end_is_behind(
    tmp_path: Path,
) -> None:
    with LogWriter(tmp_path / "original", WriterRole.CLIENT) as writer:
        writer.spans([span(1)])
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        assert stream_reader(tmp_path / "original").behind() == []
    reader, log = stream_reader(tmp_path / "copy"), tmp_path / "copy" / writer.path.name
    assert reader.behind() == [log.name]
    (log / SHIPPED_NAME).write_bytes(encode_shipped(Shipped(0, 64, is_ended=True)))
    assert reader.behind() == []
    (log / SHIPPED_NAME).write_bytes(encode_shipped(Shipped(0, 64, is_ended=False)))
    assert reader.behind() == [log.name]
    an_hour_ago = time() - 3600
    os.utime(log / "00000000000000000000.seg", (an_hour_ago, an_hour_ago))
    assert reader.behind() == []


@pytest.mark.parametrize("cut", [0, 100])
def test_the_torn_end_of_a_copy_is_forgotten_once_the_copy_is_complete(
    tmp_path: Path, cut: int
) -> None:
    with LogWriter(tmp_path / "original", WriterRole.CLIENT) as writer:
        writer.spans([span(1)])
        writer.spans([span(2, 1.0)])
    [segment] = writer.segments()
    whole = segment.read_bytes()
    log = tmp_path / "copy" / writer.path.name
    log.mkdir(parents=True)
    (log / segment.name).write_bytes(whole[: len(whole) // 2 + cut])
    shipped = Shipped(0, len(whole), is_ended=True)
    (log / SHIPPED_NAME).write_bytes(encode_shipped(shipped))
    following = Following(tmp_path / "copy")
    following.read()
    assert len(following.bad) == 1
    (log / segment.name).write_bytes(whole)
    assert following.read() > 0
    assert following.bad == []
    assert following.events.total() == 6
