"""Ingests the new part of a journal into bronze, exactly once.

The driver lists the journal's files and divides the new part into shares. Each Spark task decodes
its shares and writes files of bronze. No row passes through the JVM or is shuffled, since shares
are disjoint. Skipped parts that have changed are read again (`requite.spark.source.reread`),
without the events that bronze already has. The driver commits the files.

The position in the journal is part of the run's state, which takes effect when the run completes:
the commits of a crashed run are undone, and its part is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from itertools import chain
from time import time_ns
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from requite.journal.folder import find_logs
from requite.spark import bronze, schemas
from requite.spark.aliases import MADE_UP
from requite.spark.bronze import CLIENT_DIGITS, EVENTS, IDS, QUARANTINE
from requite.spark.decoding.columns import arrow_types
from requite.spark.delta.files import ADDED, Added, as_one, by_day, filesystem, words_of, write
from requite.spark.lake import Lake, added_by
from requite.spark.new_rows import NewRows, Span
from requite.spark.source.marks import Offset
from requite.spark.source.options import read_options
from requite.spark.source.reread import Outdated, Rereading, Skipped
from requite.spark.source.stream import JournalStreamReader
from requite.story.vocabulary import ACCEPTED, CLOSED, DECISIONS

# What a task returns: a row per file, and a row without a path per share and day of events.
_REPORT: Final = f"""
    {ADDED}, table string, day date, events bigint, first timestamp, last timestamp,
    given_us bigint, dropped bigint, ended string, heard string, made_up boolean,
    decisions boolean, log string, segment bigint, found bigint
"""


_SETTLED_NS: Final = 10**9
"""Allowance for the difference between clocks of file systems and of machines: a file that changed
this long before a run began counts as the one that the run read."""

_CONTENT: Final = ("kind", "request_id", "ts")

Known: TypeAlias = Mapping[tuple[str, int], pa.Table]
"""Events in bronze, by log and segment: byte offset and some columns."""


class Source(Protocol):
    """A journal to read: `JournalStreamReader`, which Spark's streams use as well."""

    def initialOffset(self) -> Offset:
        """Return the offset of the journal's beginning."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset of the journal's present end, `start` if nothing is new."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide the part between two offsets into shares."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share, with the columns of `requite.spark.schemas.SOURCE`."""

    def note(
        self, segments: Mapping[str, Mapping[int, int]], end: Offset, since_ns: int
    ) -> list[Skipped]:
        """Record the segments, by log, that have unreadable parts, from the given bytes on."""

    def reread(self, skipped: Collection[Skipped], start: Offset) -> Rereading:
        """Divide the skipped parts before an offset that have changed into shares."""

    def faults(self, ended: Collection[str]) -> list[str]:
        """Return messages on missing logs and segments; `ended` logs were read to their end."""

    def behind(self) -> list[str]:
        """Return the logs that are copies and may be incomplete."""


def journal_source(journal: str) -> Source:
    """Return a source for a journal. Raises `ConfigurationError` if the path is no journal."""
    options = read_options({"path": journal})
    find_logs(options.path)
    return JournalStreamReader(options, options.columns)


class ReadState(NamedTuple):
    """The position up to which a journal has been read, and the skipped parts (None: unknown).

    `anew`: wrong events were deleted from bronze, so all other tables must be recomputed.
    """

    offset: Offset | None = None
    skipped: tuple[Skipped, ...] | None = None
    anew: bool = False

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ReadState:
        """Read it from the state of a lake."""
        noted = state.get("skipped")
        skipped = None if noted is None else tuple(Skipped(*each) for each in noted)
        return cls(state.get("offset"), skipped)

    def record(self) -> dict[str, Any]:
        """Return it for the state of a lake."""
        kept = {"offset": self.offset, "skipped": self.skipped}
        return kept | {"anew": True} if self.anew else kept


def ingest(lake: Lake, source: Source, before: ReadState) -> tuple[ReadState, NewRows]:
    """Write new events to bronze, and those of skipped parts that have changed.

    Return the new position, and a summary of the new rows. Raises `LakeError` if bronze cannot be
    written.
    """
    since_ns = time_ns() - _SETTLED_NS
    reached = source.initialOffset() if before.offset is None else before.offset
    rereading = source.reread(before.skipped or (), reached)
    start = rereading.start
    end = source.latestOffset(start, ReadAllAvailable())
    shares = [*rereading.shares, *(source.partitions(start, end) if end != start else ())]
    quarantined = lake.catalog.files(QUARANTINE)
    task = _Task(lake.root, source, tuple(shares), _known_of(lake, rereading))
    if rereading.outdated and quarantined:
        lake.replace(QUARANTINE, _without(lake, rereading.outdated))
    report = _run_task(lake, task)
    wrong = _changed_segments(report, task.known)
    if wrong:
        _delete_events(lake, wrong)
        kept = {place: rows for place, rows in task.known.items() if place not in wrong}
        report = _run_task(lake, replace(task, known=kept))
    for name in (QUARANTINE, EVENTS, IDS):
        if added := [_added(row) for row in report if row["table"] == name]:
            lake.catalog.commit(name, added)
    skipped = before.skipped
    if skipped is None or quarantined != lake.catalog.files(QUARANTINE):
        was_noted = skipped is not None or before.offset is None
        segments = _segments_in_quarantine(lake)
        skipped = tuple(source.note(segments, end, since_ns if was_noted else 0))
    facts = [row for row in report if row["path"] is None and row["found"] is None]
    return ReadState(end, skipped, bool(wrong)), _summarised(facts)


def _run_task(lake: Lake, task: _Task) -> list[dict[str, Any]]:
    """Run a task for each share in Spark; return the rows of its report."""
    count = len(task.shares)
    numbers = lake.spark.range(0, count, 1, count) if count else None
    return [] if numbers is None else added_by(numbers.mapInArrow(task, _REPORT))


def _changed_segments(report: Iterable[dict[str, Any]], known: Known) -> set[tuple[str, int]]:
    """Return the segments with events in bronze that were not found again."""
    found: Counter[tuple[str, int]] = Counter()
    for row in report:
        if row["found"] is not None:
            found[row["log"], row["segment"]] += row["found"]
    return {place for place, rows in known.items() if found[place] < rows.num_rows}


def _delete_events(lake: Lake, segments: Collection[tuple[str, int]]) -> None:
    """Delete the events of segments from bronze: their files have changed since."""
    wrong = F.broadcast(_places(lake, segments))
    lake.replace(EVENTS, lake.table(EVENTS).join(wrong, ["log", "segment"], "left_anti"))


def _places(lake: Lake, segments: Collection[tuple[str, int]]) -> DataFrame:
    return lake.spark.createDataFrame(sorted(segments), "log string, segment bigint")


def _segments_in_quarantine(lake: Lake) -> dict[str, dict[int, int]]:
    """Return the segments with skipped parts, by log, with the first skipped byte."""
    if not lake.catalog.files(QUARANTINE):
        return {}
    grouped = lake.table(QUARANTINE).groupBy("log", "segment").agg(F.min("byte_offset"))
    found: dict[str, dict[int, int]] = {}
    for log, segment, first in _rows_of(grouped.toArrow()):
        found.setdefault(log, {})[segment] = first
    return found


def _known_of(lake: Lake, rereading: Rereading) -> Known:
    """Return the events in bronze of the segments that are read again."""
    if not rereading.segments:
        return {}
    segments = F.broadcast(_places(lake, rereading.segments))
    events = lake.table(EVENTS).select(*bronze.PLACE, *_CONTENT)
    found = events.join(segments, ["log", "segment"], "left_semi").toArrow()
    known: dict[tuple[str, int], pa.Table] = {}
    for log, segment in rereading.segments:
        is_of = pc.and_(pc.equal(found["log"], log), pc.equal(found["segment"], segment))
        rows = found.filter(is_of).drop_columns(["log", "segment"]).combine_chunks()
        if rows.num_rows:
            known[log, segment] = rows
    return known


def _without(lake: Lake, outdated: Sequence[Outdated]) -> DataFrame:
    """Return the rows of quarantine without the outdated ones."""
    columns = "log string, segment bigint, since bigint, gaps boolean"
    said = lake.spark.createDataFrame([tuple(each) for each in outdated], columns).alias("said")
    rows = lake.table(QUARANTINE).alias("row")
    at = F.col("row.byte_offset")
    is_gap = (at == 0) & (F.length("row.raw") == 0)
    holds_not = (
        (F.col("row.log") == F.col("said.log"))
        & (F.col("row.segment") == F.col("said.segment"))
        & (at >= F.col("said.since"))
        & (is_gap == F.col("said.gaps"))
    )
    return rows.join(F.broadcast(said), holds_not, "left_anti")


def _added(row: dict[str, Any]) -> Added:
    return Added(row["path"], row["size"], row["rows"], row["stats"])


def _summarised(facts: list[dict[str, Any]]) -> NewRows:
    days = sorted({row["day"] for row in facts if row["day"]})
    by_day = [[row for row in facts if row["day"] == day] for day in days]
    return NewRows(
        events=sum(row["events"] for row in facts),
        spans=tuple(
            Span(min(row["first"] for row in rows), max(row["last"] for row in rows))
            for rows in by_day
        ),
        deadline_s=max((row["given_us"] or 0 for row in facts), default=0) / 1e6,
        dropped=sum(row["dropped"] or 0 for row in facts),
        ended=frozenset(log for row in facts for log in row["ended"].split()),
        heard_us=_latest(row["heard"] for row in facts),
        made_up=any(row["made_up"] for row in facts),
        decisions=any(row["decisions"] for row in facts),
    )


def _latest(heard: Iterable[str]) -> dict[str, int]:
    heard_us: dict[str, int] = {}
    for each in chain.from_iterable(map(str.split, heard)):
        log, us = each.split("=")
        heard_us[log] = max(int(us), heard_us.get(log, 0))
    return heard_us


# --- in tasks -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Task:
    """Reads shares, given by number, and writes them to bronze; for `DataFrame.mapInArrow`."""

    root: str
    source: Source
    shares: tuple[InputPartition, ...]
    known: Known

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(_row, self._write(self.shares[number]))

    def _write(self, share: InputPartition) -> Iterator[dict[str, Any]]:
        store, sorter = filesystem(self.root), _Sorter(self.source.read(share), self.known)
        try:
            for added in write(store, EVENTS, sorter.events(), by_day):
                yield {"table": EVENTS, **added._asdict()}
            for name, rows in {QUARANTINE: sorter.bad, IDS: [sorter.ids()]}.items():
                for added in write(store, name, rows, as_one):
                    yield {"table": name, **added._asdict()}
        except OSError as error:
            # A row, since Spark prints pages of stack traces for an exception.
            yield {"failure": f"{self.root} cannot be written: {words_of(error)}"}
        yield from sorter.facts()


class _Sorter:
    """Sorts the rows of a share: yields events, and collects undecodable rows in `bad`.

    Events that are already `known` are left out.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], known: Known) -> None:
        self.bad: list[pa.RecordBatch] = []
        self._known = known
        self._batches = batches
        self._days: dict[date | None, _DaySummary] = {}
        self._ids: dict[tuple[str, date | None], tuple[str, str]] = {}
        self._found: Counter[tuple[str, int]] = Counter()

    def events(self) -> Iterator[pa.RecordBatch]:
        """Yield the events, with the columns of the table."""
        for batch in self._batches:
            is_bad = bronze.bad_rows(batch)
            if is_bad is not None:
                self.bad.append(bronze.quarantined(batch.filter(is_bad)))
            events = batch if is_bad is None else batch.filter(pc.invert(is_bad))
            if self._known:
                events = self._without_known(events)
            if events.num_rows:
                self._count(events)
                yield events.drop_columns(["raw"])

    def _without_known(self, events: pa.RecordBatch) -> pa.RecordBatch:
        place, is_known = find_known(events, self._known)
        if place is None:
            return events
        self._found[place] += pc.sum(is_known).as_py() or 0
        return events.filter(pc.invert(is_known))

    def _count(self, events: pa.RecordBatch) -> None:
        for day in pc.unique(events.column("date")).to_pylist():
            of_day = _of_day(events, day)
            self._days.setdefault(day, _DaySummary()).add(of_day)
            for client, first, last in _ids_by_client(of_day):
                known = self._ids.get((client, day), (first, last))
                self._ids[client, day] = min(first, known[0]), max(last, known[1])

    def ids(self) -> pa.RecordBatch:
        """Return the range of request ids of each client and day; a client numbers its requests."""
        rows = [(client, *ids, day) for (client, day), ids in self._ids.items()]
        types = arrow_types(schemas.BRONZE_IDS)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        arrays = [pa.array(*column) for column in zip(columns, types.values(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, list(types))

    def facts(self) -> Iterator[dict[str, Any]]:
        """Yield the number of known events found, and a summary of each day's events."""
        for (log, segment), count in self._found.items():
            yield {"log": log, "segment": segment, "found": count}
        for day, found in self._days.items():
            made_up = any(client >= MADE_UP for client, of in self._ids if of == day)
            heard = " ".join(f"{log}={us}" for log, us in found.heard.items())
            facts = asdict(found) | {"ended": " ".join(found.ended), "heard": heard}
            facts |= {"made_up": made_up}
            yield {"day": day, **facts}


def find_known(
    events: pa.RecordBatch, known: Known
) -> tuple[tuple[str, int] | None, pa.BooleanArray]:
    """Return a batch's segment (None: no known events), and a mask of its known events."""
    place = None
    if events.num_rows:  # a batch is from one segment
        place = events.column("log")[0].as_py(), events.column("segment")[0].as_py()
    if place is None or place not in known:
        return None, pa.nulls(events.num_rows, pa.bool_())
    rows = known[place]
    at = pc.index_in(events.column("byte_offset"), rows["byte_offset"])
    is_known = pc.is_valid(at)
    for name in _CONTENT:
        new, old = events.column(name), rows[name].combine_chunks().take(at)
        are_null = pc.and_(pc.is_null(new), pc.is_null(old))
        is_same = pc.or_(are_null, pc.fill_null(pc.equal(new, old.cast(new.type)), False))
        is_known = pc.and_(is_known, is_same)
    return place, is_known


def _ids_by_client(events: pa.RecordBatch) -> Iterator[tuple[str, str, str]]:
    """Yield the smallest and the largest request id of each client."""
    ids = events.column("request_id")
    clients = pc.utf8_slice_codeunits(ids, 0, CLIENT_DIGITS)
    named = pa.table([clients, ids], ["client", "request_id"])
    found = named.group_by("client").aggregate([("request_id", "min"), ("request_id", "max")])
    for client, first, last in _rows_of(found):
        if client is not None:
            yield client, first, last


def _of_day(events: pa.RecordBatch, day: date | None) -> pa.RecordBatch:
    days = events.column("date")
    first, last = days[0].as_py(), days[-1].as_py()
    if first == last == day and len(pc.unique(days)) == 1:
        return events
    return events.filter(pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day)))


@dataclass
class _DaySummary:
    """Summary of a day's events.

    `given_us` is the longest time from acceptance to deadline, `heard` the instant (microseconds)
    of the newest event of each log, `decisions` whether there are access decisions.
    """

    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    given_us: int | None = None
    dropped: int = 0
    ended: list[str] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)
    decisions: bool = False

    def add(self, events: pa.RecordBatch) -> None:
        ts, kind = events.column("ts"), events.column("kind")
        span = pc.min_max(ts).as_py()
        self.events += events.num_rows
        self.first = min(filter(None, (self.first, span["min"])), default=None)
        self.last = max(filter(None, (self.last, span["max"])), default=None)
        deadline = events.column("deadline")
        if deadline.null_count < len(deadline):
            us = [pc.cast(column, pa.int64()) for column in (deadline, ts)]
            given = pc.max(pc.if_else(pc.equal(kind, ACCEPTED), pc.subtract(*us), None)).as_py()
            self.given_us = max(filter(None, (self.given_us, given)), default=None)
        if events.column("dropped").null_count < events.num_rows:
            self.dropped += pc.sum(events.column("dropped")).as_py() or 0
        last = events.filter(pc.equal(kind, CLOSED)).column("log")
        self.ended += pc.unique(last).to_pylist()
        self.decisions = self.decisions or any(
            pc.any(pc.equal(kind, each)).as_py() for each in DECISIONS
        )
        newest = pa.table([events.column("log"), pc.cast(ts, pa.int64())], ["log", "us"])
        for log, us in _rows_of(newest.group_by("log").aggregate([("us", "max")])):
            self.heard[log] = max(us, self.heard.get(log, us))


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _row(columns: dict[str, Any]) -> pa.RecordBatch:
    types = arrow_types(_REPORT)
    arrays = [pa.array([columns.get(name)], kind) for name, kind in types.items()]
    return pa.RecordBatch.from_arrays(arrays, list(types))
