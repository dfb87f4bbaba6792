"""The journal as a stream: micro-batches of the records written since the last one.

Offsets (`requite.spark.source.marks`) are computed from the files only, so a query that restarts
from its checkpoint reads the same batches. Records that retention removed before they were read are
reported by a row, like undecodable data.

A committed batch is not deleted: others read the journal, too, and its writer controls retention.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from requite.errors import ConfigurationError, LogGone
from requite.journal.folder import LogFolder, find_logs, identify, of_each
from requite.journal.ledger import faults
from requite.spark.source.marks import (
    Backlog,
    Mark,
    Marks,
    Offset,
    admit,
    decode_offset,
    encode_offset,
    pieces_of,
    planned,
    vanished,
)
from requite.spark.source.options import ReadOptions
from requite.spark.source.ranges import Range, Share, share_out
from requite.spark.source.reread import Outdated, Rereading, Skipped, is_past, note, plan
from requite.spark.source.selection import ALL
from requite.storage import LogReader, SegmentInfo

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads them in tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        # A reader remembers its position, so a repeated check reads only new data.
        self._readers: dict[str, LogReader] = {}
        self._target: Marks | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_readers": {}}

    # --- offsets --------------------------------------------------------------------------------
    def initialOffset(self) -> Offset:
        """Return the offset of the oldest record of every log."""
        return encode_offset({})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxBytesPerTrigger`; without it, no limit."""
        limit = self._options.bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the present end of the journal."""
        self._target = {each.log.log: each.end for each in self._backlogs({}, None) if each.end}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch; `start` if there are no new records."""
        before = decode_offset(start)
        backlogs = self._backlogs(before, self._target)
        waiting = [each for each in backlogs if each.size]
        if not waiting:
            return start
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        # Removed logs are forgotten: names of logs are not reused.
        known = {each.log.log: each.before for each in backlogs if each.before is not None}
        return encode_offset(known | admit(waiting, room))

    def commit(self, end: Offset) -> None:
        """Do nothing: others read the journal, too."""

    # --- reading --------------------------------------------------------------------------------
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the part between two offsets into shares."""
        before, until = decode_offset(start), decode_offset(end)
        due = {name: mark for name, mark in until.items() if before.get(name) != mark}
        backlogs = {each.log.log: each for each in self._backlogs(before, due)}
        ranges: list[Range] = []
        for name, mark in due.items():
            if name in backlogs:
                ranges += planned(backlogs[name], mark)
            else:
                ranges += vanished(self._folder(name), before.get(name), mark)
        return list(share_out(ranges, self._options.partition_bytes))

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a share."""
        from requite.spark.source.reading import Scan, read_ranges

        ranges = partition.ranges if isinstance(partition, Share) else ()
        return read_ranges(ranges, Scan(self._columns, ALL))

    # --- skipped segments (`requite.spark.source.reread`) -----------------------------------------
    def note(
        self, segments: Mapping[str, Mapping[int, int]], end: Offset, since_ns: int
    ) -> list[Skipped]:
        """Record the segments, by log, that have unreadable parts, from the given bytes on."""
        marks = decode_offset(end)
        return [
            note(log, infos, segment, marks.get(log.log), since_ns)
            for log, infos in self._infos(segments)
            for segment, first in segments[log.log].items()
            if is_past(first, segment, marks.get(log.log))
        ]

    def reread(self, skipped: Collection[Skipped], start: Offset) -> Rereading:
        """Divide the skipped parts before an offset that have changed into shares."""
        marks = dict(decode_offset(start))
        by_log: dict[str, list[Skipped]] = {}
        for each in skipped:
            by_log.setdefault(each.log, []).append(each)
        found = [
            each
            for log, infos in self._infos(by_log)
            if log.log in marks
            for each in plan(log, infos, by_log[log.log], marks[log.log])
        ]
        outdated = [*self._changed_ends(marks), *(each for _, each in found)]
        chosen = {(said.log, said.segment) for _, said in found if not said.gaps}
        for log, segment in chosen:
            if marks[log].segment == segment:
                marks[log] = Mark(segment, 0, segment)
        ranges = [part for part, _ in found if part.size or part.missed]
        shares = share_out(ranges, self._options.partition_bytes) if ranges else ()
        return Rereading(
            encode_offset(marks), tuple(shares), tuple(sorted(chosen)), tuple(outdated)
        )

    def _changed_ends(self, before: Marks) -> Iterator[Outdated]:
        """Yield the outdated rows on ends of logs that have changed."""
        torn = {name: mark for name, mark in before.items() if mark.torn}
        for log, infos in self._infos(torn):
            mark = torn[log.log]
            if any(piece.size for piece in pieces_of(infos, mark, None)):
                yield Outdated(log.log, mark.segment, mark.offset)

    def faults(self, ended: Collection[str]) -> list[str]:
        """Return messages on missing logs and segments (`requite.journal.ledger`)."""
        return list(faults(self._options.path, ended))

    def behind(self) -> list[str]:
        """Return the logs that are copies and may be incomplete."""
        found = []
        for log in find_logs(self._options.path):
            with suppress(LogGone):
                if LogReader(log.place).is_behind():
                    found.append(log.log)
        return found

    # --- the files ------------------------------------------------------------------------------
    def _backlogs(self, before: Marks, until: Marks | None) -> list[Backlog]:
        """Return the unread part of each existing log, from the marks `before` to `until`."""

        def backlog_of(log: LogFolder) -> Backlog | None:
            reader = self._readers.setdefault(log.log, LogReader(log.place))
            mark = None if until is None else until[log.log]
            return Backlog.of(log, reader, before.get(log.log), mark)

        logs = [log for log in find_logs(self._options.path) if until is None or log.log in until]
        return [each for each in of_each(logs, backlog_of) if each is not None]

    def _infos(self, names: Collection[str]) -> Iterator[tuple[LogFolder, list[SegmentInfo]]]:
        """Yield the segments of those logs that exist."""
        for log in find_logs(self._options.path) if names else ():
            if log.log in names:
                with suppress(LogGone):
                    infos = LogReader(log.place).segments()
                    yield log, [info for info in infos if info.written_bytes]

    def _folder(self, name: str) -> LogFolder:
        """Return the former folder of a removed log."""
        folder = identify(f"{self._options.path}/{name}")
        if folder is None:
            raise ConfigurationError(
                f"the checkpoint names {name!r}, which is not the name of a log"
            )
        return folder
