"""Divides the time of a report into steps: the shortest that give few enough to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Final

from requite.spark.report.facts import STEPS_DRAWN, Depth, Span

_SECOND: Final = 1_000_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LENGTHS_US: Final = (
    *(length * _SECOND // 10 for length in (1, 2, 5, 10, 20, 50, 100, 300)),
    *(length * _MINUTE for length in (1, 2, 5, 10, 30)),
    *(length * _HOUR for length in (1, 2, 6, 12)),
    *(length * _DAY for length in (1, 2, 7)),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_US: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

SAMPLES: Final = 10
"""Samples of the queue depth per step."""


def span_of(began: datetime, ended: datetime) -> Span:
    """Divide the time between two instants into whole steps that contain both.

    Borders of steps are multiples of their length since 1970.
    """
    first, last = _us(began), _us(ended)
    lengths = (length for length in _all_lengths() if _count(first, last, length) <= STEPS_DRAWN)
    length = next(lengths)
    stop = min(last // length + 1, _LATEST_US // length) * length
    start = min(first // length * length, stop - length)
    return Span(_instant(start), _instant(stop), timedelta(microseconds=length))


def _all_lengths() -> Iterator[int]:
    yield from _LENGTHS_US
    length = _LENGTHS_US[-1]
    while True:
        length *= 2
        yield length


def _count(first: int, last: int, length: int) -> int:
    return last // length - first // length + 1


def is_fine(span: Span) -> bool:
    """Return whether steps are shorter than the minutes of the gold tables."""
    return span.step < timedelta(minutes=1)


def depths(
    span: Span, changes: Mapping[int, int], oldest_s: Mapping[int, float]
) -> tuple[Depth, ...]:
    """Compute queue depths from changes per sample and the longest waits per step.

    Samples are numbered from the beginning of the span, `SAMPLES` per step.
    """
    count = len(span.steps) * SAMPLES
    waiting = [*accumulate(changes.get(sample, 0) for sample in range(count))]
    return tuple(
        _depth(at, waiting[number * SAMPLES :][:SAMPLES], oldest_s.get(number))
        for number, at in enumerate(span.steps)
    )


def _depth(at: datetime, samples: list[int], oldest_s: float | None) -> Depth:
    return Depth(at, max(samples), sum(samples) / len(samples), oldest_s)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)


def _instant(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
