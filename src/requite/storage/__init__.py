"""An append-only segmented log for data that must outlive a process.

`Log` writes and syncs; `LogReader` reads, in any process, also while the log is written.
`MemoryLog` is the in-memory equivalent. docs/protocols/log-format.md specifies the bytes.
"""

from __future__ import annotations

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
