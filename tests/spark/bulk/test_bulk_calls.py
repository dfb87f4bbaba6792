"""Bulk calls from a DataFrame: each row is sent as a request, and returned with its reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from tests.spark.bulk.services import Recorded
from tests.support.live import InBackground, Live, LiveBroker, MakeBroker, eventually

import requite
import requite.spark
from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.spark.bulk.plan import COLUMNS

# The first test of a run starts Spark, which may take a minute on a busy machine.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

UNREACHABLE = "mdp://127.0.0.1:1/echo"


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    body = F.col("id").cast("string").alias("body")
    return spark.range(count, numPartitions=partitions).select("id", body)


def ids(rows: list[Row]) -> set[UUID]:
    return {UUID(row.idempotency_key) for row in rows}


# --- rows in, rows out ----------------------------------------------------------------------------
def test_each_row_is_a_request_and_keeps_its_columns(
    spark: SparkSession, recorded: Recorded
) -> None:
    df = numbers(spark, 1500)
    rows = requite.spark.call(df, recorded.url(), body="body", key="id", window=100).collect()
    assert [row.id for row in rows] == list(range(1500))
    assert all(row.reply == row.body.encode() for row in rows)
    assert {(row.status, row.attempts, row.may_have_executed, row.error) for row in rows} == {
        ("OK", 1, True, None)
    }
    assert all(0 < row.elapsed_ms < 60_000 for row in rows)
    assert set(recorded.bodies) == {b"%d" % n for n in range(1500)}
    assert recorded.keys == dict.fromkeys(ids(rows), 1)
    assert len(recorded.keys) == 1500


def test_columns_of_every_kind_pass_unchanged(spark: SparkSession, recorded: Recorded) -> None:
    values = Row(
        number=7,
        price=Decimal("12.34"),
        day=date(2026, 3, 1),
        at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        tags=["a", None],
        rates={"x": 1.5},
        inner=Row(a=1, b="two"),
        raw=bytearray(b"\x00\xff"),
        nothing=None,
    )
    ddl = (
        "number int, price decimal(10,2), day date, at timestamp, tags array<string>,"
        " rates map<string,double>, inner struct<a:bigint,b:string>, raw binary, nothing string"
    )
    df = spark.createDataFrame([values], ddl)
    answered = requite.spark.call(df, recorded.url(), body="raw", key="number")
    assert answered.columns == [*df.columns, *COLUMNS]
    assert answered.select(df.columns).schema == df.schema
    assert answered.select(df.columns).collect() == df.collect()
    assert answered.collect()[0].reply == b"\x00\xff"


def test_body_and_key_can_be_expressions(spark: SparkSession, recorded: Recorded) -> None:
    df = spark.range(3)
    body, key = F.to_json(F.struct("id")), F.concat(F.lit("row-"), "id")
    answered = requite.spark.call(df, recorded.url(), body=body, key=key)
    assert answered.columns == ["id", *COLUMNS]
    assert {row.id: bytes(row.reply) for row in answered.collect()} == {
        n: b'{"id":%d}' % n for n in range(3)
    }


def test_arrays_are_sent_as_frames(spark: SparkSession, recorded: Recorded) -> None:
    df = spark.createDataFrame([(1, [b"a", b"", b"bc"]), (2, [])], "id int, body array<binary>")
    rows = requite.spark.call(df, recorded.url(), body="body", key="id").collect()
    assert [bytes(row.reply) for row in rows] == [b"abc", b""]


def test_replies_may_be_larger_than_an_arrow_batch(spark: SparkSession, recorded: Recorded) -> None:
    size = 30 << 20
    df = spark.range(3, numPartitions=1).select("id", F.lit(str(size)).alias("body"))
    answered = requite.spark.call(df, recorded.url("large"), body="body", key="id")
    assert [row.n for row in answered.select(F.length("reply").alias("n")).collect()] == [size] * 3


def test_call_to_sends_once_and_its_result_can_be_read_repeatedly(
    spark: SparkSession, recorded: Recorded, tmp_path: Path
) -> None:
    df = numbers(spark, 50)
    options: dict[str, Any] = {"body": "body", "key": "id", "rate": 1000}
    with requite.spark.Progress(out=StringIO()) as progress:
        options["progress"] = progress
        written = requite.spark.call_to(df, str(tmp_path / "replies"), recorded.url(), **options)
        assert progress.count() == ({"OK": 50}, 0, 2)
    assert (written.count(), written.filter("status = 'OK'").count()) == (50, 50)
    assert set(recorded.keys.values()) == {1}


def test_metrics_are_observed(spark: SparkSession, recorded: Recorded) -> None:
    df = spark.createDataFrame([(1, "one"), (2, None), (3, "three")], "id int, body string")
    for name, expected in (("echo", (3, 2, 0, 1, 0)), ("fail", (3, 0, 2, 1, 2))):
        seen = Observation()
        options: dict[str, Any] = {"body": "body", "key": "id", "observation": seen}
        requite.spark.call(df, recorded.url(name), **options).collect()
        got = seen.get
        counts = (got["rows"], got["ok"], got["failed"], got["bad"], got["may_have_executed"])
        assert counts == expected
        assert 0 < got["mean_ms"] <= got["slowest_ms"]
        assert (got["reply_bytes"] or 0, got["retries"]) == (8 if name == "echo" else 0, 0)


# --- errors are in columns ------------------------------------------------------------------------
def test_the_failure_of_a_handler_is_a_status(spark: SparkSession, recorded: Recorded) -> None:
    rows = requite.spark.call(
        numbers(spark, 3), recorded.url("fail"), body="body", key="id"
    ).collect()
    assert {(row.status, row.reply, row.attempts, row.may_have_executed) for row in rows} == {
        ("RemoteFailure", None, 1, True)
    }
    assert [row.error for row in rows] == [f"it cannot be {n}" for n in range(3)]


def test_rows_that_cannot_be_sent_have_the_status_bad_row(
    spark: SparkSession, recorded: Recorded
) -> None:
    data = [("a", b"good"), ("b", None), (None, b"no key"), ("c", b"x" * 101), ("d", b"x" * 100)]
    df = spark.createDataFrame(data, "key string, body binary").coalesce(1)
    options: dict[str, Any] = {"body": "body", "key": "key", "message_size_max": 100}
    rows = requite.spark.call(df, recorded.url(), **options).collect()
    assert [(row.status, row.error) for row in rows] == [
        ("OK", None),
        ("BadRow", "the body is null"),
        ("BadRow", "the key is null"),
        ("BadRow", "the body has 101 bytes; message_size_max is 100"),
        ("OK", None),
    ]
    assert [row.may_have_executed for row in rows] == [True, False, False, False, True]
    assert [row.attempts for row in rows] == [1, 0, 0, 0, 1]
    assert [row.idempotency_key is None for row in rows] == [False, False, True, False, False]
    assert recorded.bodies == {b"good": 1, b"x" * 100: 1}


def test_frames_that_cannot_be_sent_have_the_status_bad_row(
    spark: SparkSession, recorded: Recorded
) -> None:
    data = [(1, [b"a", None]), (2, [b""] * 1025), (3, None), (4, [b"fine"])]
    df = spark.createDataFrame(data, "id int, body array<binary>").coalesce(1)
    rows = requite.spark.call(df, recorded.url(), body="body", key="id").collect()
    assert [row.status for row in rows] == ["BadRow"] * 3 + ["OK"]
    assert [row.error and row.error[:30] for row in rows] == [
        "a frame of the body is null", "the body has 1025 frames; the ", "the body is null", None,
    ]  # fmt: skip


def test_rows_with_equal_keys_are_one_request(spark: SparkSession, recorded: Recorded) -> None:
    data = [(7, "same"), (8, "other"), (7, "same"), (7, "different"), (8, None)]
    df = spark.createDataFrame(data, "id int, body string").coalesce(1)
    # With a window of one row, the first of two equal rows is returned long before the second.
    rows = requite.spark.call(df, recorded.url(), body="body", key="id", window=1).collect()
    assert [row.status for row in rows] == ["OK", "OK", "OK", "BadRow", "BadRow"]
    assert [row.reply for row in rows[:3]] == [b"same", b"other", b"same"]
    assert rows[3].error == "another row has the same key, and a different body"
    assert recorded.bodies == {b"same": 1, b"other": 1}
    assert len(ids(rows)) == 2


def test_a_service_without_workers_is_the_status_no_service(
    spark: SparkSession, make_broker: MakeBroker
) -> None:
    broker = make_broker(policy=BrokerPolicy(service_grace_s=0.1))
    rows = requite.spark.call(
        numbers(spark, 20), f"{broker.url}/absent", body="body", key="id", timeout=20
    ).collect()
    assert {(row.status, row.may_have_executed) for row in rows} == {("NoService", False)}
    assert all("absent" in row.error for row in rows)


def test_without_give_up_every_row_waits_for_its_timeout(spark: SparkSession) -> None:
    df = numbers(spark, 60, partitions=1)
    options: dict[str, Any] = {"body": "body", "key": "id", "window": 20, "give_up": False}
    rows = requite.spark.call(df, UNREACHABLE, timeout=0.2, **options).collect()
    assert min(row.elapsed_ms for row in rows) >= 200


def test_a_broker_that_stops_during_a_job_does_not_fail_it(
    spark: SparkSession, recorded: Recorded
) -> None:
    def stop_broker() -> None:
        eventually(lambda: len(recorded.bodies) >= 20, "some requests are answered")
        recorded.close()

    answered = requite.spark.call(
        numbers(spark, 400, 1), recorded.url("nap"), body="body", key="id", timeout=2, window=8
    )
    begin = monotonic()
    with InBackground(stop_broker):
        rows = answered.collect()
    assert monotonic() - begin < 60
    assert [row.id for row in rows] == list(range(400))
    statuses = Counter(row.status for row in rows)
    assert statuses.keys() == {"OK", "CallTimeout"}
    assert 12 <= statuses["OK"] <= len(recorded.bodies)
    undecided = [row for row in rows if row.status != "OK" and row.may_have_executed]
    assert len(undecided) <= 8, "only requests in flight may have run"


def test_a_service_that_is_started_late_gets_the_rows(
    spark: SparkSession, make_broker: MakeBroker, workers: list[Any]
) -> None:
    broker: LiveBroker = make_broker(policy=BrokerPolicy(service_grace_s=0.05))
    url = f"{broker.url}/late"
    df = numbers(spark, 10)
    assert {row.status for row in requite.spark.call(df, url, body="body", key="id").collect()} == {
        "NoService"
    }

    @requite.service("late")
    async def late(request: requite.Request) -> bytes:
        return b"at last"

    workers.append(Live(requite.Worker(broker.url, late)))
    broker.await_workers("late", 1)
    rows = requite.spark.call(df, url, body="body", key="id").collect()
    assert {bytes(row.reply) for row in rows} == {b"at last"}


def test_all_tasks_wait_one_timeout_for_a_service_that_is_down(
    spark: SparkSession, make_broker: MakeBroker
) -> None:
    """Each Python worker waits once; all but the requests of one window in each are not sent."""
    df, tasks = numbers(spark, 20_000, partitions=16), 16
    # The timeout is less than the broker's grace.
    options: dict[str, Any] = {"body": "body", "key": "id", "timeout": 2.0}
    broker = make_broker()
    rows = (
        requite.spark.call(df, f"{broker.url}/absent", **options)
        .select("status", "attempts", "elapsed_ms", "may_have_executed", "error")
        .collect()
    )
    clients = broker.stats()["clients"]
    python_workers = (clients if isinstance(clients, int) else len(clients)) - 1  # the observer
    assert 1 <= python_workers < tasks / 2
    assert {row.status for row in rows} == {"CallTimeout"}
    unsent = [row for row in rows if not row.elapsed_ms]
    assert len(rows) - len(unsent) <= 256 * python_workers
    assert {(row.attempts, row.may_have_executed, row.error[:8]) for row in unsent} == {
        (0, False, "not sent")
    }


def test_a_cancelled_job_sends_nothing_more(spark: SparkSession, recorded: Recorded) -> None:
    """Spark alone kills a Python worker two seconds after the cancellation at the earliest."""
    df, url = numbers(spark, 100_000, 2), recorded.url("nap")
    answered = requite.spark.call(df, url, body="body", key="id", window=4)

    def write() -> None:
        with pytest.raises((PySparkException, Py4JJavaError), match="SPARK_JOB_CANCELLED"):
            answered.write.format("noop").mode("overwrite").save()

    def cancel() -> float:
        seen = recorded.keys.total()
        with InBackground(write):
            eventually(lambda: recorded.keys.total() > seen + 40, "it is under way", within_s=60)
            spark.interruptAll()
            cancelled_at = monotonic()
        eventually(lambda: monotonic() > recorded.last_at + 2.5, "it is over", within_s=30)
        return recorded.last_at - cancelled_at

    # On a busy machine the JVM may learn of the cancellation late, so one of three suffices.
    assert any(cancel() < 1.5 for _ in range(3))


# --- requests in flight ---------------------------------------------------------------------------
def test_a_window_limits_the_requests_in_flight_of_a_task(
    spark: SparkSession, recorded: Recorded
) -> None:
    df = numbers(spark, 40, partitions=1)
    requite.spark.call(df, recorded.url("nap"), body="body", key="id", window=5).collect()
    assert 2 <= recorded.most <= 5


def test_in_flight_max_holds_across_all_tasks(spark: SparkSession, recorded: Recorded) -> None:
    options: dict[str, Any] = {"body": "body", "key": "id", "in_flight_max": 7}
    requite.spark.call(numbers(spark, 60, 4), recorded.url("nap"), **options).collect()
    assert 2 <= recorded.most <= 7


def test_tasks_share_the_client_of_their_process(spark: SparkSession, recorded: Recorded) -> None:
    for _ in range(2):
        requite.spark.call(numbers(spark, 64, 8), recorded.url(), body="body", key="id").collect()
    clients = recorded.broker.stats()["clients"]
    count = clients if isinstance(clients, int) else len(clients)
    assert count <= 3, "two tasks at a time, one observer"


# --- ids ------------------------------------------------------------------------------------------
def test_two_actions_send_the_same_ids(spark: SparkSession, recorded: Recorded) -> None:
    answered = requite.spark.call(numbers(spark, 100), recorded.url(), body="body", key="id")
    first, second = answered.collect(), answered.collect()
    assert len(first) == len(second) == 100
    assert ids(first) == ids(second) == recorded.keys.keys()
    assert set(recorded.keys.values()) == {2}


def test_ids_belong_to_the_job(spark: SparkSession, recorded: Recorded) -> None:
    def seen(job: str | UUID | None) -> set[UUID]:
        df = numbers(spark, 5)
        return ids(requite.spark.call(df, recorded.url(), body="body", key="id", job=job).collect())

    assert seen("march") == seen("march")
    groups = [seen("march"), seen("april"), seen(None), seen(None), seen(UUID(int=5))]
    assert len(set.union(*groups)) == 25


def test_the_type_of_the_key_does_not_change_ids(spark: SparkSession, recorded: Recorded) -> None:
    def seen(kind: str) -> set[UUID]:
        df = spark.range(5).select(F.col("id").cast("string").cast(kind).alias("k"))
        options: dict[str, Any] = {"body": F.lit(b"x"), "key": "k", "job": "kinds"}
        return ids(requite.spark.call(df, recorded.url(), **options).collect())

    assert seen("int") == seen("bigint") == seen("string") == seen("binary")


def test_rows_by_position_are_stable_while_partitions_are(
    spark: SparkSession, recorded: Recorded
) -> None:
    df = numbers(spark, 30, 3)
    options: dict[str, Any] = {"body": "body", "key_by_position": True, "window": 4}
    answered = requite.spark.call(df, recorded.url(), **options)
    assert ids(answered.collect()) == ids(answered.collect()) == recorded.keys.keys()
    assert len(recorded.keys) == 30


# --- refused arguments ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": None}, "name the column that identifies a row"),
        ({"key_by_position": True}, "either key or key_by_position, not both"),
        ({"key": "nope"}, "no column 'nope' for the key; the columns are id, body, half"),
        ({"key": "half"}, "key column 'half' has the type double"),
        ({"body": "id"}, "body column 'id' has the type bigint"),
        ({"url": "mdp://127.0.0.1:1"}, "the service of the call is missing"),
        ({"url": "http://127.0.0.1"}, "the scheme must be one of"),
        ({"url": "mdp://127.0.0.1:1/echo?dialect=0.2"}, "does not carry idempotency keys"),
        ({"timeout": 0}, "a timeout must be positive"),
        ({"timeout": None}, "bulk calls require a timeout"),
        ({"window": 0}, "window must be an integer of at least 1"),
        ({"window": "7"}, "window must be an integer of at least 1, not '7'"),
        ({"in_flight_max": 8, "task_slots": 0}, "task_slots must be an integer of at least 1"),
        ({"in_flight_max": 8, "task_slots": -1}, "task_slots must be an integer of at least 1"),
        ({"in_flight_max": 0}, "in_flight_max must be an integer of at least 1"),
        ({"in_flight_max": 1}, "less than one request for each of the 2 tasks"),
        ({"rate": 0}, "rate must be a positive number of requests per second, not 0"),
        ({"retry_on": ["Poisoned"]}, "retry_on cannot contain Poisoned; it may contain CallTim"),
        ({"retries": 3}, "unknown setting retries; the settings are retry, heartbeat"),
        ({"message_size_max": 0}, "message_size_max must be at least 1"),
    ],
)
def test_invalid_arguments_are_refused(
    spark: SparkSession, change: dict[str, Any], message: str
) -> None:
    options = {"url": UNREACHABLE, "body": "body", "key": "id"} | change
    df = numbers(spark, 1).withColumn("half", F.col("id") / 2)
    with pytest.raises(ConfigurationError, match=message):
        requite.spark.call(df, **options)


def test_other_kinds_of_data_frames_are_refused_with_a_remedy() -> None:
    pandas = pytest.importorskip("pandas")

    class OnSpark:  # stands for pyspark.pandas, whose import takes seconds
        def to_spark(self) -> None: ...

    for df, remedy in ((OnSpark(), r"df\.to_spark\("), (pandas.DataFrame(), "createDataFrame")):
        given: Any = df
        with pytest.raises(ConfigurationError, match=f"require a Spark DataFrame.*{remedy}"):
            requite.spark.call(given, UNREACHABLE, body="body", key="id")


def test_clashing_column_names_need_a_prefix(spark: SparkSession, recorded: Recorded) -> None:
    df = numbers(spark, 1).withColumn("STATUS", F.lit("new"))
    with pytest.raises(ConfigurationError, match="already has columns named status: pass a prefix"):
        requite.spark.call(df, recorded.url(), body="body", key="id")
    [row] = requite.spark.call(df, recorded.url(), body="body", key="id", prefix="rq_").collect()
    assert (row.STATUS, row.rq_status, row.rq_reply) == ("new", "OK", b"0")


def test_duplicate_column_names_are_refused(spark: SparkSession) -> None:
    df = numbers(spark, 1).select("*", "id")
    with pytest.raises(ConfigurationError, match="several columns named id"):
        requite.spark.call(df, UNREACHABLE, body="body", key="id")


def test_a_chain_of_calls(spark: SparkSession, recorded: Recorded) -> None:
    first: Callable[..., DataFrame] = requite.spark.call
    df = first(numbers(spark, 5), recorded.url(), body="body", key="id", prefix="a_")
    rows = first(df, recorded.url(), body="a_reply", key="id", prefix="b_").collect()
    assert [row.b_reply for row in rows] == [b"%d" % n for n in range(5)]
