"""How far one machine gets with services spread over several brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from bench.growth.curve import CPU, Curve, Shown
from bench.growth.point import Figures, Point, Settings, job_for, measure_at, start_broker
from requite.testing.processes import Children, ProcessFailed


def _run(settings: Settings, values: Sequence[float]) -> Iterator[Point]:
    for value in map(int, values):
        with Children() as children:
            try:
                brokers = [start_broker(children) for _ in range(value)]
                figures = measure_at(children, job_for(settings), brokers)
            except ProcessFailed as failure:
                raise ProcessFailed(f"{failure}\n{children.report()}") from None
        yield Point("64 in flight at each broker", value, _sum(figures))


def _sum(each: Sequence[Figures]) -> dict[str, float]:
    used_s = sum(one[f"{who}_cpu_s"] for one in each for who in ("broker", "client", "workers"))
    return {
        "requests_per_s": sum(one["requests_per_s"] for one in each),
        "broker_cpu_us": fmean(one["broker_cpu_us"] for one in each),
        "broker_cores": sum(one["broker_cpu_s"] / one["elapsed_s"] for one in each),
        "cores": used_s / max(one["elapsed_s"] for one in each),
    }


CURVES: Final = (
    Curve(
        "brokers",
        "brokers",
        "Each broker is a process with services, workers and clients of its own: 64 requests in"
        " flight, 4 workers.",
        (1, 2, 4, 8),
        (
            Shown("requests_per_s", "requests per second, all brokers", ",.0f"),
            CPU,
            Shown("broker_cores", "cores that all brokers use", ".1f"),
            Shown("cores", "cores that brokers and load use", ".1f"),
        ),
        _run,
    ),
)
