"""Group commit: one sync for many batches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.storage.helpers import SMALL, open_small, payloads, read_all

from requite.errors import LocalViolation, LogFailed
from requite.storage import GroupCommit, MemoryLog
from requite.storage.layout import PAYLOAD_SIZE_MAX
from requite.storage.memory import MemoryFile


def test_added_batches_are_committed_with_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[MemoryFile] = []
    log = MemoryLog(b"TEST")
    monkeypatch.setattr(MemoryFile, "sync", lambda file: syncs.append(file))
    group = GroupCommit[str](log)
    group.add([b"a", b"b"], "first")
    group.add([], "nothing")
    group.add([b"c"], "second")
    assert len(group) == 3
    committed = group.flush()
    assert len(syncs) == 1
    assert [(waiter, error) for waiter, _, error in committed] == [
        ("first", None),
        ("nothing", None),
        ("second", None),
    ]
    read = [[log.read_at(position) for position in positions] for _, positions, _ in committed]
    assert read == [[b"a", b"b"], [], [b"c"]]
    assert group.flush() == []
    assert len(group) == 0


def test_every_waiter_gets_the_error_of_a_failed_commit() -> None:
    log = MemoryLog(b"TEST", SMALL)
    group = GroupCommit[int](log)
    group.add([b"a"], 1)
    group.add([b"b"], 2)
    log.close()
    committed = group.flush()
    assert [(waiter, positions) for waiter, positions, _ in committed] == [(1, []), (2, [])]
    assert all(isinstance(error, LogFailed) for _, _, error in committed)


def test_an_oversize_payload_does_not_affect_other_batches() -> None:
    group = GroupCommit[int](MemoryLog(b"TEST", SMALL))
    group.add([b"a"], 1)
    with pytest.raises(LocalViolation):
        group.add([bytes(PAYLOAD_SIZE_MAX + 1)], 2)
    assert [waiter for waiter, _, _ in group.flush()] == [1]


def test_threads_may_add_while_one_flushes(tmp_path: Path) -> None:
    with open_small(tmp_path) as log, ThreadPoolExecutor(4) as threads:
        group = GroupCommit[bytes](log)
        adding = [
            threads.submit(
                lambda n=n: [
                    group.add([b"%d" % (1000 * n + m)], b"%d" % (1000 * n + m)) for m in range(500)
                ]
            )
            for n in range(4)
        ]
        committed = []
        while len(committed) < 2000:
            committed += group.flush()
        for future in adding:
            future.result()
        for waiter, [position], _ in committed:
            assert log.read_at(position) == waiter
    assert sorted(payloads(read_all(tmp_path))) == sorted(waiter for waiter, _, _ in committed)
