"""What must be in a journal: every log that began, each to its end.

A log says itself when it ends, and each segment how many records it has. Records that are missing
between two segments are told where they are read; here is what nobody would come across.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from requite.errors import LogGone
from requite.journal.folder import LogFolder, find_logs, missing_logs, of_each
from requite.storage import LogReader


def faults(directory: Path | str, ended: Collection[str] = ()) -> Iterator[str]:
    """Yield what is missing, a sentence each. Logs that `ended` and were read need not be there.

    Raises `ConfigurationError` for what is no journal.
    """
    for log in missing_logs(directory):
        if log.log not in ended:
            yield f"the log {log.log} began, and is not there"
    logs = [log for log in find_logs(directory) if log.log not in ended]
    for log, lacks_its_end in zip(logs, of_each(logs, _lacks_its_end), strict=True):
        if lacks_its_end:
            yield (
                f"the log {log.log} has lost its end: what is there of it is complete, "
                "and does not say that the log was closed"
            )


def _lacks_its_end(log: LogFolder) -> bool:
    reader = LogReader(log.place)
    try:
        infos = [info for info in reader.segments() if info.written_bytes]
        return (not infos or infos[-1].sealed) and not reader.may_grow()
    except LogGone:
        return False
