"""An append-only segmented log for data that must outlive a process.

`Log` writes and syncs; `LogReader` reads, in any process, also while the log is written.
`MemoryLog` is the in-memory equivalent. docs/protocols/log-format.md specifies the bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requite.storage.group import Committed, GroupCommit
    from requite.storage.log import Log
    from requite.storage.memory import MemoryFolder, MemoryLog
    from requite.storage.reader import LogReader, scan
    from requite.storage.records import Damage, Position, Record, Recovery, SegmentInfo
    from requite.storage.settings import LogSettings

__all__ = [
    "Committed",
    "Damage",
    "GroupCommit",
    "Log",
    "LogReader",
    "LogSettings",
    "MemoryFolder",
    "MemoryLog",
    "Position",
    "Record",
    "Recovery",
    "SegmentInfo",
    "scan",
]

_HOME = {
    "Committed": "requite.storage.group",
    "Damage": "requite.storage.records",
    "GroupCommit": "requite.storage.group",
    "Log": "requite.storage.log",
    "LogReader": "requite.storage.reader",
    "LogSettings": "requite.storage.settings",
    "MemoryFolder": "requite.storage.memory",
    "MemoryLog": "requite.storage.memory",
    "Position": "requite.storage.records",
    "Record": "requite.storage.records",
    "Recovery": "requite.storage.records",
    "SegmentInfo": "requite.storage.records",
    "scan": "requite.storage.reader",
}


def __getattr__(name: str) -> Any:
    """Load a name's module on first use (PEP 562): clients have no log."""
    if name not in _HOME:
        raise AttributeError(f"module 'requite.storage' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value
