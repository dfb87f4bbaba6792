"""What `Log` and its twin in memory do alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from requite.storage import Log, LogSettings, MemoryFolder, MemoryLog, Record

SMALL = LogSettings(segment_size_bytes=4096, sync=False)
Opener = Callable[..., Log]


@pytest.fixture(params=["disk", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens one and the same log again and again."""
    folder = MemoryFolder()

    def open_log(settings: LogSettings = SMALL, purpose: bytes = b"TEST") -> Log:
        if request.param == "memory":
            return MemoryLog(purpose, settings, folder)
        return Log.open(tmp_path / "log", purpose=purpose, settings=settings)

    return open_log


def payloads(log: Log) -> list[bytes]:
    items = list(log.reader().tail())
    assert all(isinstance(item, Record) for item in items)
    return [bytes(item.payload) for item in items if isinstance(item, Record)]


def test_records_come_back_in_order(opened: Opener) -> None:
    with opened() as log:
        positions = log.append([b"a", b"", b"ccccccccc"])
        assert [position.number for position in positions] == [0, 1, 2]
        assert payloads(log) == [b"a", b"", b"ccccccccc"]
        assert [log.read_at(position) for position in positions] == [b"a", b"", b"ccccccccc"]
