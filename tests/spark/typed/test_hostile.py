"""Descriptions that refer to themselves so often that nobody can read them, without Spark."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql.types import DataType, LongType, StructField, StructType

from requite.errors import RemoteViolation
from requite.spark.typed.contract import contract_of

_NULL = {"type": "null"}
_LEVELS = 60  # 2**60 ways through them


def _reference(number: int) -> dict[str, Any]:
    return {"$ref": f"#/$defs/A{number}"}


def _union(number: int) -> dict[str, Any]:
    return {"anyOf": [_reference(number + 1)] * 2}


def _object(number: int) -> dict[str, Any]:
    part = _reference(number + 1)
    return {"type": "object", "properties": {"a": part, "b": part}}


def _union_of_objects(number: int) -> dict[str, Any]:
    part = {"type": "object", "properties": {"a": _reference(number + 1)}}
    return {"anyOf": [part, part]}


def _definitions(level: Any) -> dict[str, Any]:
    schemas = {f"A{number}": level(number) for number in range(_LEVELS)}
    return schemas | {f"A{_LEVELS}": {"type": "integer"}}


def _described(level: Any, input: Any, output: Any) -> bytes:
    method = {"name": "ask", "address": "x.ask", "input": input, "output": output}
    return _description(method, _definitions(level))


def _description(method: dict[str, Any], definitions: dict[str, Any]) -> bytes:
    return msgspec.json.encode(
        {
            "requite": 1, "service": "x", "version": "1", "prefix": "x", "codec": "json",
            "methods": [method], "$defs": definitions,
        }
    )  # fmt: skip


def _nested(levels: int) -> DataType:
    kind: DataType = LongType()
    for _ in range(levels):
        kind = StructType([StructField("a", kind)])
    return kind


@pytest.mark.parametrize(
    ("level", "input", "output", "body"),
    [
        (_union, _reference(0), _NULL, LongType()),
        (_union, {}, _reference(0), LongType()),
        (_object, {}, _reference(_LEVELS - 30), LongType()),
        (_union_of_objects, _reference(0), _NULL, _nested(_LEVELS)),
        (lambda _: _reference(0), _reference(0), _NULL, LongType()),  # no end at all
    ],
)
def test_a_description_with_too_many_ways_is_none(
    level: Any, input: Any, output: Any, body: DataType
) -> None:
    description = _described(level, input, output)
    with pytest.raises(RemoteViolation, match="refer to each other too often"):
        contract_of(description, "x.ask", body, None)


def test_a_large_method_is_read() -> None:
    definitions = {
        f"A{n}": {
            "type": "object",
            "properties": {f"f{m}": {"anyOf": [{"type": "integer"}, _NULL]} for m in range(100)},
        }
        for n in range(20)
    }
    properties = {f"a{n}": _reference(n) for n in range(20)}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    kind = StructType(
        [
            StructField(f"a{n}", StructType([StructField(f"f{m}", LongType()) for m in range(100)]))
            for n in range(20)
        ]
    )
    method = {"name": "ask", "address": "x.ask", "input": schema, "output": schema}
    assert contract_of(_description(method, definitions), "x.ask", kind, None).reply == kind
