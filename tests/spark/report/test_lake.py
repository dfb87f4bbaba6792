"""The facts of a report, from the tables of a lake, and the pages that they make."""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.events import NOON, instant
from tests.spark.tables import append

from requite.spark import report
from requite.spark.delta.catalog import Catalog
from requite.spark.gold.latency import GROWTH, LOWEST_MS
from requite.spark.lake import Lake
from requite.spark.report.facts import Facts
from requite.spark.report.lake import gather
from requite.spark.report.page import render

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

DATE = NOON.date()
MINUTE = timedelta(minutes=1)


def fill(lake: Path, **tables: list[dict[str, Any]]) -> str:
    """Write tables of a lake, dated at NOON; return its root."""
    lake.mkdir(exist_ok=True)
    catalog = Catalog(str(lake))
    with catalog.running():
        for name, rows in tables.items():
            append(catalog, name, [{"date": DATE, **row} for row in rows])
        catalog.end({})
    return str(lake)


def request(number: int, at: float, waits: float, works: float, outcome: str = "OK") -> dict:
    return {
        "request_id": f"{number:032x}",
        "service": "echo",
        "accepted_at": instant(at),
        "started_at": instant(at + waits),
        "finished_at": instant(at + waits + works),
        "total_ms": 1000 * (waits + works),
        "outcome": outcome,
    }


def minute_row(number: int, service: str, accepted: int, **columns: Any) -> dict[str, Any]:
    counts = {"replied": accepted, "failed": 0, "retries": 0, "duplicates": 0, "mean_ms": 10.0}
    row = {"minute": NOON + number * MINUTE, "service": service, "accepted": accepted}
    return {**row, **counts, **columns}


def bucket(number: int, service: str, upper_ms: float, n: int) -> dict[str, Any]:
    row = {"minute": NOON + number * MINUTE, "service": service, "n": n}
    return {**row, "bucket": round(math.log(upper_ms / LOWEST_MS, GROWTH)), "upper_ms": upper_ms}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A lake of four seconds, one without requests; one request failed, one has no outcome."""
    requests = [
        request(1, 0.0, 0.05, 0.05),
        request(2, 0.1, 0.50, 0.10, "FAILED"),
        request(3, 0.2, 0.50, 0.10),
        request(4, 3.0, 0.05, 0.05),
        {**request(5, 3.5, 0.0, 0.0), "finished_at": None, "total_ms": None, "outcome": None},
    ]
    event = {"ts": "2026-03-02T12:00:00.1Z", "log": "broker-1", "seq": 1, "kind": "accepted"}
    return fill(
        tmp_path_factory.mktemp("lake") / "short",
        silver_requests=requests,
        gold_service_minute=[minute_row(0, "echo", 5, replied=3, failed=1, retries=2)],
        gold_latency_histogram=[bucket(0, "echo", 100.0, 2), bucket(0, "echo", 700.0, 2)],
        audit_verdicts=[
            {"request_id": "1", "service": "echo", "verdict": "EXACTLY_ONE"},
            {"request_id": "2", "service": "echo", "verdict": "EXACTLY_ONE"},
            {"request_id": "5", "service": "echo", "verdict": "IN_FLIGHT", "evidence": "[]"},
            {
                "request_id": "6",
                "service": "echo",
                "verdict": "MISSING",
                "evidence": json.dumps([event] * 30),
            },
            {"request_id": "7", "service": "echo", "verdict": "ORPHAN", "evidence": "cut off ["},
        ],
        bronze_events=[
            {"kind": "dropped", "dropped": 4},
            {"kind": "dropped", "dropped": 3},
            {"kind": "accepted"},
        ],
        bronze_quarantine=[{"log": "broker-1", "segment": 0, "byte_offset": 64, "reason": "crc"}],
        gold_worker_liveness=[
            {
                "worker": "ab" * 8,
                "service": "echo",
                "first_seen": instant(0),
                "last_seen": instant(3),
                "gaps": 1,
                "longest_gap_s": 0.9,
                "busy_fraction": float("nan"),
                "status": "lost",
            }
        ],
        gold_capacity=[
            {"minute": NOON, "service": "echo", "utilisation": 0.5, "busy_servers": 2.0},
            {"minute": NOON, "service": "echo", "utilisation": 0.9, "busy_servers": 4.0},
        ],
        gold_rightsizing=[
            {"service": "echo", "current": 1, "recommended": 2, "slots": 8, "timeout_ms": 900}
        ],
        gold_failures=[
            {
                "service": "echo",
                "error_class": "RemoteFailure",
                "fingerprint": "f",
                "n": 1,
                "first_seen": NOON,
                "last_seen": NOON,
                "sample_request_id": "2",
            }
        ],
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession, short: str) -> Facts:
    return gather(Lake.at(spark, short))


def test_the_facts_of_a_short_run(found):
    audit = found.audit
    assert (audit.accepted, audit.exactly_one, audit.missing, audit.orphan) == (4, 2, 1, 1)
    assert (audit.in_flight, audit.dropped_events, audit.damaged) == (1, 7, 1)
    assert found.span.began == NOON
    assert found.span.step == timedelta(seconds=0.1)
    steps = {row.at: row for row in found.pace}
    assert set(steps) == {instant(at) for at in (0, 0.1, 0.2, 3.0)}
    assert steps[NOON].p50_ms == pytest.approx(100, rel=0.02)
    assert steps[instant(0.2)].p99_ms == pytest.approx(600, rel=0.02)
    ended = {row.at: (row.service, row.replied, row.failed) for row in found.flow}
    assert ended[instant(0.7)] == ("echo", 0, 1)
    assert ended[instant(0.8)] == ("echo", 1, 0)
    assert sum(row.replied + row.failed for row in found.flow) == 4
    depths = {row.at: row for row in found.queue}
    assert depths[instant(0.3)].deepest == 2
    assert depths[instant(2.0)].deepest == 0
    assert max(row.oldest_age_s or 0 for row in found.queue) == pytest.approx(0.5)


def test_the_other_tables_of_a_short_run(found):
    assert found.total == found.services[0]._replace(name="")
    assert found.services[0][:6] == ("echo", 5, 3, 1, 2, 0)
    assert (found.total.p50_ms, found.total.p99_ms) == (100.0, 700.0)
    assert [(bar.upper_ms, bar.n) for bar in found.histogram] == [(100.0, 2), (700.0, 2)]
    (life,) = found.workers
    assert (life.status, life.busy_fraction, life.longest_gap_s) == ("lost", None, 0.9)
    (load,) = found.loads
    assert load.utilisation == pytest.approx(0.7)
    assert load.peak_utilisation == 0.9
    assert load.predicted_wait_ms is None
    assert (found.advice[0].recommended, found.advice[0].reason) == (2, None)
    assert found.failures[0].n == 1
    missing, orphan = found.violations
    assert (missing.verdict, len(missing.events), missing.left_out) == ("MISSING", 20, 10)
    assert missing.events[0].kind == "accepted"
    assert (orphan.verdict, orphan.events) == ("ORPHAN", ())


def test_the_page_of_a_short_run(found, short):
    page = render(found)
    for phrase in (
        "4 accepted, 2 ended exactly once, 1 still in flight, 1 never ended",
        "7 events could not be written, 1 record cannot be read",
        "10 more events, not shown.",
        "1 → 2 workers · 8 slots",
        "abababababababab",
        short,
    ):
        assert phrase in page, phrase


def test_a_worker_with_several_services_is_one_worker(spark, tmp_path):
    def life(worker: str, service: str, status: str, busy: float, gap_s: float) -> dict[str, Any]:
        row = {"worker": worker, "service": service, "status": status, "gaps": 1}
        row |= {"first_seen": instant(len(service)), "last_seen": instant(10 - gap_s)}
        return row | {"busy_fraction": busy, "longest_gap_s": gap_s}

    lake = fill(
        tmp_path,
        silver_requests=[request(1, 0.0, 0.0, 1.0)],
        gold_service_minute=[minute_row(0, "echo", 1)],
        gold_worker_liveness=[
            life("a", "echo", "lost", 0.5, 3.0),
            life("a", "price", "lost", float("nan"), 3.0),
            life("a", "mail", "alive", 0.1, 0.5),
            life("b", "echo", "drained", 0.2, 0.5),
            life("b", "mail", "alive", 0.2, 0.5),
        ],
    )
    found = gather(Lake.at(spark, lake))
    assert (found.workers_known, found.workers_lost) == (2, 1)
    first, second = found.workers
    assert (first.worker, first.service, first.status) == ("a", "echo, mail, price", "lost")
    assert (first.first_seen, first.last_seen) == (instant(4), instant(9.5))
    assert (first.gaps, first.longest_gap_s) == (1, 3.0)
    assert first.busy_fraction == pytest.approx(0.3)
    assert (second.service, second.status) == ("echo, mail", "alive")
    assert re.search("1 of 2.{0,20}workers lost", render(found))


def test_requests_to_services_of_brokers_are_left_out(spark, tmp_path):
    names = ("echo", "mmi.service")
    lake = fill(
        tmp_path,
        silver_requests=[
            request(1, 0.0, 0.0, 1.0),
            {**request(2, 9000.0, 0.0, 1.0), "service": "mmi.service"},
        ],
        gold_service_minute=[minute_row(0, name, 7) for name in names],
        gold_latency_histogram=[bucket(0, name, 10.0, 7) for name in names],
        gold_capacity=[{"minute": NOON, "service": name, "utilisation": 0.5} for name in names],
        audit_verdicts=[{"service": name, "verdict": "EXACTLY_ONE"} for name in names],
    )
    found = gather(Lake.at(spark, lake))
    assert found.audit.accepted == 2
    assert [row.name for row in found.services] == ["echo"]
    assert (found.total.accepted, found.histogram[0].n) == (7, 7)
    assert [row.service for row in found.loads] == ["echo"]
    assert found.span.ended < instant(10)


def test_hours_of_many_services_come_from_the_minutes(spark, tmp_path):
    """Steps are minutes or longer; services that are not among the busiest are summed."""
    names = [f"s{number:02}" for number in range(20)]
    minutes = [minute_row(at, name, 1000 - n) for at in (0, 1, 119) for n, name in enumerate(names)]
    lake = fill(
        tmp_path,
        silver_requests=[request(1, 0.0, 0.0, 1.0), request(2, 7199.0, 0.0, 0.5)],
        gold_service_minute=minutes,
        gold_latency_histogram=[
            *(bucket(0, name, 10.0, 990) for name in names),
            *(bucket(119, name, 80.0, 10) for name in names),
        ],
        gold_queue_depth=[
            {
                "minute": NOON + at * MINUTE,
                "service": name,
                "max_depth": 3,
                "avg_depth": 1.5,
                "oldest_age_s": at / 10,
            }
            for at in (0, 1, 119)
            for name in names
        ],
    )
    found = gather(Lake.at(spark, lake))
    assert found.span.step == 2 * MINUTE
    assert found.services_known == 20
    assert [row.name for row in found.services] == names[:12]
    assert found.rest.accepted == 3 * sum(1000 - n for n in range(12, 20))
    assert found.total.accepted == 3 * sum(1000 - n for n in range(20))
    assert found.rest.p50_ms is None
    assert (found.services[0].p50_ms, found.services[0].p99_ms) == (10.0, 10.0)
    assert [(row.at, row.p50_ms) for row in found.pace] == [
        (NOON, 10.0),
        (NOON + 118 * MINUTE, 80.0),
    ]
    first = [row for row in found.flow if row.at == NOON]
    assert [row.service for row in first] == ["", *names[:5]]
    assert first[0].replied == 2 * sum(1000 - n for n in range(5, 20))
    assert first[1].replied == 2000
    assert [tuple(row) for row in found.queue] == [
        (NOON, 60, 30.0, 0.1),
        (NOON + 118 * MINUTE, 60, 30.0, 11.9),
    ]
    page = report.write(spark, lake, tmp_path / "new folder" / "report.html").read_text("utf-8")
    assert "8 other services" in page
    assert len(page) < 150_000


def test_an_empty_lake_gives_a_page_that_says_so(spark, tmp_path):
    page = report.write(spark, tmp_path / "lake", tmp_path / "report.html").read_text("utf-8")
    assert "The journal contains no requests." in page
    assert not re.search("<svg|<table", page)
