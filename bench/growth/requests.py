"""Curves of a broker: what a request costs among many services, workers, clients and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from bench.growth.curve import CPU, MEMORY, REST, Curve
from bench.growth.point import Point, Settings, folder, job_for, measure
from bench.job import Job

_PLAIN: Final = "without a journal"
_JOURNAL: Final = "journal on"
_REST_S: Final = 2.0
_ONE_BY_ONE: Final = "idle, but for one"
_IN_TURN: Final = "in turn"
_PENDING_AT: Final = 16  # connections that share the pending requests
_MORE_PENDING: Final = ("--client-pending-max=200000", "--queue-max=200000")

MakeJob = Callable[[Settings, int], Job]


def _run(
    make_job: MakeJob, options: Sequence[str], settings: Settings, values: Sequence[float]
) -> Iterator[Point]:
    """Measure each value without and with a journal."""
    for value in map(int, values):
        job = make_job(settings, value)
        yield Point(_PLAIN, value, measure(job, options))
        with folder() as journal:
            yield Point(_JOURNAL, value, measure(job, [*options, f"--journal={journal}"]))


def _rest_s(settings: Settings) -> float:
    return min(_REST_S, settings.seconds)


def _services(settings: Settings, value: int) -> Job:
    return job_for(settings, services=value, workers=value, rest_s=_rest_s(settings))


def _workers(settings: Settings, value: int) -> Job:
    return job_for(settings, workers=value, rest_s=_rest_s(settings))


def _pending(settings: Settings, value: int) -> Job:
    return job_for(settings, window=value, connections=min(value, _PENDING_AT))


def _body(settings: Settings, value: int) -> Job:
    return job_for(settings, body_size_bytes=value, window=4, capacity=1)


def _clients(settings: Settings, values: Sequence[float]) -> Iterator[Point]:
    for value in map(int, values):
        rest_s = _rest_s(settings)
        idle = job_for(settings, idle=value - 1, rest_s=rest_s)
        yield Point(_ONE_BY_ONE, value, measure(idle))
        busy = job_for(settings, connections=value, rest_s=rest_s)
        yield Point(_IN_TURN, value, measure(busy))
        with folder() as journal:
            yield Point(f"{_IN_TURN}, {_JOURNAL}", value, measure(busy, [f"--journal={journal}"]))


CURVES: Final = (
    Curve(
        "services",
        "services",
        "64 requests in flight go to all services in turn; each has a worker of its own.",
        (1, 4, 16, 64, 256, 1_000, 4_000, 10_000),
        (CPU, MEMORY, REST),
        partial(_run, _services, ()),
    ),
    Curve(
        "workers",
        "workers",
        "64 requests in flight go to one service.",
        (1, 4, 16, 64, 256, 1_000, 2_000),
        (CPU, MEMORY, REST),
        partial(_run, _workers, ()),
    ),
    Curve(
        "clients",
        "connections of clients",
        "64 requests in flight are those of one client while the others are idle, or of all"
        " clients in turn.",
        (1, 4, 16, 64, 256, 1_000, 4_000, 10_000),
        (CPU, MEMORY, REST),
        _clients,
    ),
    Curve(
        "pending",
        "pending requests",
        f"So many requests are in flight, over {_PENDING_AT} connections. Beyond 64, the capacity"
        " of the 4 workers, they wait in the queue of the service; beyond 512, if the broker is"
        " busy, at the clients.",
        (1, 8, 64, 512, 4_096, 32_768, 100_000),
        (CPU, MEMORY),
        partial(_run, _pending, _MORE_PENDING),
    ),
    Curve(
        "body",
        "bytes of the body",
        "4 requests in flight, with replies of the same size.",
        (0, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24),
        (CPU, MEMORY),
        partial(_run, _body, ()),
    ),
)
