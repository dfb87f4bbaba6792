"""The throughput law P = C / L: the rate of a slotted client, compared with the law.

`C` slots are always in use. The law is evaluated twice: with the latency `L` of the same run, as in
the article, and with the latency of a client with a single slot, which is known when the number of
slots is chosen. The first should hold; where the second deviates, a resource is saturated.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Final

from bench.amqp import law_chart
from bench.amqp.contenders import Part
from bench.amqp.law_point import HANDLERS, Point
from bench.amqp.slotted_peer import CAPACITY
from bench.amqp.turns import (
    SLACK_S,
    START_S,
    Settings,
    declare,
    facts,
    make_job,
    publish,
    settings_of,
)
from bench.job import Job
from bench.page import table
from bench.quiet import Quiet
from requite.testing.processes import Children, ProcessFailed
from requite.testing.rabbitmq import RabbitServer

PAGE: Final = "topics/throughput-law.md"
PICTURE: Final = "topics/throughput-law.svg"
SLOTS: Final = tuple(2**n for n in range(9))
SERVANTS: Final = (1, 2, 4)
_QUEUE: Final = "classic"
_SIZE_BYTES: Final = 11


def run(rabbit: RabbitServer, given: Namespace, how: str) -> list[str]:
    """Measure and report; return what failed."""
    # Half a turn per number of slots: there are many, and only the curve matters.
    settings = replace(settings_of(given), seconds=given.seconds / 2, warm_up_s=0.2)
    slots, servants = (SLOTS[:4], (1,)) if given.quick else (SLOTS, SERVANTS)
    quiet = Quiet(given.busy)
    found: list[Point] = []
    for number in range(settings.rounds):
        for handler, each in product(HANDLERS, servants):
            print(f"{number + 1}/{settings.rounds} {handler}, {_servants(each)}", flush=True)
            try:
                found += quiet.take(
                    lambda handler=handler, each=each: list(
                        _measure(rabbit, settings, handler, each, slots[-1])
                    )
                )
            except ProcessFailed as failure:
                return [f"{handler}, {_servants(each)}: {failure}"]
    points = medians(found)
    lead = (
        f"{how}: medians of {settings.rounds} rounds, {settings.seconds:g} s for each number of"
        f" slots; {_SIZE_BYTES} B, a queue in memory, {CAPACITY} requests at a time per servant."
        f" {quiet.words()}"
    )
    publish(given, "amqp law", "\n\n".join([lead, facts(rabbit), report(points)]), PAGE)
    if given.docs is not None:
        law_chart.draw(points, given.docs / PICTURE)
    return []


def _measure(
    rabbit: RabbitServer, settings: Settings, handler: str, servants: int, slots_max: int
) -> Iterator[Point]:
    declare(rabbit, _QUEUE)
    job = make_job(rabbit, settings, slots_max, _SIZE_BYTES, _QUEUE)
    with Children() as children:
        try:
            for line in _lines(replace(job, workers=servants), handler, children):
                figures = json.loads(line)
                yield Point(handler, servants, *figures.values())
        except ProcessFailed as failure:
            raise ProcessFailed(f"{failure}\n{children.report()}") from None


def _lines(job: Job, handler: str, children: Children) -> Iterator[str]:
    """Yield the client's output: a line per number of slots."""
    command = Part("slotted_peer", handler).command(job)
    workers = [children.start(command, name=f"servant {n + 1}") for n in range(job.workers)]
    for worker in workers:
        worker.wait_for("^ready$", START_S)
    job = replace(job, worker_pids=[worker.pid for worker in workers])
    client = children.start(Part("slotted_peer", "client").command(job), name="the client")
    for slots in [each for each in SLOTS if each <= job.window]:
        patience_s = job.warm_up_s + job.seconds + SLACK_S
        yield client.wait_for(rf'^{{"slots": {slots},.*}}$', patience_s)[0]


def medians(found: list[Point]) -> list[Point]:
    """Return the medians over the rounds."""
    rounds: dict[tuple[str, int, int], list[Point]] = {}
    for point in found:
        rounds.setdefault(point[:3], []).append(point)
    return [Point(*place, *_median(points)) for place, points in rounds.items()]


def _median(points: list[Point]) -> Iterator[float]:
    for column in zip(*(point[3:] for point in points), strict=True):
        yield median(column)


# --- the report -----------------------------------------------------------------------------------
def report(points: list[Point]) -> str:
    """Return a table per handler."""
    parts = []
    for handler, what in HANDLERS.items():
        mine = [point for point in points if point.handler == handler]
        if mine:
            parts += [f"**{what[0].upper()}{what[1:]}**", _table(mine)]
    return "\n\n".join(parts)


def _table(points: list[Point]) -> str:
    servants = sorted({point.servants for point in points})
    header = ["slots C"]
    for n in servants:
        header += [f"{_servants(n)}: P, calls/s", "L, ms", "C / L", "C / L₁", "cores"]
    rows = [
        [str(slots), *(text for n in servants for text in _texts(points, n, slots))]
        for slots in sorted({point.slots for point in points})
    ]
    return table(header, rows)


def _servants(count: int) -> str:
    return "1 servant" if count == 1 else f"{count} servants"


def _texts(points: list[Point], servants: int, slots: int) -> Iterator[str]:
    line = {point.slots: point for point in points if point.servants == servants}
    point = line[slots]
    yield f"{point.calls_per_s:,.0f}"
    yield f"{point.latency_s * 1000:.1f}"
    yield f"{point.law:,.0f}"
    yield f"{slots / line[1].latency_s:,.0f}"
    yield f"{point.cores:.1f}"
