"""`Log` and `MemoryLog` compared with a dict, and logs with random damage."""

from __future__ import annotations

import shutil
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from tests.storage.helpers import SMALL, damages, open_small, payloads, read_all, segment_file

from requite.storage import Damage, Log, MemoryFolder, MemoryLog, Position, Record
from requite.storage.layout import segment_name

sizes = st.one_of(st.integers(0, 40), st.integers(900, 1100), st.integers(4000, 9000))
batches = st.lists(st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 255)))


class TwoLogs(RuleBasedStateMachine):
    """A `Log` and a `MemoryLog` that get the same calls and must equal a dict, offsets included."""

    positions: Bundle[Position] = Bundle("positions")

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="requite-log-"))
        self.folder = MemoryFolder()
        self.model: dict[Position, bytes] = {}
        self.count = 0

    @initialize()
    def open(self) -> None:
        self.disk: Log = open_small(self.directory)
        self.memory: Log = MemoryLog(b"TEST", SMALL, self.folder)
        assert self.disk.recovered == self.memory.recovered
        assert self.disk.recovered.damaged == ()
        assert self.disk.recovered.cut_bytes == 0

    @rule(target=positions, batch=batches)
    def append(self, batch: list[bytes]) -> Any:
        positions = self.disk.append(batch)
        assert self.memory.append(batch) == positions
        assert [position.number for position in positions] == list(
            range(self.count, self.count + len(batch))
        )
        self.count += len(batch)
        self.model.update(zip(positions, batch, strict=True))
        return positions[-1] if positions else Position(0, 64, 0)

    @rule()
    def rotate(self) -> None:
        self.disk.rotate()
        self.memory.rotate()

    @rule()
    def close_and_open(self) -> None:
        self.disk.close()
        self.memory.close()
        self.open()

    @rule()
    def kill_and_open(self) -> None:
        """Reopen the logs as after a kill: unsealed, and with the lock released."""
        self.disk._folder.unlock()
        self.memory._folder.unlock()
        self.open()

    @rule(position=positions)
    def remove(self, position: Position) -> None:
        sealed = {place.segment for place in self.model} - {self.disk.segment}
        if position.segment in sealed:
            self.disk.remove(position.segment)
            self.memory.remove(position.segment)
            self.model = {
                place: payload
                for place, payload in self.model.items()
                if place.segment != position.segment
            }

    @rule(position=positions)
    def read_at(self, position: Position) -> None:
        if position in self.model:
            assert self.disk.read_at(position) == self.model[position]
            assert self.memory.read_at(position) == self.model[position]

    @rule(position=positions)
    def tail(self, position: Position) -> None:
        if position in self.model:
            expected = [self.model[place] for place in sorted(self.model) if place > position]
            assert payloads(self.disk.reader().tail(position)) == expected
            assert payloads(self.memory.reader().tail(position)) == expected

    @invariant()
    def both_match_the_model(self) -> None:
        if not hasattr(self, "disk"):
            return
        on_disk = list(self.disk.reader().tail())
        assert on_disk == list(self.memory.reader().tail())
        assert on_disk == [
            Record(*place, memoryview(self.model[place])) for place in sorted(self.model)
        ]
        assert self.disk.room() == self.memory.room()

    @invariant()
    def both_have_the_same_segments(self) -> None:
        if not hasattr(self, "disk"):
            return
        infos = [log.reader().segments() for log in (self.disk, self.memory)]
        facts = [[(i.number, i.written_bytes, i.sealed, i.next_number) for i in of] for of in infos]
        assert facts[0] == facts[1]
        assert [info.sealed for info in infos[0]] == [True] * (len(infos[0]) - 1) + [False]

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.disk.close()
        shutil.rmtree(self.directory)


TestTwoLogs = TwoLogs.TestCase
TestTwoLogs.settings = settings(
    max_examples=max(25, settings.default.max_examples // 4), stateful_step_count=30
)
TestTwoLogs.pytestmark = [pytest.mark.slow]


small_batches = st.lists(st.binary(max_size=60), min_size=1, max_size=12)
edits = st.lists(
    st.tuples(
        st.integers(0, 4000), st.one_of(st.binary(min_size=1, max_size=80), st.just(bytes(100)))
    ),
    max_size=4,
)


@given(batch=small_batches, edits=edits, rotate=st.booleans())
def test_intact_records_are_read_and_overwritten_ones_are_damage(
    batch: list[bytes], edits: list[tuple[int, bytes]], rotate: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="requite-log-") as directory:
        folder = Path(directory)
        with open_small(folder) as log:
            positions = log.append(batch)
            if rotate:
                log.rotate()
                log.append([b"following"])
        file = segment_file(folder)
        before = file.read_bytes()
        after = bytearray(before)
        for at, data in edits:
            start = at % len(before)
            after[start : start + len(data)] = data[: len(before) - start]
        file.write_bytes(after)
        items = [item for item in read_all(folder) if item.segment == 0]
        header_is_lost = before[:60] != after[:60] and before[60:64] != after[60:64]
        ends = [*(position.offset for position in positions[1:]), len(before) - 24]
        untouched = [
            n
            for n, position in enumerate(positions)
            if before[position.offset : ends[n]] == after[position.offset : ends[n]]
        ]
        found = [item.number for item in items if isinstance(item, Record)]
        assert found == ([] if header_is_lost else untouched)
        assert payloads(items) == [batch[n] for n in found]
        _assert_contiguous(items)
        if before == after:
            assert damages(items) == []
        else:
            assert damages(items) or len(found) == len(batch)


def _assert_contiguous(items: list[Record | Damage]) -> None:
    """Assert that each record or damage starts where the one before it ends."""
    ends = [item.end for item in items]
    assert all(end == item.offset for end, item in zip(ends, items[1:], strict=False))


@given(data=st.binary(max_size=400), number=st.integers(0, 3))
def test_any_bytes_can_be_read(data: bytes, number: int) -> None:
    with tempfile.TemporaryDirectory(prefix="requite-log-") as directory:
        (Path(directory) / segment_name(number)).write_bytes(data)
        for _, items in groupby(read_all(Path(directory)), type):
            assert all(isinstance(item, Damage) for item in items)
