"""The completeness of a journal: each log that began, up to its end.

A log records its end, and each segment the number of its records. Readers report records that are
missing between two segments; this module finds missing logs and missing ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from requite.errors import LogGone
from requite.journal.folder import LogFolder, find_logs, missing_logs, of_each
from requite.storage import LogReader


def faults(directory: Path | str, ended: Collection[str] = ()) -> Iterator[str]:
    """Yield what is missing, each as a sentence. Logs in `ended`, which were read, may be absent.

    Raises `ConfigurationError` if the folder is no journal.
    """
    for log in missing_logs(directory):
        if log.log not in ended:
            yield f"the log {log.log} was started, and is missing"
    logs = [log for log in find_logs(directory) if log.log not in ended]
    for log, lacks_its_end in zip(logs, of_each(logs, _is_truncated), strict=True):
        if lacks_its_end:
            yield (
                f"the end of the log {log.log} is missing: the records that exist are"
                " complete, but the record of its closing is not among them"
            )


def _is_truncated(log: LogFolder) -> bool:
    reader = LogReader(log.place)
    try:
        infos = [info for info in reader.segments() if info.written_bytes]
        return (not infos or infos[-1].sealed) and not reader.may_grow()
    except LogGone:
        return False
