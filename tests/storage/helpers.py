"""Helpers for the tests of the log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from requite.storage import Damage, Log, LogReader, LogSettings, Record
from requite.storage.disk import DiskFolder
from requite.storage.layout import segment_name

SMALL = LogSettings(segment_size_bytes=4096, sync=False)


def open_small(directory: Path, **settings: object) -> Log:
    """Open a log with segments of 4 KiB that does not sync."""
    chosen = LogSettings(**{"segment_size_bytes": 4096, "sync": False, **settings})  # type: ignore[arg-type]
    return Log.open(directory, purpose=b"TEST", settings=chosen)


def payloads(items: Iterable[Record | Damage]) -> list[bytes]:
    """Return the payloads of the records, without the damage."""
    return [bytes(item.payload) for item in items if isinstance(item, Record)]


def damages(items: Iterable[Record | Damage]) -> list[Damage]:
    return [item for item in items if isinstance(item, Damage)]


def read_all(directory: Path) -> list[Record | Damage]:
    """Return the records and the damage that a new reader yields."""
    return list(LogReader(directory).tail())


def copy_of(directory: Path, target: Path) -> Path:
    """Copy a log in its present state, which is the state that a killed writer leaves."""
    folder = DiskFolder(target)
    folder.make()
    folder.lock()
    folder.unlock()
    for file in directory.glob("*.seg"):
        (target / file.name).write_bytes(file.read_bytes())
    return target


def segment_file(directory: Path, number: int = 0) -> Path:
    return directory / segment_name(number)
