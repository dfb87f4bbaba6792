"""More requests than can be answered: goodput, and the latency of what is answered.

A request counts as answered if its reply comes before its deadline, a second after it was due. Two
things can be the limit: the workers, which need some time for each request and ignore
cancellations, or the broker, whose workers answer at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bench.growth.curve import Curve, Shown
from bench.growth.point import Figures, Point, Settings, job_for, measure

GOAL: Final = 0.9  # of the highest goodput, at five times the capacity
_TIMEOUT_S: Final = 1.0
# How much longer a point at or beyond the capacity is measured: two rounds in which each client has
# its turn (`requite.shell.fair_queue`). Within two seconds, goodput varied between 70 % and 99 %.
_LONGER: Final = 10
_WORK_S: Final = 0.05
_WORKERS: Final = 5
_CAPACITY: Final = 5
_CONNECTIONS: Final = 16
_SLOW: Final = "workers are the limit"
_FAST: Final = "the broker is the limit"


def _run(settings: Settings, values: Sequence[float]) -> Iterator[Point]:
    slow = {"workers": _WORKERS, "capacity": _CAPACITY, "work_s": _WORK_S}
    yield from _line(settings, values, _SLOW, _WORKERS * _CAPACITY / _WORK_S, slow)
    full = job_for(settings, connections=_CONNECTIONS, window=_CONNECTIONS * 16)
    yield from _line(settings, values, _FAST, measure(full)["requests_per_s"], {})


def _line(
    settings: Settings,
    values: Sequence[float],
    line: str,
    capacity_per_s: float,
    varied: dict[str, float],
) -> Iterator[Point]:
    timeout_s = min(_TIMEOUT_S, settings.seconds)
    for value in values:
        job = job_for(
            settings,
            rate=value * capacity_per_s,
            timeout_s=timeout_s,
            connections=_CONNECTIONS,
            # Until the queue is as long as it gets.
            warm_up_s=2 * timeout_s,
            **varied,
        )
        if value >= 1:
            job = replace(job, seconds=_LONGER * settings.seconds)
        yield Point(line, value, _in_ms(measure(job)))


def _in_ms(figures: Figures) -> Figures:
    milliseconds = {
        f"p{percent}_ms": figures[f"latency_p{percent}_us"] / 1000
        for percent in (50, 99)
        if f"latency_p{percent}_us" in figures
    }
    return {**figures, **milliseconds}


CURVES: Final = (
    Curve(
        "overload",
        "offered load / capacity",
        f"Requests have a timeout of {_TIMEOUT_S:g} s and come at a fixed rate, over"
        f" {_CONNECTIONS} connections. Where the workers are the limit, {_WORKERS} workers take"
        f" {_CAPACITY} requests at a time, {_WORK_S * 1000:.0f} ms each.",
        (0.1, 0.25, 0.5, 0.8, 1, 1.5, 2, 3, 5),
        (
            Shown("requests_per_s", "goodput, replies per second", ",.0f"),
            Shown("p99_ms", "p99 of replies, ms", ",.0f"),
            Shown("offered_per_s", "offered per second", ",.0f"),
            Shown("refused_per_s", "refused per second", ",.0f"),
            Shown("expired_per_s", "expired per second", ",.0f"),
            Shown("late_per_s", "late per second", ",.0f"),
            Shown("unsent_per_s", "not sent per second", ",.0f"),
        ),
        _run,
    ),
)
