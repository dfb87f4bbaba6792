"""The type of Spark for the output of a method."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from requite.spark.typed.fitting import Alternatives, Definitions, word_of
from requite.typed.described import Schema

_PLAIN: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "integer": LongType(),
    "number": DoubleType(),
    "decimal": DecimalType(38, 18),
    "string": StringType(),
    "text": StringType(),
    "duration": StringType(),
    "time": StringType(),
    "date": DateType(),
    "date-time": TimestampType(),
    "base64": BinaryType(),
    "bytes": BinaryType(),
}
_DEPTH_MAX: Final = 32


def type_of(
    schema: Schema, definitions: Definitions, path: str = "$", depth: int = _DEPTH_MAX
) -> DataType:
    """Return the type: that of `_PLAIN`, a struct, an array or a map; a string for nothing.

    Raises `ValueError` for a schema that no single type has.
    """
    alternatives = Alternatives(schema, definitions).schemas
    if not alternatives:
        return StringType()
    if len(alternatives) > 1:
        words = " or ".join(dict.fromkeys(map(word_of, alternatives)))
        raise ValueError(f"{path} is {words}")
    if not depth:
        raise ValueError(f"{path} is nested too deeply")
    [schema] = alternatives
    word, depth = word_of(schema), depth - 1
    if word in _PLAIN:
        return _PLAIN[word]
    if word == "array" and schema.get("items"):
        return ArrayType(type_of(schema["items"], definitions, f"{path}[]", depth))
    if word == "object" and (properties := schema.get("properties")):
        fields = [
            StructField(name, type_of(each, definitions, f"{path}.{name}", depth))
            for name, each in properties.items()
        ]
        return StructType(fields)
    if word == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
        return MapType(StringType(), type_of(inner, definitions, f"{path}.*", depth))
    raise ValueError(f"{path} is {word}")
