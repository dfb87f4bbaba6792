"""Estimates clock offsets between machines, and corrects the times of events.

A message is received after it is sent. So each request in two logs bounds the offset of their
clocks, as in NTP: the request was sent before it arrived, and the reply was sent before it was
received. All requests together leave an interval of possible offsets, as wide as the transit times.
On one machine it contains 0.

    bounds          the intervals of pairs of logs (the table `silver_clocks`)
    settle          the offset of each log, from the intervals: 0 for all that agree
    corrected       events with the times of a common clock

Some requests give no bound: redelivered ones, those with repeated events, and those that took
longer at the receiver than at the sender.

An interval is empty if a clock was set while its log was written. The log is then *unsettled*, and
its times are not compared with others. It is corrected only as far as all requests require. Two
logs without a common request, even by way of other logs, are assumed to be in step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from requite.spark.clock import date_of, micros
from requite.spark.schemas import SILVER_CLOCKS
from requite.story.vocabulary import (
    ACCEPTED,
    BROKER,
    CLIENT,
    DELIVERED,
    DISPATCHED,
    FINISHED,
    OK,
    OUTCOMES,
    REDELIVERED,
    SENT,
    WORKER,
)

TOLERANCE_US: Final = 50_000
"""Offsets up to this are not corrected: an engine reads its clock once per turn, so messages that
arrive during a long turn get too early a time."""

_SAMPLE: Final = 16
"""One in this many requests is used: each gives a valid bound, and more of them narrow it."""

_FIRST: Final = "0" * 15  # all but the last digit of the numbers of a client's first 16 requests


class Bound(NamedTuple):
    """The clock of `log` is ahead of that of `other` by `at_least_us` to `at_most_us`."""

    log: str
    other: str
    at_least_us: int
    at_most_us: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """Offsets of logs in µs, 0 for unnamed ones. The clocks of `unsettled` logs were set."""

    ahead_us: Mapping[str, int] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()

    def record(self) -> dict[str, Any]:
        """Return the offsets for JSON."""
        return {"ahead_us": dict(self.ahead_us), "unsettled": sorted(self.unsettled)}

    def common_us(self, times_us: Mapping[str, int]) -> dict[str, int]:
        """Convert the times of logs to a common clock."""
        return {log: us - self.ahead_us.get(log, 0) for log, us in times_us.items()}

    @property
    def worst_us(self) -> int:
        """The largest absolute offset."""
        return max(map(abs, self.ahead_us.values()), default=0)


IN_STEP: Final = Clocks()


def bounds(events: DataFrame) -> DataFrame:
    """Bound the offsets of pairs of logs, by each client's first requests and a sample.

    Only requests that were sent, dispatched and answered once, and not redelivered, count: for
    others the pairing of messages is unknown.
    """
    request_id = F.col("request_id")
    is_chosen = F.pmod(F.xxhash64(request_id), F.lit(_SAMPLE)) == 0
    is_early = F.substring(request_id, 17, 15) == _FIRST
    requests = events.where(is_chosen | is_early).groupBy("request_id").agg(*_landmarks())
    once = (F.greatest(*(f"{name}_n" for name in _STEPS)) == 1) & (F.col("taken_back") == 0)
    edges = [
        _edge(BROKER, CLIENT, ("sent", "taken"), ("replied", "kept")),
        _edge(WORKER, BROKER, ("given", "delivered"), ("finished", "replied")),
        _edge(WORKER, CLIENT, ("sent", "delivered"), ("finished", "kept")),
    ]
    paired = requests.where(once).select(F.array(*edges).alias("edges"))
    sound = paired.where(~F.exists("edges", lambda edge: F.coalesce(_misfits(edge), F.lit(False))))
    found = sound.select(F.explode("edges").alias("edge")).select("edge.*")
    return (
        found.where(F.col("at_least_us").isNotNull() & F.col("at_most_us").isNotNull())
        .groupBy("log", "other")
        .agg(F.max("at_least_us").alias("at_least_us"), F.min("at_most_us").alias("at_most_us"))
    )


_STEPS: Final = {
    "sent": (CLIENT, (SENT,), False),
    "taken": (BROKER, (ACCEPTED,), False),
    "given": (BROKER, (DISPATCHED,), False),
    "delivered": (WORKER, (DELIVERED,), False),
    "finished": (WORKER, (FINISHED,), True),
    "replied": (BROKER, OUTCOMES, True),
    "kept": (CLIENT, OUTCOMES, True),
}
"""Steps of a request: role of the log, kinds of events, and whether only outcome OK counts."""


def _landmarks() -> list[Column]:
    role, kind, ts = F.col("role"), F.col("kind"), F.col("ts")

    def times(by: str, kinds: tuple[str, ...], is_ok: bool) -> Column:
        fits = (role == by) & kind.isin(*kinds)
        return F.when(fits & (F.col("outcome") == OK) if is_ok else fits, ts)

    steps = {name: times(*step) for name, step in _STEPS.items()}
    return [
        *(micros(F.min(at)).alias(name) for name, at in steps.items()),
        *(F.count(at).alias(f"{name}_n") for name, at in steps.items()),
        *(F.min(F.when(role == by, F.col("log"))).alias(by) for by in (CLIENT, BROKER, WORKER)),
        F.count_if(kind == REDELIVERED).alias("taken_back"),
    ]


def _edge(there: str, here: str, way: tuple[str, str], back: tuple[str, str]) -> Column:
    """Bound the offset of the clock `there`: `way` is sent here, arrives there; `back` returns."""
    return F.struct(
        F.col(there).alias("log"),
        F.col(here).alias("other"),
        (F.col(back[0]) - F.col(back[1])).alias("at_least_us"),
        (F.col(way[1]) - F.col(way[0])).alias("at_most_us"),
    )


def _misfits(edge: Column) -> Column:
    """Return whether a request took longer `there` than `here`, so no offset fits."""
    return edge["at_least_us"] > edge["at_most_us"] + TOLERANCE_US


def merge(found: Iterable[Bound]) -> list[Bound]:
    """Return the intersection of the bounds of each pair of logs."""
    merged: dict[tuple[str, str], Bound] = {}
    for bound in found:
        log, other, at_least, at_most = bound
        known = merged.get((log, other), bound)
        merged[log, other] = Bound(
            log, other, max(at_least, known.at_least_us), min(at_most, known.at_most_us)
        )
    return [merged[pair] for pair in sorted(merged)]


def settle(found: Iterable[Bound]) -> Clocks:
    """Return each log's offset from the clock that most logs agree with."""
    found = list(found)
    near: dict[str, list[Bound]] = defaultdict(list)
    for bound in found:
        near[bound.log].append(_reversed(bound))
        near[bound.other].append(bound)
    ahead: dict[str, int] = {}
    for log in sorted(near):
        if log not in ahead:
            ahead |= _centred(_spread(log, near))
    unsettled = frozenset(_set_by_hand(found, near))
    return Clocks({log: us for log, us in ahead.items() if us}, unsettled)


def _reversed(bound: Bound) -> Bound:
    return Bound(bound.other, bound.log, -bound.at_most_us, -bound.at_least_us)


def _is_empty(bound: Bound) -> bool:
    return bound.at_least_us > bound.at_most_us + TOLERANCE_US


def _set_by_hand(found: Iterable[Bound], near: Mapping[str, list[Bound]]) -> Iterator[str]:
    """Yield, of two logs with an empty interval, the one with more disagreements; or both."""

    def misfits(log: str) -> float:
        return sum(map(_is_empty, near[log])) / len(near[log])

    for log, other, *_ in filter(_is_empty, found):
        if misfits(log) >= misfits(other):
            yield log
        if misfits(other) >= misfits(log):
            yield other


def _spread(start: str, near: Mapping[str, list[Bound]]) -> dict[str, int]:
    """Assign offsets from log to log by the narrowest intervals, 0 steps if possible."""
    ahead: dict[str, int] = {}
    waiting: list[tuple[bool, int, str, int]] = [(False, 0, start, 0)]
    while waiting:
        _, _, log, at = heappop(waiting)
        if log in ahead:
            continue
        ahead[log] = at
        for bound in near[log]:
            if bound.log not in ahead:
                width = bound.at_most_us - bound.at_least_us
                step = (_is_empty(bound), width, bound.log, at + _least_step(bound))
                heappush(waiting, step)
    return ahead


def _least_step(bound: Bound) -> int:
    low, high = sorted(bound[2:])  # the ends of an empty interval are in reverse order
    if low - TOLERANCE_US <= 0 <= high + TOLERANCE_US:
        return 0
    return (bound.at_least_us + bound.at_most_us) // 2


def _centred(ahead: Mapping[str, int]) -> dict[str, int]:
    """Return offsets from the clock that most logs agree with; in a tie, from a client's."""
    counts = Counter(ahead.values())
    votes = {
        at: sum(n for other, n in counts.items() if abs(at - other) <= TOLERANCE_US)
        for at in counts
    }
    of_clients = {at for log, at in ahead.items() if log.startswith(CLIENT)}
    right = max(votes, key=lambda at: (votes[at], at in of_clients, -abs(at), at))
    return {log: 0 if abs(at - right) <= TOLERANCE_US else at - right for log, at in ahead.items()}


def corrected(events: DataFrame, clocks: Clocks) -> DataFrame:
    """Return events with the times of a common clock."""
    if not clocks.ahead_us:
        return events
    session = events.sparkSession
    rows = [(log, ahead) for log, ahead in sorted(clocks.ahead_us.items())]
    ahead = F.broadcast(session.createDataFrame(rows, "log string, ahead_us bigint"))
    shifted: dict[str, Column] = {
        name: F.timestamp_micros(micros(F.col(name)) - F.coalesce("ahead_us", F.lit(0)))
        for name in ("ts", "deadline")
    }
    joined = events.join(ahead, "log", "left").withColumns(shifted)
    return joined.withColumn("date", date_of(F.col("ts"))).select(*events.columns)


def put(session: Any, found: Iterable[Bound]) -> DataFrame:
    """Return bounds as the table `silver_clocks`."""
    frame: DataFrame = session.createDataFrame([tuple(bound) for bound in found], SILVER_CLOCKS)
    return frame


def collected(frame: DataFrame) -> list[Bound]:
    """Return the rows of a DataFrame of bounds."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return [Bound(**{name: row[name] for name in Bound._fields}) for row in rows]
