"""The gauge of the benchmarks: the end of a measurement, and its figures."""

from __future__ import annotations

import json

import pytest
from bench.gauge import Gauge
from bench.job import Job


def job(**settings: float) -> Job:
    given = {"seconds": 0.0, "requests": 2, "warm_up_s": 0.0, **settings}
    return Job(0, 0, (), "0.3", 1, 1, 11, 1, **given)  # type: ignore[arg-type]


def test_a_measurement_needs_an_answer() -> None:
    gauge = Gauge(job())
    assert not gauge.is_over(0)
    assert gauge.is_over(1)  # three times the requested seconds (0) have passed


def test_a_measurement_lasts_for_the_requested_seconds() -> None:
    assert not Gauge(job(seconds=60.0)).is_over(2)


def test_figures_are_per_answer(capsys: pytest.CaptureFixture[str]) -> None:
    gauge = Gauge(job())
    gauge.open()
    gauge.close(4, [3000, 1000, 2000, 4000])
    figures = json.loads(capsys.readouterr().out)
    assert figures["answered"] == 4
    assert (figures["latency_p50_us"], figures["latency_p99_us"]) == (3.0, 4.0)
    assert figures["workers_cpu_us"] == 0
