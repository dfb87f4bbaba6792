"""The journal as a table, as of the time of the read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from requite.errors import LogGone
from requite.journal.folder import LogFolder, find_logs, of_each
from requite.spark.source.marks import due_after, removed
from requite.spark.source.options import ReadOptions
from requite.spark.source.ranges import Range, Share, share_out
from requite.spark.source.selection import ALL, Selection, select
from requite.storage import LogReader, SegmentInfo

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class JournalReader(DataSourceReader):
    """Plans on the driver, and reads in tasks; pickled in between."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._selection: Selection = ALL

    def partitions(self) -> list[InputPartition]:
        """Divide the data that is written now into shares. Raises `ConfigurationError`."""
        logs = [log for log in find_logs(self._options.path) if self._selection.wants_log(log)]
        ranges = [part for found in of_each(logs, whole) for part in found]
        return list(share_out(ranges, self._options.partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a share; none for the partition that Spark adds to an empty list."""
        from requite.spark.source.reading import Scan, read_ranges

        ranges = partition.ranges if isinstance(partition, Share) else ()
        return read_ranges(ranges, Scan(self._columns, self._selection))


class PushingJournalReader(JournalReader):
    """A `JournalReader` for sessions with filter push-down; in others Spark refuses it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Skip data that the filters exclude; Spark still applies all of them."""
        self._selection = select(filters)
        return filters


def whole(log: LogFolder) -> list[Range]:
    """Return the ranges of a whole log; none if it has just been removed."""
    try:
        infos = LogReader(log.place).segments()
    except LogGone:
        return []
    return list(_ranges(log, infos))


def _ranges(log: LogFolder, infos: Iterable[SegmentInfo]) -> Iterator[Range]:
    due: int | None = None  # unknown at first: retention removes the oldest segments
    for info in infos:
        missed = "" if due is None else removed(due, info.number)
        yield Range(log, info.number, 0, info.written_bytes, info.written_bytes, missed)
        due = due_after(info)
