"""An append-only segmented log: the ground of what has to outlive a process.

`Log` writes and syncs, `LogReader` reads, in any process and while it is written. `MemoryLog` is
the twin without a disk. The bytes are specified in docs/protocols/log-format.md.
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
