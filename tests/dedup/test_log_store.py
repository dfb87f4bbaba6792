"""The log of replies on a full disk, and on a disk with bit rot."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from requite.dedup.inputs import Discard
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import DedupRecord, Kind, Outcome, encode
from requite.dedup.store import LogStore
from requite.engine import Load, Loaded, Store, Stored, StoreFailed
from requite.errors import LogFull
from requite.request import Status
from requite.storage.layout import segment_name

POLICY = DedupPolicy(durable=True)
BEGUN = DedupRecord(Kind.BEGUN, 1, b"long")
LARGE = DedupRecord(
    Kind.ENDED, 2, b"large", outcome=Outcome(Status.OK, (), (bytes(700_000), b"x" * 400))
)


class RunningStore:
    """A log store that runs on this loop. `results` collects the results of effects."""

    def __init__(self, folder: Path, policy: DedupPolicy = POLICY) -> None:
        self.results: list[Any] = []
        self.store = LogStore(folder, policy)
        self.store.start(self.results.extend)

    async def do(self, *effects: Any) -> list[Any]:
        for effect in effects:
            self.store.perform(effect)
        await self.store._idle.wait()
        results, self.results[:] = self.results[:], []
        return results


def written(*records: DedupRecord) -> Store:
    return Store("ticket", [encode(record) for record in records])


async def test_a_segment_is_deleted_after_its_replacement_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keep a BEGUN record whose copy cannot be stored: without it, the request would run again."""
    small = DedupPolicy(durable=True, bytes_max=1 << 20)
    first = RunningStore(tmp_path, small)
    for record in (BEGUN, LARGE, LARGE):
        [stored] = await first.do(written(record))
        assert isinstance(stored, Stored)

    def full(_payloads: Any) -> Any:
        raise LogFull("no space is left")

    with monkeypatch.context() as patch:
        patch.setattr(first.store._log._log, "commit", full)
        [failed] = await first.do(written(BEGUN), Discard(0))
        assert isinstance(failed, StoreFailed)
    assert "segments of the log of replies were not removed" in caplog.text
    await first.store.close()
    second = RunningStore(tmp_path, small)
    assert next(found.record.kind for found in second.store.found) is Kind.BEGUN
    await second.do(written(BEGUN), Discard(0))
    await second.store.close()
    third = RunningStore(tmp_path, small)
    assert [found.record.kind for found in third.store.found] == [Kind.ENDED, Kind.BEGUN]
    await third.store.close()


async def test_one_flipped_bit_is_corrected_at_start_and_on_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "requite.worker")
    ended = DedupRecord(Kind.ENDED, 1, b"key", outcome=Outcome(Status.OK, (), (b"the reply",)))
    first = RunningStore(tmp_path)
    await first.do(written(ended))
    await first.store.close()
    segment = tmp_path / segment_name(0)
    intact = segment.read_bytes()
    for at in (intact.index(b"key"), intact.index(b"the reply") + 3, 64, 70):
        segment.write_bytes(intact[:at] + bytes([intact[at] ^ 32]) + intact[at + 1 :])
        caplog.clear()
        again = RunningStore(tmp_path)
        [found] = again.store.found
        assert (found.record.kind, found.record.key) == (Kind.ENDED, b"key")
        [loaded] = await again.do(Load("load", found.position))
        assert loaded == Loaded("load", encode(ended))
        assert "and has been repaired" in caplog.text
        await again.store.close()
