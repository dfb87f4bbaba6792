"""The groups of a pool: what they cost its manager, at rest and while workers report activity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Final

from bench.growth.curve import Curve, Shown
from bench.growth.point import Point, Settings
from requite.testing import rabbitmq

REPORTS_PER_S: Final = 500
_REST_S: Final = 10.0  # two rounds of the manager's control loop


def lack() -> str | None:
    """Return what is missing to measure, and how to install it."""
    if find_spec("pika") is None:
        return "no module pika: run `scripts/setup bench`"
    return rabbitmq.unavailable()


def _run(settings: Settings, values: Sequence[float]) -> Iterator[Point]:
    from bench.amqp.groups import measure
    from bench.amqp.turns import shared_rabbit

    with shared_rabbit() as rabbit:
        for value in map(int, values):
            pool = f"bench-groups-{value}"
            _, made, rest, work = measure(
                rabbit, pool, value, min(_REST_S, 5 * settings.seconds), REPORTS_PER_S
            )
            yield Point(
                "with a noop driver",
                value,
                {
                    "making_ms": made.manager_s / value * 1000,
                    "rest_cores": rest.manager_s / rest.elapsed_s,
                    "report_us": work.manager_s / (REPORTS_PER_S * work.elapsed_s) * 1e6,
                    "manager_memory_mib": work.memory_mib,
                },
            )


CURVES: Final = (
    Curve(
        "groups",
        "groups of a pool",
        f"One manager with a driver that starts nothing, and RabbitMQ. At work, {REPORTS_PER_S}"
        " reports of activity come per second, for one group after the other.",
        (1, 10, 100, 1_000),
        (
            Shown("report_us", "manager's CPU per report, µs", ",.0f"),
            Shown("manager_memory_mib", "manager's memory, MiB", ",.0f"),
            Shown("rest_cores", "cores used at rest", ".3f"),
            Shown("making_ms", "manager's CPU per new group, ms", ".1f"),
        ),
        _run,
        lack=lack,
    ),
)
