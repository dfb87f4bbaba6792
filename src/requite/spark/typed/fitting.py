"""Whether values of a type of Spark fit a JSON Schema, and the other way round.

Types are compared, values are not: a range, a pattern, an enumeration or a null is checked for each
row, by the service (`BadRequest`) or by the decoder (`BadReply`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from requite.errors import RemoteViolation
from requite.typed.described import Schema
from requite.typed.schema import REFERENCE, kind_of, values_of

_ENCODINGS: Final = {"base64": "base64", "binary": "bytes"}
_FORMATS: Final = ("date", "date-time", "decimal", "duration", "time")
_INTEGERS: Final = ("byte", "short", "integer", "long")
_TEXTS: Final = ("string", "text", "duration", "time")
_DECIMAL: Final[Schema] = {"type": "string", "format": "decimal"}

# By the type of a column: the words (`word_of`) of schemas that its values fit, and of those whose
# values it can have. The schema of a `datetime` is that of any string in older descriptions.
_TAKEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("boolean",),
    **dict.fromkeys(_INTEGERS, ("integer", "number")),
    "float": ("number",),
    "double": ("number",),
    "decimal": ("decimal",),
    "string": (*_TEXTS, "date-time"),
    "date": ("date",),
    "timestamp": ("date-time", "string"),
    "timestamp_ntz": ("date-time", "string"),
    "binary": ("base64", "bytes"),
}
_READ_AS: Final[Mapping[str, tuple[str, ...]]] = {
    **_TAKEN_BY,
    **dict.fromkeys(_INTEGERS, ("integer",)),
    "float": ("number", "integer"),
    "double": ("number", "integer"),
    "decimal": ("decimal", "integer"),
    "string": (*_TEXTS, "date", "decimal"),
}


_PARTS_MAX: Final = 100_000  # 1 s; a message of 100 fields has fewer than 1,000


class Definitions:
    """The definitions of a peer's description, for one use of them.

    Definitions of a few bytes each can refer to each other in more ways than anybody can follow:
    ten that name the next one twice are a thousand. So the parts of the schemas that are visited
    are counted.
    """

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas
        self._left = _PARTS_MAX

    def resolved(self, schema: Schema) -> Schema:
        """Return the schema to which a schema refers, and itself if it is no reference.

        Raises `RemoteViolation` once too many parts have been visited.
        """
        self._visit(schema)
        while isinstance(reference := schema.get("$ref"), str):
            schema = self._schemas.get(reference.removeprefix(REFERENCE), {})
            self._visit(schema)
        return schema

    def _visit(self, schema: Schema) -> None:
        self._left -= 1 + sum(
            len(part) for part in schema.values() if isinstance(part, list | dict)
        )
        if self._left < 0:
            raise RemoteViolation(
                "the schemas of the description refer to each other too often: reading them for one"
                f" method visits more than {_PARTS_MAX:,} parts"
            )


def word_of(schema: Schema) -> str:
    """Return one word for the kind of a schema that is no reference and no union."""
    encoding = schema.get("contentEncoding")
    if encoding in _ENCODINGS:
        return _ENCODINGS[encoding]
    kind = kind_of(schema)
    if kind == "string" and "format" in schema:
        return schema["format"] if schema["format"] in _FORMATS else "text"
    return kind or "any value"


class Alternatives:
    """The schemas of which a value fits one, without `null`, and whether it may be null."""

    def __init__(self, schema: Schema, definitions: Definitions) -> None:
        self.schemas: list[Schema] = []
        self.is_nullable = False
        self._add(schema, definitions)
        if {"number", "string"} == {*map(word_of, self.schemas)}:  # a decimal of pydantic
            self.schemas = [_DECIMAL]

    def _add(self, schema: Schema, definitions: Definitions) -> None:
        schema = definitions.resolved(schema)
        parts = schema.get("anyOf") or schema.get("oneOf")
        if parts is None and len(schema.get("allOf", ())) == 1:
            parts = schema["allOf"]
        if parts:
            for part in parts:
                self._add(part, definitions)
        elif word_of(schema) == "null":
            self.is_nullable = True
        else:
            values = values_of(schema) or []
            if None in values:
                schema = {**schema, "enum": [value for value in values if value is not None]}
            self.schemas.append(schema)
            self.is_nullable |= None in values or word_of(schema) == "any value"


def takes(kind: DataType, schema: Schema, definitions: Definitions, path: str = "$") -> list[str]:
    """Return why values of a type do not fit a method's input; empty if they do."""
    options = Alternatives(schema, definitions).schemas
    reasons = [list(_not_taken(kind, option, definitions, path)) for option in options]
    if not reasons:
        return [f"{path} is {_name(kind)}, and nothing is taken there"]
    return min(reasons, key=len)


def _not_taken(
    kind: DataType, schema: Schema, definitions: Definitions, path: str
) -> Iterator[str]:
    word = word_of(schema)
    if isinstance(kind, StructType):
        yield from _twice(kind, path)
    if word == "any value":
        for name, inner_kind in _parts(kind):
            yield from takes(inner_kind, {}, definitions, path + name)
        return
    properties = schema.get("properties", {})
    inner = schema.get("additionalProperties", not properties)
    if isinstance(kind, StructType) and word == "object" and properties:
        for field in kind.fields:
            if field.name not in properties:
                known = ", ".join(properties)
                yield f"{path}.{field.name} is unknown; {path} has {known}"
            else:
                where = f"{path}.{field.name}"
                yield from takes(field.dataType, properties[field.name], definitions, where)
        for name in schema.get("required", []):
            if name not in kind.names:
                yield f"{path}.{name} is missing"
    elif isinstance(kind, ArrayType) and word == "array" and not schema.get("prefixItems"):
        yield from takes(kind.elementType, schema.get("items", {}), definitions, f"{path}[]")
    elif isinstance(kind, MapType) and word == "object" and not properties and inner:
        if not isinstance(kind.keyType, StringType):
            yield f"{path} has keys of {_name(kind.keyType)}; cast them to string"
        elif isinstance(inner, dict):
            yield from takes(kind.valueType, inner, definitions, f"{path}.*")
    elif word not in _TAKEN_BY.get(kind.typeName(), ()):
        yield f"{path} is {_name(kind)}, not {word}"


def _twice(kind: StructType, path: str) -> Iterator[str]:
    for name, count in Counter(kind.names).items():
        if count > 1:
            yield f"{path} has {count} fields named {name}"


def _parts(kind: DataType) -> list[tuple[str, DataType]]:
    if isinstance(kind, StructType):
        return [(f".{field.name}", field.dataType) for field in kind.fields]
    if isinstance(kind, ArrayType):
        return [("[]", kind.elementType)]
    return [(".*", kind.valueType)] if isinstance(kind, MapType) else []


def default_of(parts: list[Schema]) -> Any:
    """Return the value of a field that a reply lacks, None for null. `parts`: its schemas in the
    alternatives of the struct, of which only a single one tells what the method means."""
    return parts[0].get("default") if len(parts) == 1 else None


def returns(
    kind: DataType,
    schema: Schema,
    definitions: Definitions,
    is_json: bool,
    path: str = "$",
    is_single: bool = True,
) -> list[str]:
    """Return why a method's output cannot be read as a type; empty if it can. `is_single`: whether
    the schema has no alternatives further up."""
    options = Alternatives(schema, definitions).schemas
    is_single = is_single and len(options) == 1
    return [
        reason
        for option in options
        for reason in _not_read(kind, option, definitions, is_json, path, is_single)
    ]


def _not_read(
    kind: DataType,
    schema: Schema,
    definitions: Definitions,
    is_json: bool,
    path: str,
    is_single: bool,
) -> Iterator[str]:
    word = word_of(schema)
    properties = schema.get("properties", {})
    inner = schema.get("additionalProperties")
    if isinstance(kind, StructType) and word == "object" and properties:
        yield from _twice(kind, path)
        for field in kind.fields:
            where, part = f"{path}.{field.name}", properties.get(field.name)
            if part is None:
                yield f"{where} is unknown; {path} has {', '.join(properties)}"
                continue
            yield from returns(field.dataType, part, definitions, is_json, where, is_single)
            has_default = is_single and default_of([part]) is not None
            is_optional = field.name not in schema.get("required", []) and not has_default
            yield from _null(field.nullable, part, definitions, where, is_optional)
    elif isinstance(kind, ArrayType) and word == "array" and schema.get("items"):
        items = schema["items"]
        yield from returns(kind.elementType, items, definitions, is_json, f"{path}[]", is_single)
        yield from _null(kind.containsNull, items, definitions, f"{path}[]")
    elif isinstance(kind, MapType) and word == "object" and isinstance(inner, dict):
        if not isinstance(kind.keyType, StringType):
            yield f"{path} has keys of string, not {_name(kind.keyType)}"
        yield from returns(kind.valueType, inner, definitions, is_json, f"{path}.*", is_single)
        yield from _null(kind.valueContainsNull, inner, definitions, f"{path}.*")
    elif word == "date-time" and is_json and isinstance(kind, StringType):
        return
    elif word not in _READ_AS.get(kind.typeName(), ()):
        yield f"{path} is {word}, not {_name(kind)}"


def _null(
    is_allowed: bool, schema: Schema, definitions: Definitions, path: str, is_optional: bool = False
) -> Iterator[str]:
    if not is_allowed and (is_optional or Alternatives(schema, definitions).is_nullable):
        yield f"{path} may be null, and the type is NOT NULL"


def _name(kind: DataType) -> str:
    return kind.simpleString()
