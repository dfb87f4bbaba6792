"""Capacity and advice, compared with the formulas: Little's law, Erlang C, P = C / L."""

from __future__ import annotations

import re
from math import ceil, factorial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.events import EventBuilder, collect, instance, instant, rows_frame, schema_names

from requite.spark import schemas
from requite.spark.clock import instant_us, period_of
from requite.spark.gold.capacity import erlang_c_wait_s, gold_capacity, servers
from requite.spark.gold.rightsizing import gold_rightsizing
from requite.spark.lifecycle import lives
from requite.spark.silver import silver_attempts, silver_heartbeats, silver_requests


def erlang_c(c: int, a: float) -> float:
    """Return the probability of waiting, by the formula in textbooks."""
    tail = a**c / factorial(c) * c / (c - a)
    return tail / (sum(a**k / factorial(k) for k in range(c)) + tail)


def test_the_wait_is_that_of_an_mmc_queue(spark: SparkSession) -> None:
    cases = [(c, load * c) for c in (1, 2, 5, 40) for load in (0.1, 0.5, 0.9, 0.99)]
    rows = [{"c": c, "a": a, "s": 0.02} for c, a in cases]
    frame = rows_frame(spark, rows, "c int, a double, s double")
    wait = erlang_c_wait_s(F.col("c"), F.col("a"), F.col("s"))
    found = {
        (row["c"], row["a"]): row["w"] for row in collect(frame.select("c", "a", wait.alias("w")))
    }
    for c, a in cases:
        assert found[c, a] == pytest.approx(erlang_c(c, a) * 0.02 / (c - a))
    one = found[1, 0.5]
    assert one == pytest.approx(0.5 / (1 - 0.5) * 0.02)


def test_an_overloaded_queue_has_no_mean_wait(spark: SparkSession) -> None:
    rows = [{"c": c, "a": a} for c, a in ((1, 1.0), (2, 2.5), (0, 0.5))]
    frame = rows_frame(spark, rows, "c int, a double")
    wait = erlang_c_wait_s(F.col("c"), F.col("a"), F.lit(0.02))
    assert [row["w"] for row in collect(frame.select(wait.alias("w")))] == [None] * 3


def test_thousands_of_servers_do_not_overflow(spark: SparkSession) -> None:
    frame = rows_frame(spark, [{"c": 5000, "a": 4990.0}], "c int, a double")
    (row,) = collect(frame.select(erlang_c_wait_s(F.col("c"), F.col("a"), F.lit(1.0)).alias("w")))
    assert 0 < row["w"] < 0.1


@pytest.fixture(scope="module")
def builder() -> EventBuilder:
    """Ten requests a second for two minutes: 150 ms at a worker, after 50 ms in the queue."""
    builder = EventBuilder()
    broker, workers = builder.broker(), [builder.worker("w1"), builder.worker("w2")]
    for number in range(1200):
        worker = workers[number % 2]
        builder.call(number, number / 10, broker=broker, worker=worker, queued_s=0.05, took_s=0.15)
    for at in range(0, 120, 10):
        state = {"gap_s": 0.5, "busy": 1, "capacity": 8}
        broker.add(at, "heartbeat", worker=instance("w1"), **state)
        broker.add(at, "heartbeat", worker=instance("idle"), **state)
    return builder


@pytest.fixture(scope="module")
def tables(spark: SparkSession, builder: EventBuilder) -> dict[str, DataFrame]:
    events = builder.frame(spark)
    requests = rows_frame(spark, collect(silver_requests(lives(events))), schemas.SILVER_REQUESTS)
    attempts = silver_attempts(events)
    heartbeats = silver_heartbeats(events)
    capacity = gold_capacity(requests, attempts, heartbeats, since=instant(0), until=instant(120.1))
    assert capacity.columns == schema_names(schemas.GOLD_CAPACITY)
    return {"requests": requests, "attempts": attempts, "heartbeats": heartbeats} | {
        "capacity": rows_frame(spark, collect(capacity), schemas.GOLD_CAPACITY)
    }


def test_the_load_is_counted_per_minute(tables: dict[str, DataFrame]) -> None:
    rows = {row["minute"]: row for row in collect(tables["capacity"])}
    row = rows[instant(60)]
    assert row["arrival_rate"] == pytest.approx(10.0)
    assert row["service_s"] == pytest.approx(0.15)
    assert row["busy_servers"] == pytest.approx(1.5)
    assert row["in_system"] == pytest.approx(2.0)
    assert row["littles_law_gap"] == pytest.approx(0.0, abs=1e-3)
    assert row["measured_wait_ms"] == pytest.approx(50.0)
    assert row["date"] == instant(60).date()


def test_idle_workers_are_counted(tables: dict[str, DataFrame]) -> None:
    (row,) = [row for row in collect(tables["capacity"]) if row["minute"] == instant(60)]
    assert row["workers"] == 3
    assert row["servers"] == 3
    assert row["utilisation"] == pytest.approx(0.5)
    assert row["predicted_wait_ms"] == pytest.approx(erlang_c(3, 1.5) * 150 / 1.5)


def test_the_last_window_is_as_long_as_the_journal(tables: dict[str, DataFrame]) -> None:
    (row,) = [row for row in collect(tables["capacity"]) if row["minute"] == instant(120)]
    assert row["arrival_rate"] == 0
    assert row["service_s"] is None
    assert row["in_system"] == pytest.approx(0.15, abs=0.1)


def test_a_worker_has_as_many_servers_as_it_ran_requests_at_once(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker, worker = builder.broker(), builder.worker()
    for number, at in enumerate((0.0, 0.5, 0.9, 5.0, 6.0)):
        builder.call(number, at, broker=broker, worker=worker, took_s=1.0)
    attempts = silver_attempts(builder.frame(spark))
    (row,) = collect(servers(attempts, silver_heartbeats(builder.frame(spark))))
    assert (row["workers"], row["servers"]) == (1, 3)


def test_the_servers_of_a_period_can_be_computed_alone(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker, worker = builder.broker(), builder.worker()
    for number, (at, took) in enumerate(((0.0, 1.0), (0.5, 1.0), (590.0, 30.0), (605.0, 700.0))):
        builder.call(number, at, broker=broker, worker=worker, took_s=took)
    broker.add(1_250.0, "heartbeat", worker=worker.name, gap_s=0.5, busy=1, capacity=8)
    attempts = silver_attempts(builder.frame(spark)).persist()
    beats = silver_heartbeats(builder.frame(spark)).persist()
    whole = {row["minute"]: row["servers"] for row in collect(servers(attempts, beats))}
    assert {minute: whole[instant(minute)] for minute in (0, 540, 600, 1_200)} == {
        0: 2,  # two at the same time
        540: 2,  # one, but two in the same period
        600: 2,  # one that has not ended, and the next one
        1_200: 1,  # one, started long before
    }
    first, second = (period_of(instant_us(instant(at)), instant_us(instant(at))) for at in (0, 600))
    for within in ([first], [second], [first, second]):
        part = {row["minute"]: row["servers"] for row in collect(servers(attempts, beats, within))}
        chosen = [minute for minute in whole if any(instant_us(minute) in each for each in within)]
        assert part == {minute: whole[minute] for minute in chosen}


def test_a_replaced_worker_is_not_counted_twice(spark: SparkSession) -> None:
    builder = EventBuilder()
    broker = builder.broker()
    for name, at in (("w1", 0), ("w1", 20), ("w2", 21), ("w2", 50), ("w3", 40), ("w3", 45)):
        broker.add(at, "heartbeat", worker=instance(name), gap_s=0.5, busy=0, capacity=8)
    events = builder.frame(spark)
    (row,) = collect(servers(silver_attempts(events), silver_heartbeats(events)))
    assert (row["workers"], row["servers"]) == (2, 2)


def test_a_request_without_an_outcome_counts_until_its_deadline(spark: SparkSession) -> None:
    builder = EventBuilder()
    builder.broker().add(0.0, "accepted", 1, deadline=30.0)
    events = builder.frame(spark)
    rows = collect(
        gold_capacity(
            silver_requests(lives(events)),
            silver_attempts(events),
            silver_heartbeats(events),
            since=instant(0),
            until=instant(86400),
        )
    )
    (row,) = rows
    assert row["in_system"] == pytest.approx(0.5)
    assert (row["workers"], row["servers"], row["utilisation"]) == (0, 0, None)


@pytest.fixture(scope="module")
def advice(tables: dict[str, DataFrame]) -> dict[str, Any]:
    frame = gold_rightsizing(tables["capacity"], tables["requests"])
    assert frame.columns == schema_names(schemas.GOLD_RIGHTSIZING)
    (row,) = collect(frame)
    return row


def test_advice_follows_from_the_busiest_minute(advice: dict[str, Any]) -> None:
    p99_ms = 200 * 1.02
    assert advice["service"] == "echo"
    assert advice["target_utilisation"] == 0.7
    assert advice["recommended"] == ceil(1.5 / 0.7) == 3
    assert ceil(10 * 0.2) <= advice["slots"] <= ceil(10 * p99_ms / 1000)
    assert 2 * 200 + 3000 <= advice["timeout_ms"] <= 2 * p99_ms + 3000 + 10


def test_advice_gives_its_reason_in_words(advice: dict[str, Any]) -> None:
    reason = advice["reason"]
    assert "10.0 requests/s of 150 ms each kept 1.50 servers busy" in reason
    assert "Keeping 70 % of them busy" in reason
    assert "C = P × L" in reason
    assert "null" not in reason


def test_without_answers_there_is_no_advice(spark: SparkSession) -> None:
    rows = [
        {"service": "dead", "minute": instant(0), "arrival_rate": 5.0, "busy_servers": 0.0}
        | {"in_system": 3.0, "workers": 0, "servers": 0}
    ]
    capacity = rows_frame(spark, rows, schemas.GOLD_CAPACITY)
    (row,) = collect(gold_rightsizing(capacity, requests_frame(spark)))
    assert (row["recommended"], row["slots"], row["timeout_ms"]) == (None, None, None)
    assert row["reason"].startswith("No worker has answered a request")


@pytest.mark.parametrize(
    ("load", "workers", "recommended", "words"),
    [(7.0, 2, 10, "add 8"), (0.1, 5, 2, "3 could go"), (2.1, 3, 3, "keep them")],
)
def test_advice_says_what_to_change(
    spark: SparkSession, load: float, workers: int, recommended: int, words: str
) -> None:
    row = window(arrival_rate=10.0, service_s=load / 10, workers=workers, servers=workers)
    result = advise(spark, row, ("OK", 20.0))
    assert result["recommended"] == recommended
    assert words in result["reason"]


def window(**columns: Any) -> dict[str, Any]:
    busy = columns["arrival_rate"] * columns["service_s"]
    row = {"service": "echo", "minute": instant(0), "busy_servers": busy}
    return {**row, "workers": 2, "servers": 2, **columns}


def requests_frame(spark: SparkSession, *ended: tuple[str, float]) -> DataFrame:
    """Return requests with the given outcomes and durations in milliseconds."""
    rows = [{"service": "echo", "outcome": outcome, "total_ms": ms} for outcome, ms in ended]
    return rows_frame(spark, rows, schemas.SILVER_REQUESTS)


def advise(spark: SparkSession, row: dict[str, Any], *ended: tuple[str, float]) -> dict[str, Any]:
    capacity = rows_frame(spark, [row], schemas.GOLD_CAPACITY)
    (result,) = collect(gold_rightsizing(capacity, requests_frame(spark, *ended)))
    return result


def test_advice_ignores_expired_requests(spark: SparkSession) -> None:
    row = window(arrival_rate=10.0, service_s=0.02)
    result = advise(spark, row, *[("OK", 25.0)] * 50, *[("EXPIRED", 30_000.0)] * 50)
    assert result["slots"] == 1
    assert 2 * 25 + 3000 <= result["timeout_ms"] <= 2 * 25 * 1.02 + 3010
    assert re.search(r"99 % of the replies took at most 25\.", result["reason"])


def test_advice_allows_for_waiting_and_work(spark: SparkSession) -> None:
    """Most replies take 900 ms; callers with a timeout of 100 ms get only the fastest ones."""
    row = window(arrival_rate=10.0, service_s=0.9, measured_wait_ms=100.0)
    result = advise(spark, row, ("OK", 90.0), *[("EXPIRED", 100.0)] * 99)
    assert (result["slots"], result["timeout_ms"]) == (10, 5000)
    assert re.search(r"99 % of the replies took at most 9[01]\.", result["reason"])
    assert "waiting and work took 1.00 s on average, so 10.0 requests/s" in result["reason"]


def test_without_a_good_reply_there_is_no_advice_on_timeouts(spark: SparkSession) -> None:
    row = window(arrival_rate=10.0, service_s=2.0)
    result = advise(spark, row, ("EXPIRED", 100.0), ("FAILED", 1.0))
    assert (result["recommended"], result["slots"], result["timeout_ms"]) == (29, None, None)
    assert "No reply was OK" in result["reason"]
    assert "99 %" not in result["reason"]


def test_little_load_is_not_rounded_to_zero(spark: SparkSession) -> None:
    result = advise(spark, window(arrival_rate=0.02, service_s=0.005), ("OK", 5.0))
    assert "1.20 requests/min of 5.00 ms each kept less than 0.01 servers" in result["reason"]


def test_services_of_brokers_get_no_advice(spark: SparkSession) -> None:
    row = window(arrival_rate=10.0, service_s=0.02) | {"service": "mmi.service"}
    capacity = rows_frame(spark, [row], schemas.GOLD_CAPACITY)
    assert collect(gold_rightsizing(capacity, requests_frame(spark))) == []
