"""Short runs of the parts of `python -m bench.amqp`; no particular speed is required."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from bench.amqp import law, law_chart, start
from bench.amqp.__main__ import parse
from bench.amqp.contenders import CONTENDERS, REQUITE
from bench.amqp.law_point import HANDLERS, Point
from bench.amqp.loops import engine_times
from bench.amqp.turns import Settings, ask, make_job, publish, take_turn
from tests.support.rabbit import Rabbit

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHORT = Settings(1, 0.1, 0.1)
POINTS = [
    Point(handler, servants, slots, 900.0 * slots, 0.001, 1.5)
    for handler in HANDLERS
    for servants in (1, 2)
    for slots in (1, 2, 4)
]


@pytest.fixture
def server(rabbit: Rabbit) -> Iterator[Any]:
    """RabbitMQ as the bench uses it: virtual host `/`, user `guest`.

    Deletes the queues and exchanges of the bench afterwards.
    """
    yield rabbit
    for queue in ask(rabbit, "/queues/%2F?columns=name"):
        with suppress(HTTPError):  # RabbitMQ deletes reply queues with their clients
            ask(rabbit, f"/queues/%2F/{quote(queue['name'], safe='')}", "DELETE")
    for exchange in ask(rabbit, "/exchanges/%2F?columns=name"):
        if exchange["name"].startswith("bench-"):
            ask(rabbit, f"/exchanges/%2F/{exchange['name']}", "DELETE")


def test_a_turn_reports_calls_and_cpu_time(server: Any) -> None:
    [contender] = [each for each in CONTENDERS if each.name == REQUITE]
    figures = take_turn(server, contender, make_job(server, SHORT, 4, 11, contender.queue))
    assert figures["answered"] > 0
    assert {"client_cpu_us", "workers_cpu_us", "broker_cpu_us"} <= figures.keys()


def test_the_measured_rate_is_at_most_the_rate_of_the_law(server: Any) -> None:
    points = list(law._measure(server, SHORT, "echo", 2, 4))
    assert [point.slots for point in points] == [1, 2, 4]
    # A slot runs one call at a time, so the sum of its latencies is at most the elapsed time.
    assert all(point.calls_per_s <= point.law * 1.0001 for point in points)


def test_the_first_request_of_each_key_is_timed(server: Any, tmp_path: Path) -> None:
    times = start._by_tasks(server, tmp_path, 2)
    assert len(times) == 2
    assert min(times) > 0


def test_phases_of_groups_report_their_memory(server: Any, tmp_path: Path) -> None:
    groups = pytest.importorskip("bench.amqp.groups", reason="pika is not there")
    with groups.managing(server, groups.POOL, tmp_path, 'kind = "noop"') as manager:
        phases = list(groups._phases(server, manager, groups.POOL, 3, 0.3, 100))
    assert len(phases) == 4
    assert all(phase.memory_mib > 1 for phase in phases)


def test_points_are_reduced_to_medians_tabulated_and_drawn(tmp_path: Path) -> None:
    slower = [point._replace(calls_per_s=1.0) for point in POINTS]
    assert law.medians([*POINTS, *slower, *POINTS]) == POINTS
    text = law.report(POINTS)
    assert "| 4 | 3,600 | 1.0 | 4,000 | 4,000 | 1.5 |" in text
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    law_chart.draw(POINTS, tmp_path / "law.svg")
    picture = (tmp_path / "law.svg").read_text()
    assert all(what in picture for what in HANDLERS.values())


def test_the_engine_is_timed_for_few_groups_and_many() -> None:
    rows = engine_times((2, 8)).splitlines()
    assert len(rows) == 5
    assert all(int(cell) >= 0 for row in rows[2:] for cell in row.split("|")[2:4])


def test_publish_replaces_the_report_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n")
    given = parse(["calls", "--quick", "--docs", str(tmp_path)])
    publish(given, "amqp calls", "first")
    publish(given, "amqp calls", "second")
    assert page.read_text().count("amqp calls:begin") == 1
    assert "second" in page.read_text()
    assert "first" not in page.read_text()
    publish(Namespace(docs=None), "amqp calls", json.dumps("nowhere"))
    assert "nowhere" not in page.read_text()
