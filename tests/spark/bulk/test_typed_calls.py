"""Bulk calls of a typed service: structs in, structs out, and errors in columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.spark.bulk.shop import Order, Served, Shop
from tests.spark.bulk.test_sink import forget_last_commit

import requite
import requite.spark
from requite.errors import ConfigurationError, NoService, RemoteViolation
from requite.request import RetryPolicy
from requite.worker import Group

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

Serve = Callable[..., Served]
ORDERS = [("a", 1), ("b", 2), ("none", 1), ("broken", 1), ("c", 0), (None, 1)]
QUOTE = "price DECIMAL(10,2), note STRING"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a broker with a worker of these services."""
    started: list[Served] = []

    def start(*services: Group) -> Served:
        started.append(Served(*services))
        return started[-1]

    yield start
    for each in started:
        each.close()


def orders(spark: SparkSession, rows: list[Any] = ORDERS) -> DataFrame:
    df = spark.createDataFrame(rows, "sku string, count int").coalesce(1)
    return df.select("*", F.monotonically_increasing_id().alias("id"))


def priced(df: DataFrame, served: Served, **more: Any) -> DataFrame:
    options: dict[str, Any] = {"body": F.struct("sku", "count"), "returns": QUOTE, "key": "id"}
    return requite.spark.call(df, served.url("orders.price"), **options | more)


# --- rows in, rows out ----------------------------------------------------------------------------
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_structs_in_and_out_and_errors_in_columns(
    spark: SparkSession, serve: Serve, codec: str
) -> None:
    shop = Shop(codec=codec)
    answered = priced(orders(spark), serve(shop.service))
    assert answered.schema["reply"].dataType.simpleString() == (
        "struct<price:decimal(10,2),note:string>"
    )
    rows, null = answered.collect(), "null" if codec == "json" else "None"
    assert [row.reply for row in rows] == [
        Row(price=Decimal("0.25"), note="piece"), Row(price=Decimal("0.50"), note=None), *[None] * 4
    ]  # fmt: skip
    assert [(row.status, row.error, row.may_have_executed) for row in rows] == [
        ("OK", None, True),
        ("OK", None, True),
        ("OutOfStock", "OutOfStock(sku='none', left=3)", True),
        ("RemoteFailure", "ValueError: no such account", True),
        ("BadRequest", "$.count: expected int >= 1", False),
        ("BadRequest", f"$.sku: expected str, got {null}", False),
    ]
    assert [row.error_data and json.loads(row.error_data) for row in rows] == [
        None,
        None,
        {"sku": "none", "left": 3},
        None,
        {"path": "$.count", "reason": "expected int >= 1"},
        {"path": "$.sku", "reason": f"expected str, got {null}"},
    ]
    assert shop.seen.total() == 4, "the others did not reach the handler"


WHOLE = (
    "flag boolean, small tinyint, large bigint, ratio double, price decimal(20,4), text string,"
    " day date, at timestamp, local timestamp_ntz, raw binary, tags array<string>,"
    " rates map<string,double>, inner struct<a:int,b:string>, many array<struct<a:int,b:string>>,"
    " nothing string"
)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_values_of_every_type_return_unchanged(
    spark: SparkSession, serve: Serve, codec: str
) -> None:
    first: dict[str, Any] = {
        "flag": True, "small": -128, "large": 2**63 - 1, "ratio": 0.1,
        "price": Decimal("1234567890123456.7891"), "text": "naïve \x00 \U0001f600",
        "day": date(1, 1, 1), "at": datetime(2026, 3, 29, 1, 30, 0, 123456, UTC),
        "local": datetime(2026, 3, 29, 2, 30), "raw": bytearray(b"\x00\xff"), "tags": ["a", None],
        "rates": {"x": 1.5}, "inner": Row(a=1, b=None), "many": [Row(a=2, b="c")], "nothing": None,
    }  # fmt: skip
    empty = first | {"price": Decimal("0.0000"), "tags": [], "rates": {}, "many": [], "text": ""}
    df = spark.createDataFrame([Row(**first), Row(**empty)], WHOLE)
    served = serve(Shop(codec=codec).service)
    body = F.struct(*df.columns)
    answered = requite.spark.call(
        df, served.url("orders.whole"), body=body, returns=WHOLE, key="text"
    )
    rows = answered.collect()
    assert [row.error for row in rows] == [None, None]
    assert [row.reply for row in rows] == df.collect()


def test_bodies_and_replies_need_not_be_structs(spark: SparkSession, serve: Serve) -> None:
    served = serve(Shop().service)
    df = spark.createDataFrame([(1, ["a", "b"], b"ab")], "id int, words array<string>, raw binary")

    def reply(method: str, body: str, returns: str) -> Any:
        url = served.url(f"orders.{method}")
        [row] = requite.spark.call(df, url, body=body, returns=returns, key="id").collect()
        assert row.status == "OK"
        return row.reply

    assert reply("length", "words", "SMALLINT") == 2
    assert reply("reverse", "raw", "BINARY") == b"ba"


def test_the_type_of_replies_is_derived_and_nothing_is_a_null(
    spark: SparkSession, serve: Serve
) -> None:
    served, df = serve(Shop().service), orders(spark, [("a", 3)])
    [row] = priced(df, served, returns=None).collect()
    assert row.reply == Row(price=Decimal("0.75"), note="piece")
    url = served.url("orders.ping")
    [row] = requite.spark.call(df, url, body=F.struct("sku", "count"), key="id").collect()
    assert (row.status, row.reply) == ("OK", None)


def test_a_null_is_left_out_where_the_method_has_a_default(
    spark: SparkSession, serve: Serve
) -> None:
    df = orders(spark, [("a", 1), ("b", 1)])
    unit = F.when(F.col("sku") == "b", "box").alias("unit")
    rows = priced(df, serve(Shop().service), body=F.struct("sku", "count", unit)).collect()
    assert [row.reply.note for row in rows] == ["piece", "box"]


def test_replies_that_do_not_fit_are_bad_replies(spark: SparkSession, serve: Serve) -> None:
    texts = [
        '{"n": 127, "price": "12.5"}',
        '{"n": 1, "price": "0.250", "at": "2026-03-01T00:00:00+02:00", "scale": 1}',
        '{"n": 128, "price": "1"}',
        '{"n": 1, "price": "0.255"}',
        '{"n": 1, "price": "1000"}',
        '{"n": 1, "price": "NaN"}',
        '{"n": 1, "price": "1", "at": "2026-03-01T00:00:00"}',
    ]
    df = spark.createDataFrame([(text,) for text in texts], "text string").coalesce(1)
    returns = "n TINYINT, price DECIMAL(5,2), at TIMESTAMP, scale INT"
    url = serve(Shop().service).url("orders.numbers")
    rows = requite.spark.call(df, url, body="text", returns=returns, key="text").collect()
    at = datetime(2026, 2, 28, 22, tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert [row.reply for row in rows[:2]] == [
        Row(n=127, price=Decimal("12.50"), at=None, scale=7),
        Row(n=1, price=Decimal("0.25"), at=at, scale=1),
    ]
    assert {(row.status, row.reply, row.may_have_executed) for row in rows[2:]} == {
        ("BadReply", None, True)
    }
    reasons = [json.loads(row.error_data) for row in rows[2:]]
    assert [(each["path"], each["reason"]) for each in reasons] == [
        ("$.n", "expected int <= 127"),
        ("$.price", "0.255 does not fit DECIMAL(5,2) exactly"),
        ("$.price", "1000 does not fit DECIMAL(5,2) exactly"),
        ("$.price", "NaN does not fit DECIMAL(5,2) exactly"),
        ("$.at", "expected datetime with a timezone component"),
    ]


def test_a_declared_error_can_be_retried(spark: SparkSession, serve: Serve) -> None:
    shop = Shop()
    retry = RetryPolicy(attempts=3, backoff=0.01)
    rows = priced(
        orders(spark), serve(shop.service), retry_on=["OutOfStock"], retry=retry
    ).collect()
    assert [row.attempts for row in rows] == [1, 1, 3, 1, 1, 1]
    assert sorted(shop.seen.values()) == [1, 1, 1, 3]


# --- refused before anything is sent --------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body": "struct(sku, count AS cuont)"}, r"\$\.cuont is unknown; \$ has"),
        ({"body": "struct(sku)"}, r"the body does not fit orders\.price: \$\.count is missing"),
        ({"body": "struct(count, 1 AS sku)"}, r"\$\.sku is int, not string"),
        ({"body": "sku"}, r"\$ is string, not object"),
        ({"returns": "price DECIMAL(10,2), notes STRING"}, r"\$\.notes is unknown; \$ has price"),
        ({"returns": "price DOUBLE"}, r"orders\.price does not return .*decimal, not double"),
        ({"returns": "price DECIMAL(10,2), note STRING NOT NULL"}, r"\$\.note may be null"),
        ({"returns": "price DECIMAL("}, "is not a type in DDL"),
        ({"returns": "STRING"}, r"\$ is object, not string"),
        ({"service": "orders.prices"}, r"no method orders\.prices; the methods are orders\.price,"),
        ({"service": "orders.watch"}, "has partial replies, which bulk calls do not carry"),
        ({"service": "orders"}, "a method of a typed service, SERVICE.METHOD"),
        ({"retry_on": "Closed"}, "retry_on cannot contain Closed; .*WorkerLost, OutOfStock"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    spark: SparkSession, serve: Serve, change: dict[str, Any], message: str
) -> None:
    shop = Shop()
    if change.get("body", "").startswith("struct"):
        change = {"body": F.expr(change["body"])}
    with pytest.raises(ConfigurationError, match=message):
        priced(orders(spark), serve(shop.service), **change)
    assert not shop.seen


def test_a_clash_with_the_column_of_data_is_refused(spark: SparkSession, serve: Serve) -> None:
    df = orders(spark).withColumn("error_data", F.lit(1))
    with pytest.raises(ConfigurationError, match="already has columns named error_data"):
        priced(df, serve(Shop().service))


def test_a_service_without_a_worker_is_an_error_at_once(spark: SparkSession, serve: Serve) -> None:
    with pytest.raises(NoService, match=r"the description of orders\.price cannot be read: .*no "):
        priced(orders(spark), serve())


def test_a_pool_carries_no_typed_calls(spark: SparkSession) -> None:
    url = "mdp://127.0.0.1:1?pool=a&key=b"
    with pytest.raises(ConfigurationError, match="require service names and negative replies"):
        requite.spark.call(orders(spark), url, body=F.struct("sku", "count"), key="id")


def described(shop: Shop, **changes: Any) -> bytes:
    return msgspec.json.encode(shop.service.describe() | changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "is not a description of a typed service"),
        ({"requite": 99}, "its format is 99"),
        ({"codec": "xml"}, "a codec is 'json' or 'msgpack', not 'xml'"),
        ({"$defs": {"Order": {"type": "object", "properties": 5}}}, "schemas that cannot be read"),
        ({"$defs": {"Order": {"anyOf": [{"$ref": "#/$defs/Order"}]}}}, "schemas that cannot be"),
    ],
)
def test_a_foreign_description_is_refused(
    spark: SparkSession, serve: Serve, change: dict[str, Any] | None, message: str
) -> None:
    answer = b"what?" if change is None else described(Shop(), **change)

    @requite.service("orders.describe")
    async def describe(request: requite.Request) -> bytes:
        return answer

    with pytest.raises(RemoteViolation, match=message):
        priced(orders(spark), serve(describe))


# --- a service that changes after the check -------------------------------------------------------
def test_a_compatible_change_is_followed(spark: SparkSession, serve: Serve) -> None:
    served = serve(Shop(codec="json").service)
    answered = priced(orders(spark, [("a", 1)]), served)
    served.serve(Shop(codec="msgpack").service)
    [row] = answered.collect()
    assert row.reply == Row(price=Decimal("0.25"), note="piece")


def test_an_incompatible_change_sends_nothing(spark: SparkSession, serve: Serve) -> None:
    served = serve(Shop().service)
    answered = priced(orders(spark), served)
    changed, seen = requite.Service("orders"), []

    @changed.method
    async def price(order: Order) -> str:
        seen.append(order)
        return "a lot"

    served.serve(changed)
    rows = answered.collect()
    assert {(row.status, row.attempts, row.may_have_executed) for row in rows} == {
        ("ConfigurationError", 0, False)
    }
    assert rows[0].error == (
        "not sent: orders.price has changed since the job was planned: orders.price does not return"
        " struct<price:decimal(10,2),note:string>: $ is string,"
        " not struct<price:decimal(10,2),note:string>"
    )
    assert len({row.idempotency_key for row in rows}) == len(ORDERS)
    assert not seen


@pytest.mark.parametrize("give_up", [True, False])
def test_a_service_that_is_gone_loses_no_row(
    spark: SparkSession, serve: Serve, give_up: bool
) -> None:
    served = serve(Shop().service)
    answered = priced(orders(spark), served, give_up=give_up)
    served.serve()
    rows = answered.collect()
    assert [(row.status, row.may_have_executed) for row in rows] == [("NoService", False)] * 6
    assert {row.error.startswith("not sent: the description of") for row in rows} == {give_up}


# --- SQL ------------------------------------------------------------------------------------------
KEY = "key => 'id', job => 'sql',"


@pytest.fixture
def sql(spark: SparkSession, serve: Serve) -> Iterator[Callable[..., DataFrame]]:
    """Run a query in which {call} stands for the table function, called with its usual arguments
    and these."""
    served = serve(Shop().service)
    requite.spark.register(spark)
    orders(spark).createOrReplaceTempView("orders")

    def run(query: str, more: str = "", method: str = "price") -> DataFrame:
        call = f"""requite_call(
            TABLE(SELECT id, struct(sku, count) AS body FROM orders), body => 'body',
            url => '{served.url(f"orders.{method}")}', {more or KEY}
            timeout => 20.0)"""
        return spark.sql(query.format(call=call))

    yield run
    spark.catalog.dropTempView("orders")


def test_a_table_function_calls_a_service(sql: Callable[..., DataFrame]) -> None:
    returns = f"{KEY} returns => CAST(NULL AS STRUCT<price: DECIMAL(10, 2), note: STRING>),"
    query = "SELECT id, reply.price, reply.note, status, error_data FROM {call} ORDER BY id"
    rows = sql(query, returns).collect()
    assert [(row.price, row.note, row.status) for row in rows] == [
        (Decimal("0.25"), "piece", "OK"), (Decimal("0.50"), None, "OK"), (None, None, "OutOfStock"),
        (None, None, "RemoteFailure"), (None, None, "BadRequest"), (None, None, "BadRequest"),
    ]  # fmt: skip
    assert json.loads(rows[2].error_data) == {"sku": "none", "left": 3}
    derived = sql("SELECT first(reply.price) AS price FROM {call} WHERE id = 0").collect()
    assert derived[0].price == Decimal("0.25")


def test_the_ids_of_a_table_function_are_those_of_a_call(
    sql: Callable[..., DataFrame], spark: SparkSession, serve: Serve
) -> None:
    rows = sql("SELECT idempotency_key AS one FROM {call}").collect()
    called = priced(orders(spark), serve(Shop().service), job="sql").collect()
    assert sorted(row.one for row in rows) == sorted(row.idempotency_key for row in called)


@pytest.mark.parametrize(
    ("more", "method", "message"),
    [
        (KEY + "returns => CAST(NULL AS STRUCT<price: INT>),", "price", "decimal, not int"),
        ("", "prices", "there is no method orders.prices"),
        (
            KEY + "repliesTo => 'x',",
            "price",
            "unknown option repliesto; the options of requite_call are",
        ),
        (KEY + "window => rand(),", "price", "window of requite_call must be a constant"),
        ("keyByPosition => true,", "price", "requite_call requires a key"),
    ],
)
def test_a_table_function_refuses_what_a_call_refuses(
    sql: Callable[..., DataFrame], more: str, method: str, message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        sql("SELECT * FROM {call}", more, method)


# --- streams --------------------------------------------------------------------------------------
def test_a_restarted_stream_repeats_no_effect(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    shop, inbox, out = Shop(), tmp_path / "inbox", str(tmp_path / "out")
    served = serve(shop.service)
    inbox.mkdir()

    def put(name: str, *skus: str) -> None:
        lines = (json.dumps({"sku": sku, "count": 1}) + "\n" for sku in skus)
        (inbox / f"{name}.json").write_text("".join(lines))

    def ship(batch: DataFrame, number: int) -> None:
        shipped = requite.spark.call(
            batch,
            served.url("orders.ship"),
            body=F.struct("sku", "count"),
            returns="BIGINT",
            key="sku",
            job="ship",
        )
        shipped.write.mode("overwrite").parquet(f"{out}/batch={number}")

    def run() -> None:
        read = spark.readStream.schema("sku string, count int").option("maxFilesPerTrigger", 1)
        stream = read.json(str(inbox)).writeStream.option("checkpointLocation", tmp_path / "ckpt")
        stream.foreachBatch(ship).trigger(availableNow=True).start().awaitTermination()

    put("a", "apple", "pear")
    put("b", "plum")
    run()
    assert forget_last_commit(inbox) == 1
    put("c", "fig")
    run()
    rows = spark.read.parquet(out).collect()
    assert sorted((row.sku, row.status, row.reply) for row in rows) == [
        (sku, "OK", 1) for sku in ("apple", "fig", "pear", "plum")
    ]
    assert set(shop.effects.values()) == {1}


def test_a_struct_is_a_body_of_the_sink(spark: SparkSession, serve: Serve, tmp_path: Path) -> None:
    df = orders(spark).select("id", F.struct("sku", "count").alias("body"))
    options = {
        "url": serve(Shop().service).url("orders.price"), "body": "body", "key": "id",
        "repliesTo": str(tmp_path / "replies"),
    }  # fmt: skip
    requite.spark.register(spark)
    df.write.format("requite").options(**options).mode("append").save()
    rows = spark.read.parquet(options["repliesTo"]).orderBy("id").collect()
    assert [row.status for row in rows[:3]] == ["OK", "OK", "OutOfStock"]
    assert rows[0].reply == Row(price=Decimal("0.25"), note="piece")
