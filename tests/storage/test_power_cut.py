"""Power cuts between any two operations: each unsynced page may be lost or survive."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.helpers import damages

from requite.sim.kernel.disk import Killed, SimDisk
from requite.storage import LogSettings, MemoryLog, Record

SYNCED = LogSettings(segment_size_bytes=4096)


class History:
    """The records that were appended to a log and those it acknowledged, over several runs."""

    def __init__(self) -> None:
        self.appended: dict[int, set[bytes]] = {}
        self.acknowledged: dict[int, bytes] = {}

    def run(self, disk: SimDisk, random: Random) -> None:
        """Append, sync and rotate at random, for up to 11 batches or until the disk stops."""
        with MemoryLog(b"TEST", SYNCED, disk) as log:
            pending = self.records(log)  # recovery syncs the records it finds
            self.acknowledged.update(pending)
            for _ in range(random.randrange(12)):
                batch = [random.randbytes(random.randrange(700)) for _ in range(4)]
                for number, payload in enumerate(batch, log.next_number):
                    self.appended.setdefault(number, set()).add(payload)
                pending |= enumerate(batch, log.next_number)
                log.append(batch)
                if random.random() < 0.4:
                    log.sync()
                    self.acknowledged.update(pending)
                if random.random() < 0.2:
                    log.rotate()

    def records(self, log: MemoryLog) -> dict[int, bytes]:
        items = list(log.reader().tail())
        return {item.number: bytes(item.payload) for item in items if isinstance(item, Record)}

    def assert_survived(self, disk: SimDisk) -> None:
        with MemoryLog(b"TEST", SYNCED, disk) as log:
            records = self.records(log)
        assert self.acknowledged.items() <= records.items()
        assert all(payload in self.appended[number] for number, payload in records.items())
        assert sorted(records) == list(records)


stops = st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=4)


@given(seed=st.integers(0, 2**32), stops=stops)
def test_acknowledged_records_survive_power_cuts(seed: int, stops: list[tuple[int, bool]]) -> None:
    random, history, disk = Random(seed), History(), SimDisk()
    for stop_at, power_is_cut in stops:
        disk.stop_at = stop_at
        with suppress(Killed):
            history.run(disk, random)
        history.assert_survived(disk.after_power_cut(random))
        disk = disk.after_power_cut(random) if power_is_cut else disk.after_death()


@pytest.mark.parametrize("sync", [True, False])
def test_a_process_may_be_killed_between_any_two_operations(sync: bool) -> None:
    """The operating system holds all completed writes, so none is lost and none is damaged."""
    settings, disk = LogSettings(segment_size_bytes=4096, sync=sync), SimDisk()
    finished = False
    while not finished:
        files = SimDisk()
        files.stop_at = disk.stop_at = disk.stop_at + 1
        written: list[bytes] = []
        try:
            for life in range(2):
                with MemoryLog(b"TEST", settings, files) as log:
                    for number in range(3):
                        log.append([b"%d %d" % (life, number)])
                        written.append(b"%d %d" % (life, number))
                        log.rotate()
            finished = True
        except Killed:
            pass
        with MemoryLog(b"TEST", settings, files.after_death()) as log:
            items = list(log.reader().tail())
            assert damages(items) == []
            found = [bytes(item.payload) for item in items if isinstance(item, Record)]
            assert found[: len(written)] == written
            assert len(found) <= len(written) + 1
            assert log.next_number == len(found)
    assert disk.stop_at > 20
