"""Types of Spark and JSON Schemas, without Spark: what fits, what is derived, and messages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from requite.errors import BadReply
from requite.spark.typed.decoding import Decoder
from requite.spark.typed.derived import type_of
from requite.spark.typed.encoding import Encoder
from requite.spark.typed.fitting import Definitions, returns, takes
from requite.typed.codec import JSON, MSGPACK

BOOLEAN: dict[str, Any] = {"type": "boolean"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
STRING: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
BASE64: dict[str, Any] = {"type": "string", "contentEncoding": "base64"}
BYTES: dict[str, Any] = {"contentEncoding": "binary"}
NONE = Definitions({})


def formatted(name: str) -> dict[str, Any]:
    return {"type": "string", "format": name}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def record(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, NULL]}


def struct(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


BOTH: list[tuple[DataType, dict[str, Any]]] = [
    (BooleanType(), BOOLEAN),
    (IntegerType(), INTEGER),
    (DoubleType(), NUMBER),
    (FloatType(), optional(NUMBER)),
    (DecimalType(10, 2), formatted("decimal")),
    (DecimalType(10, 2), {"anyOf": [NUMBER, STRING]}),  # of pydantic
    (StringType(), STRING),
    (StringType(), formatted("uuid")),
    (StringType(), {"enum": ["a", "b", None]}),
    (StringType(), {"const": "a"}),
    (DateType(), formatted("date")),
    (TimestampType(), formatted("date-time")),
    (TimestampNTZType(), formatted("date-time")),
    (TimestampNTZType(), STRING),  # a datetime in an older description
    (StringType(), formatted("date-time")),
    (BinaryType(), BASE64),
    (BinaryType(), BYTES),
    (ArrayType(LongType()), array(INTEGER)),
    (MapType(StringType(), LongType()), mapping(optional(INTEGER))),
    (struct(a=LongType(), b=StringType()), record("a", "b", a=INTEGER, b=optional(STRING))),
    (struct(a=struct(b=ArrayType(DateType()))), record(a=record(b=array(formatted("date"))))),
]


@pytest.mark.parametrize(("kind", "schema"), BOTH)
def test_types_that_fit_both_ways(kind: DataType, schema: dict[str, Any]) -> None:
    assert takes(kind, schema, NONE) == []
    assert returns(kind, schema, NONE, is_json=True) == []


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        (DoubleType(), INTEGER, "$ is double, not integer"),
        (LongType(), STRING, "$ is bigint, not string"),
        (StringType(), formatted("decimal"), "$ is string, not decimal"),
        (StringType(), formatted("date"), "$ is string, not date"),
        (BinaryType(), STRING, "$ is binary, not string"),
        (DecimalType(5, 1), NUMBER, "$ is decimal(5,1), not number"),
        (StringType(), NULL, "$ is string, and nothing is taken there"),
        (MapType(LongType(), LongType()), mapping(INTEGER), "$ has keys of bigint; cast them to"),
        (MapType(StringType(), LongType()), mapping(STRING), "$.* is bigint, not string"),
        (ArrayType(LongType()), array(STRING), "$[] is bigint, not string"),
        (ArrayType(LongType()), {"type": "array", "prefixItems": [INTEGER]}, "not array"),
        (struct(a=LongType()), record("a", "b", a=INTEGER, b=STRING), "$.b is missing"),
        (struct(a=LongType()), mapping(INTEGER), "$ is struct<a:bigint>, not object"),
        (struct(c=LongType()), record(a=INTEGER), "$.c is unknown; $ has a"),
    ],
)
def test_what_a_method_does_not_take(kind: DataType, schema: dict[str, Any], reason: str) -> None:
    found = takes(kind, schema, NONE)
    assert len(found) == 1
    assert reason in found[0]


def test_anything_is_taken_where_any_value_is() -> None:
    assert takes(struct(a=LongType()), {}, NONE) == []
    assert takes(StringType(), {"anyOf": [INTEGER, STRING]}, NONE) == []


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        (ShortType(), NUMBER, "$ is number, not smallint"),
        (DecimalType(5, 1), NUMBER, "$ is number, not decimal(5,1)"),
        (StringType(), INTEGER, "$ is integer, not string"),
        (StringType(), {}, "$ is any value, not string"),
        (StringType(), BASE64, "$ is base64, not string"),
        (LongType(), {"anyOf": [INTEGER, STRING]}, "$ is string, not bigint"),
        (MapType(LongType(), LongType()), mapping(INTEGER), "$ has keys of string, not bigint"),
        (ArrayType(LongType(), False), array(optional(INTEGER)), "$[] may be null"),
        (MapType(StringType(), LongType(), False), mapping(optional(INTEGER)), "$.* may be null"),
        (StructType([StructField("a", LongType(), False)]), record(a=INTEGER), "$.a may be null"),
        (struct(c=LongType()), record(a=INTEGER), "$.c is unknown; $ has a"),
    ],
)
def test_what_a_reply_cannot_be_read_as(
    kind: DataType, schema: dict[str, Any], reason: str
) -> None:
    found = returns(kind, schema, NONE, is_json=True)
    assert len(found) == 1
    assert reason in found[0]


@pytest.mark.parametrize("schema", [{}, record("a", a=INTEGER)])
def test_fields_of_one_name_are_refused(schema: dict[str, Any]) -> None:
    pair = StructType([StructField("a", LongType()), StructField("a", LongType())])
    assert takes(pair, schema, NONE) == ["$ has 2 fields named a"]
    nested = struct(b=ArrayType(MapType(StringType(), pair)))
    whole = record(b=array(mapping(schema))) if schema else schema
    assert takes(nested, whole, NONE) == ["$.b[].* has 2 fields named a"]
    if schema:
        assert returns(pair, schema, NONE, is_json=True) == ["$ has 2 fields named a"]


def test_a_time_is_text_in_json_only() -> None:
    assert returns(StringType(), formatted("date-time"), NONE, is_json=True) == []
    assert returns(StringType(), formatted("date-time"), NONE, is_json=False)


def test_types_are_derived() -> None:
    definitions = {
        "Inner": record("a", a=optional(INTEGER)),
        "Loop": array({"$ref": "#/$defs/Loop"}),
    }
    schema = record(
        inner={"$ref": "#/$defs/Inner"}, price=formatted("decimal"), days=array(formatted("date")),
        rates=mapping(NUMBER), id=formatted("uuid"), none=NULL,
    )  # fmt: skip
    assert type_of(schema, Definitions(definitions)).simpleString() == (
        "struct<inner:struct<a:bigint>,price:decimal(38,18),days:array<date>,"
        "rates:map<string,double>,id:string,none:string>"
    )
    for schema, reason in (
        ({"anyOf": [INTEGER, STRING]}, r"\$ is integer or string"),
        (record(a={}), r"\$\.a is any value"),
        ({"$ref": "#/$defs/Loop"}, "nested too deeply"),
    ):
        with pytest.raises(ValueError, match=reason):
            type_of(schema, Definitions(definitions))


# --- messages -------------------------------------------------------------------------------------
def test_values_that_json_does_not_have_are_faults() -> None:
    kind, schema = struct(a=ArrayType(DoubleType())), record("a", a=array(NUMBER))
    column = pa.array([{"a": [1.5]}, {"a": [float("nan")]}, None, {"a": [float("-inf")]}])
    bodies, faults = Encoder(kind, schema, {}, JSON).encode(column)
    assert bodies == [b'{"a":[1.5]}', None, None, None]
    assert faults == {
        1: "the body cannot be encoded: $.a[]: it is nan, which JSON does not have",
        3: "the body cannot be encoded: $.a[]: it is -inf, which JSON does not have",
    }
    bodies, faults = Encoder(kind, schema, {}, MSGPACK).encode(column)
    assert [body is None for body in bodies] == [False, False, True, False]
    assert not faults


def test_maps_within_structs_become_objects() -> None:
    kind = struct(a=ArrayType(MapType(StringType(), struct(b=LongType()))))
    schema = record("a", a=array(mapping(record(b=INTEGER))))
    arrow = pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.struct([("b", pa.int64())]))))])
    column = pa.array([{"a": [[("x", {"b": 1}), ("y", {"b": None})], None]}], arrow)
    bodies, faults = Encoder(kind, schema, {}, JSON).encode(column)
    assert (bodies, faults) == ([b'{"a":[{"x":{"b":1},"y":{}},null]}'], {})


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (DecimalType(5, 2), b'"1e2"', Decimal(100)),
        (DecimalType(5, 2), b'"123.4500"', Decimal("123.45")),
        (DecimalType(2, 2), b'"-0.99"', Decimal("-0.99")),
        (DecimalType(3, 0), b"999", Decimal(999)),
        (DecimalType(3, 2), b'"0e9"', Decimal(0)),
        (DecimalType(38, 0), b'"%b"' % (b"9" * 38), Decimal("9" * 38)),
        (DecimalType(38, 18), b'"-1.%b"' % (b"3" * 18), Decimal("-1." + "3" * 18)),
    ],
)
def test_decimals_that_fit_are_exact(kind: DecimalType, body: bytes, value: Decimal) -> None:
    schema = {"anyOf": [INTEGER, formatted("decimal")]}
    read = Decoder(kind, schema, {}, "json").decode(body, 1)
    assert (read, type(read)) == (value, Decimal)
    assert pa.array([read], pa.decimal128(kind.precision, kind.scale))[0].as_py() == value


@pytest.mark.parametrize(
    "body",
    [b'"1000"', b'"0.001"', b'"1e999999999"', b'"Infinity"', b'"x"', b"1.5", b"[]", b"", b'"1'],
)
def test_decimals_that_do_not_fit_are_refused(body: bytes) -> None:
    decoder = Decoder(DecimalType(5, 2), formatted("decimal"), {}, "json")
    with pytest.raises(BadReply, match="the reply does not fit the method"):
        decoder.decode(body, 1)


@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_method_that_returns_nothing_has_null(body: bytes) -> None:
    assert Decoder(struct(a=LongType()), NULL, {}, "json").decode(body, 1) is None


def test_an_absent_field_has_its_default_or_is_null_if_it_may_be_absent() -> None:
    schema = record(
        "a", a=INTEGER, b=INTEGER | {"default": 7}, c=INTEGER,
        d=array(formatted("decimal")) | {"default": ["1.5"]},
    )  # fmt: skip
    kind = struct(a=LongType(), b=LongType(), c=LongType(), d=ArrayType(DecimalType(3, 1)))
    decoder = Decoder(kind, schema, {}, "json")
    assert decoder.decode(b'{"a":1,"x":0}', 1) == {"a": 1, "b": 7, "c": None, "d": [Decimal("1.5")]}
    for name in ("b", "c"):
        with pytest.raises(BadReply, match=rf"\$\.{name}: .*got null"):
            decoder.decode(b'{"a":1,"%b":null}' % name.encode(), 1)
    with pytest.raises(BadReply, match=r"\$: .*missing"):
        decoder.decode(b"{}", 1)


def test_not_null_needs_one_default_that_is_not_null() -> None:
    kind = StructType([StructField("n", LongType(), False)])
    five = record(n=INTEGER | {"default": 5})
    assert returns(kind, five, NONE, is_json=True) == []
    assert Decoder(kind, five, {}, "json").decode(b"{}", 1) == {"n": 5}
    none, six = record(n=INTEGER | {"default": None}), record(n=INTEGER | {"default": 6})
    for schema in (none, {"anyOf": [five, six]}):
        assert "$.n may be null, and the type is NOT NULL" in returns(kind, schema, NONE, True)
        assert Decoder(kind, schema, {}, "json").decode(b"{}", 1) == {"n": None}
    outer = {"anyOf": [record("inner", inner=five), record("inner", inner=six)]}
    found = returns(struct(inner=kind), outer, NONE, True)
    assert "$.inner.n may be null, and the type is NOT NULL" in found


@pytest.mark.parametrize(
    ("kind", "schema", "value", "twice"),
    [
        (struct(n=LongType()), record("n", n=INTEGER), {"n": 1}, ["n", 1, "n", 2]),
        (struct(n=LongType()), record("n", n=INTEGER), {"n": 1}, ["n", 1, "x", 1, "x", 1]),
        (MapType(StringType(), LongType()), mapping(INTEGER), {"a": 1}, ["a", 1, "a", 1]),
    ],
)
def test_keys_that_come_twice_are_refused(
    kind: DataType, schema: dict[str, Any], value: dict[str, int], twice: list[Any]
) -> None:
    kind, schema = ArrayType(kind), array(schema)
    pairs = zip(map(msgspec.json.encode, twice[::2]), twice[1::2], strict=True)
    json = b"[{%b}]" % b",".join(b"%b:%d" % pair for pair in pairs)
    head = bytes([0x91, 0x80 | len(twice) // 2])
    msgpack = head + b"".join(map(msgspec.msgpack.encode, twice))
    for codec, body in ((JSON, json), (MSGPACK, msgpack)):
        decoder = Decoder(kind, schema, {}, codec.name)
        assert decoder.decode(codec.encode([value]), 1) == [value]
        with pytest.raises(BadReply, match="twice"):
            decoder.decode(body, 1)


@pytest.mark.parametrize(
    ("kind", "schema", "body"),
    [
        (FloatType(), NUMBER, b"1e39"),
        (DoubleType(), NUMBER, b"1e400"),
        (LongType(), INTEGER, b"9223372036854775808"),
        (LongType(), INTEGER, b"null"),
        (LongType(), INTEGER, b"1.5"),
        (LongType(), INTEGER, b'"1"'),
        (DateType(), formatted("date"), b'"2026-02-30"'),
        (BinaryType(), BASE64, b'"?"'),
        (MapType(StringType(), LongType()), mapping(INTEGER), b'{"a":null}'),
        (StringType(), NULL, b"1"),
        (ArrayType(StringType()), array(STRING), b"[" * 5000),
    ],
)
def test_replies_of_another_type_are_refused(
    kind: DataType, schema: dict[str, Any], body: bytes
) -> None:
    with pytest.raises(BadReply):
        Decoder(kind, schema, {}, "json").decode(body, 1)
