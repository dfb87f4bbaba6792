"""Encode a column of Arrow as the messages of a typed method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampType,
)

from requite.spark.typed.fitting import Alternatives, Definitions, takes
from requite.typed.codec import FLAWS, Codec, flaw_of
from requite.typed.described import Schema

Convert = Callable[[Any], Any]


class Encoder:
    """Encodes values of a type of Spark that fits the method's input."""

    def __init__(
        self, kind: DataType, schema: Schema, definitions: Mapping[str, Schema], codec: Codec
    ) -> None:
        self._convert = _Converters(Definitions(definitions), codec).of(kind, schema, "$")
        is_bytes = schema.get("contentEncoding") == "binary"
        self._encode: Callable[[Any], bytes] = bytes if is_bytes else codec.encode

    def encode(self, column: pa.Array) -> tuple[list[bytes | None], dict[int, str]]:
        """Return each row's message, None for null and for rows with a fault; the faults by row."""
        bodies: list[bytes | None] = []
        faults: dict[int, str] = {}
        convert, encode = self._convert, self._encode
        for row, scalar in enumerate(column):
            body = None
            if scalar.is_valid:
                try:
                    value = scalar.as_py()
                    body = encode(value if convert is None else convert(value))
                except OverflowError:  # Spark has years that Python does not have
                    faults[row] = "the body cannot be encoded: a date or time is out of range"
                except FLAWS as error:
                    path, reason = flaw_of(error)
                    faults[row] = f"the body cannot be encoded: {path}: {reason}"
            bodies.append(body)
        return bodies, faults


class _Converters:
    """Makes functions that change what `as_py` returns into what the codec encodes."""

    def __init__(self, definitions: Definitions, codec: Codec) -> None:
        self._definitions = definitions
        self._is_json = codec.name == "json"

    def of(self, kind: DataType, schema: Schema, path: str) -> Convert | None:
        """Return the function for a type, None if nothing has to be changed.

        Maps come as lists of pairs. A null field that the method may leave out, and does not take
        as null, is left out, so that the method uses its default. JSON has no NaN.
        """
        if isinstance(kind, DoubleType | FloatType):
            return _finite(path) if self._is_json else None
        if isinstance(kind, TimestampType):
            return _to_minutes if self._is_json else None
        fitting = self._fitting(kind, schema)
        if isinstance(kind, ArrayType):
            inner = self.of(kind.elementType, fitting.get("items", {}), f"{path}[]")
            return None if inner is None else _each(inner)
        if isinstance(kind, MapType):
            values = fitting.get("additionalProperties")
            values = values if isinstance(values, dict) else {}
            return _mapping(self.of(kind.valueType, values, f"{path}.*"))
        if isinstance(kind, StructType):
            return self._struct(kind, fitting, path)
        return None

    def _fitting(self, kind: DataType, schema: Schema) -> Schema:
        for each in Alternatives(schema, self._definitions).schemas:
            if not takes(kind, each, self._definitions):
                return each
        return {}

    def _struct(self, kind: StructType, schema: Schema, path: str) -> Convert | None:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        converters: dict[str, Convert] = {}
        left_out = set()
        for field in kind.fields:
            part = properties.get(field.name, {})
            convert = self.of(field.dataType, part, f"{path}.{field.name}")
            if convert is not None:
                converters[field.name] = convert
            is_nullable = Alternatives(part, self._definitions).is_nullable
            if properties and field.name not in required and not is_nullable:
                left_out.add(field.name)
        return _object(converters, left_out) if converters or left_out else None


def _finite(path: str) -> Convert:
    def check(value: float | None) -> float | None:
        if value is not None and not isfinite(value):
            raise ValueError(f"it is {value}, which JSON does not have - at `{path}`")
        return value

    return check


def _to_minutes(value: datetime | None) -> datetime | None:
    """Return a time whose offset has no seconds, as local mean times of the past have: JSON has
    hours and minutes."""
    if value is None or not (offset := value.utcoffset()) or not offset.seconds % 60:
        return value
    return value.astimezone(UTC)


def _each(convert: Convert) -> Convert:
    return lambda values: None if values is None else [convert(value) for value in values]


def _mapping(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda pairs: None if pairs is None else dict(pairs)
    return lambda pairs: None if pairs is None else {key: convert(value) for key, value in pairs}


def _object(converters: dict[str, Convert], left_out: set[str]) -> Convert:
    def convert(given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is None:
            return None
        for name in left_out:
            if given[name] is None:
                del given[name]
        for name, change in converters.items():
            if name in given:
                given[name] = change(given[name])
        return given

    return convert
