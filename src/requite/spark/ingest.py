"""From the journal into bronze: what is new, exactly once.

The driver looks at the journal's files and shares out what is new. Each of Spark's tasks decodes
its shares and writes files of bronze; no row passes through the JVM, and none is shuffled, for no
two shares have a byte in common. What was skipped and has changed is read again
(`requite.spark.source.reread`), without the events that bronze has. The driver commits the files.

Up to where the journal has been read is part of the run's state, which counts when the run has come
to its end: what a run that died had committed is taken back, and read again.
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
from requite.spark.new_rows import News, Span
from requite.spark.source.marks import Offset
from requite.spark.source.options import read_options
from requite.spark.source.reread import Again, Outdated, Skipped
from requite.spark.source.stream import JournalStreamReader
from requite.spark.vocabulary import ACCEPTED, CLOSED

# What a task returns: a row per file; and one per share and day, without a path, on its events.
_TOLD: Final = f"""
    {ADDED}, table string, day date, events bigint, first timestamp, last timestamp,
    given_us bigint, dropped bigint, ended string, heard string, made_up boolean,
    log string, segment bigint, found bigint
"""


_SETTLED_NS: Final = 10**9
"""How much earlier than a run begins a file may have changed to be the one that it reads: clocks of
file systems are not those of machines."""

_CONTENT: Final = ("kind", "request_id", "ts")

Known: TypeAlias = Mapping[tuple[str, int], pa.Table]
"""Events that bronze has, by log and segment: where in it, and some of what they tell."""


class Source(Protocol):
    """What there is to read: `JournalStreamReader`, which Spark's streams use as well."""

    def initialOffset(self) -> Offset:
        """Return the offset before everything."""

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset behind everything that is there, `start` if nothing is new."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Share out what lies between two offsets."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share, with the columns of `requite.spark.schemas.SOURCE`."""

    def note(
        self, segments: Mapping[str, Mapping[int, int]], end: Offset, since_ns: int
    ) -> list[Skipped]:
        """Note segments, by log, of which something could not be read; from which byte on."""

    def again(self, skipped: Collection[Skipped], start: Offset) -> Again:
        """Share out what has changed of what was skipped up to an offset."""

    def faults(self, ended: Collection[str]) -> list[str]:
        """Tell by name what must be there and is not; `ended` logs have been read to their end."""

    def behind(self) -> list[str]:
        """Return the logs of which there are copies that may not have everything yet."""


def journal_source(journal: str) -> Source:
    """Return what reads a journal. Raises `ConfigurationError` for what is none."""
    options = read_options({"path": journal})
    find_logs(options.path)
    return JournalStreamReader(options, options.columns)


class Reached(NamedTuple):
    """Up to where a journal has been read, and what was skipped on the way (None: not noted);
    `anew`: bronze has lost events that turned out to be wrong, so nothing rests on it any more."""

    offset: Offset | None = None
    skipped: tuple[Skipped, ...] | None = None
    anew: bool = False

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Reached:
        """Return what the state of a lake says."""
        noted = state.get("skipped")
        skipped = None if noted is None else tuple(Skipped(*each) for each in noted)
        return cls(state.get("offset"), skipped)

    def record(self) -> dict[str, Any]:
        """Return what is kept of it in the state of a lake."""
        kept = {"offset": self.offset, "skipped": self.skipped}
        return kept | {"anew": True} if self.anew else kept


def ingest(lake: Lake, source: Source, before: Reached) -> tuple[Reached, News]:
    """Write what is new to bronze, and what was skipped and has changed since.

    Return how far that comes, and what is new. Raises `LakeError` where it cannot be written.
    """
    since_ns = time_ns() - _SETTLED_NS
    reached = source.initialOffset() if before.offset is None else before.offset
    again = source.again(before.skipped or (), reached)
    start = again.start
    end = source.latestOffset(start, ReadAllAvailable())
    shares = [*again.shares, *(source.partitions(start, end) if end != start else ())]
    quarantined = lake.catalog.files(QUARANTINE)
    task = _Task(lake.root, source, tuple(shares), _known_of(lake, again))
    if again.outdated and quarantined:
        lake.replace(QUARANTINE, _without(lake, again.outdated))
    told = _have_done(lake, task)
    wrong = _segments_that_differ(told, task.known)
    if wrong:
        _forget(lake, wrong)
        kept = {place: rows for place, rows in task.known.items() if place not in wrong}
        told = _have_done(lake, replace(task, known=kept))
    for name in (QUARANTINE, EVENTS, IDS):
        if added := [_added(row) for row in told if row["table"] == name]:
            lake.catalog.commit(name, added)
    skipped = before.skipped
    if skipped is None or quarantined != lake.catalog.files(QUARANTINE):
        was_noted = skipped is not None or before.offset is None
        segments = _segments_in_quarantine(lake)
        skipped = tuple(source.note(segments, end, since_ns if was_noted else 0))
    facts = [row for row in told if row["path"] is None and row["found"] is None]
    return Reached(end, skipped, bool(wrong)), _news(facts)


def _have_done(lake: Lake, task: _Task) -> list[dict[str, Any]]:
    """Have Spark do a task, share by share; return what that tells."""
    count = len(task.shares)
    numbers = lake.spark.range(0, count, 1, count) if count else None
    return [] if numbers is None else added_by(numbers.mapInArrow(task, _TOLD))


def _segments_that_differ(told: Iterable[dict[str, Any]], known: Known) -> set[tuple[str, int]]:
    """Return the segments of which bronze has events that were not found any more."""
    found: Counter[tuple[str, int]] = Counter()
    for row in told:
        if row["found"] is not None:
            found[row["log"], row["segment"]] += row["found"]
    return {place for place, rows in known.items() if found[place] < rows.num_rows}


def _forget(lake: Lake, segments: Collection[tuple[str, int]]) -> None:
    """Delete the events of segments from bronze: their files were others when they were read."""
    wrong = F.broadcast(_places(lake, segments))
    lake.replace(EVENTS, lake.table(EVENTS).join(wrong, ["log", "segment"], "left_anti"))


def _places(lake: Lake, segments: Collection[tuple[str, int]]) -> DataFrame:
    return lake.spark.createDataFrame(sorted(segments), "log string, segment bigint")


def _segments_in_quarantine(lake: Lake) -> dict[str, dict[int, int]]:
    """Return, by log, the segments of which something was skipped, and from which byte on."""
    if not lake.catalog.files(QUARANTINE):
        return {}
    grouped = lake.table(QUARANTINE).groupBy("log", "segment").agg(F.min("byte_offset"))
    found: dict[str, dict[int, int]] = {}
    for log, segment, first in _rows_of(grouped.toArrow()):
        found.setdefault(log, {})[segment] = first
    return found


def _known_of(lake: Lake, again: Again) -> Known:
    """Return which events bronze has of the segments that are read again."""
    if not again.segments:
        return {}
    segments = F.broadcast(_places(lake, again.segments))
    events = lake.table(EVENTS).select(*bronze.PLACE, *_CONTENT)
    found = events.join(segments, ["log", "segment"], "left_semi").toArrow()
    known: dict[tuple[str, int], pa.Table] = {}
    for log, segment in again.segments:
        is_of = pc.and_(pc.equal(found["log"], log), pc.equal(found["segment"], segment))
        rows = found.filter(is_of).drop_columns(["log", "segment"]).combine_chunks()
        if rows.num_rows:
            known[log, segment] = rows
    return known


def _without(lake: Lake, outdated: Sequence[Outdated]) -> DataFrame:
    """Return what is in quarantine but for what does not hold any more."""
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


def _news(facts: list[dict[str, Any]]) -> News:
    days = sorted({row["day"] for row in facts if row["day"]})
    by_day = [[row for row in facts if row["day"] == day] for day in days]
    return News(
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
    )


def _latest(told: Iterable[str]) -> dict[str, int]:
    heard_us: dict[str, int] = {}
    for each in chain.from_iterable(map(str.split, told)):
        log, us = each.split("=")
        heard_us[log] = max(int(us), heard_us.get(log, 0))
    return heard_us


# --- what a task does -----------------------------------------------------------------------------
@dataclass(frozen=True)
class _Task:
    """Reads shares, which it is given by number, and writes them: for `DataFrame.mapInArrow`."""

    root: str
    source: Source
    shares: tuple[InputPartition, ...]
    known: Known

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(_row, self._write(self.shares[number]))

    def _write(self, share: InputPartition) -> Iterator[dict[str, Any]]:
        store, sorting = filesystem(self.root), _Sorting(self.source.read(share), self.known)
        try:
            for added in write(store, EVENTS, sorting.events(), by_day):
                yield {"table": EVENTS, **added._asdict()}
            for name, rows in {QUARANTINE: sorting.bad, IDS: [sorting.ids()]}.items():
                for added in write(store, name, rows, as_one):
                    yield {"table": name, **added._asdict()}
        except OSError as error:
            # A row instead of an exception, of which Spark would make pages.
            yield {"failure": f"{self.root} cannot be written: {words_of(error)}"}
        yield from sorting.facts()


class _Sorting:
    """Sorts the rows of a share: events go on, what does not decode stays here.

    Events that are `known` are left out, by their places.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], known: Known) -> None:
        self.bad: list[pa.RecordBatch] = []
        self._known = known
        self._batches = batches
        self._days: dict[date | None, _Day] = {}
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
            told = _of_day(events, day)
            self._days.setdefault(day, _Day()).add(told)
            for client, first, last in _ids_by_client(told):
                known = self._ids.get((client, day), (first, last))
                self._ids[client, day] = min(first, known[0]), max(last, known[1])

    def ids(self) -> pa.RecordBatch:
        """Return which requests of each client were told of on each day: a client counts them."""
        rows = [(client, *ids, day) for (client, day), ids in self._ids.items()]
        types = arrow_types(schemas.BRONZE_IDS)
        columns = zip(*rows, strict=True) if rows else [()] * len(types)
        arrays = [pa.array(*column) for column in zip(columns, types.values(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, list(types))

    def facts(self) -> Iterator[dict[str, Any]]:
        """Yield what the events of each day come to, and how many that are known were found."""
        for (log, segment), count in self._found.items():
            yield {"log": log, "segment": segment, "found": count}
        for day, found in self._days.items():
            made_up = any(client >= MADE_UP for client, of in self._ids if of == day)
            heard = " ".join(f"{log}={us}" for log, us in found.heard.items())
            told = asdict(found) | {"ended": " ".join(found.ended), "heard": heard}
            told |= {"made_up": made_up}
            yield {"day": day, **told}


def find_known(
    events: pa.RecordBatch, known: Known
) -> tuple[tuple[str, int] | None, pa.BooleanArray]:
    """Return which events of a batch are known, and which segment it is of (None: a new one)."""
    place = None
    if events.num_rows:  # a batch is of one segment
        place = events.column("log")[0].as_py(), events.column("segment")[0].as_py()
    if place is None or place not in known:
        return None, pa.nulls(events.num_rows, pa.bool_())
    rows = known[place]
    at = pc.index_in(events.column("byte_offset"), rows["byte_offset"])
    is_known = pc.is_valid(at)
    for name in _CONTENT:
        told, there = events.column(name), rows[name].combine_chunks().take(at)
        are_null = pc.and_(pc.is_null(told), pc.is_null(there))
        is_same = pc.or_(are_null, pc.fill_null(pc.equal(told, there.cast(told.type)), False))
        is_known = pc.and_(is_known, is_same)
    return place, is_known


def _ids_by_client(events: pa.RecordBatch) -> Iterator[tuple[str, str, str]]:
    """Yield the least and the greatest of the request ids of each client."""
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
class _Day:
    """What events of a day come to; `given_us` is the longest time that a request was given,
    `heard` the microsecond of the newest event of each log."""

    events: int = 0
    first: datetime | None = None
    last: datetime | None = None
    given_us: int | None = None
    dropped: int = 0
    ended: list[str] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)

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
        newest = pa.table([events.column("log"), pc.cast(ts, pa.int64())], ["log", "us"])
        for log, us in _rows_of(newest.group_by("log").aggregate([("us", "max")])):
            self.heard[log] = max(us, self.heard.get(log, us))


def _rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _row(columns: dict[str, Any]) -> pa.RecordBatch:
    types = arrow_types(_TOLD)
    arrays = [pa.array([columns.get(name)], kind) for name, kind in types.items()]
    return pa.RecordBatch.from_arrays(arrays, list(types))
