"""The formats of times in JSON Schemas.

msgspec gives a `datetime` or `time` a format only if it must have a time zone. Models of pydantic
give each its format, and so does this module: without one, the schema is that of any text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import inspect

Schema = dict[str, Any]


def classes_in(kinds: Iterable[inspect.Type]) -> list[Any]:
    """Return the types with fields (structs, dataclasses, ...) in these, each once."""
    found: dict[Any, Any] = {}
    waiting: list[Any] = list(kinds)
    while waiting:
        kind = waiting.pop()
        if not hasattr(kind, "fields"):
            waiting += _inner(kind)
        elif kind.cls not in found:
            found[kind.cls] = kind
            waiting += [field.type for field in kind.fields]
    return list(found.values())


def _inner(kind: Any) -> list[Any]:
    """Return the types of which a type without fields is made."""
    inner = [
        getattr(kind, name) for name in ("type", "item_type", "value_type") if hasattr(kind, name)
    ]
    return [*inner, *getattr(kind, "item_types", ()), *getattr(kind, "types", ())]


def add_formats(kind: Any, schema: Schema) -> None:
    """Add the formats of times to the schema of a type; of a type with fields, that is its
    definition. References are not followed."""
    match kind:
        case inspect.Metadata():
            add_formats(kind.type, schema)
        case inspect.DateTimeType():
            _add_format(schema, "date-time")
        case inspect.TimeType():
            _add_format(schema, "time")
        case inspect.UnionType():  # msgspec allows one type of text in it, one array, one object
            for option in schema.get("anyOf", ()):
                for each in kind.types:
                    add_formats(each, option)
        case inspect.TupleType():
            _add_to_items(kind.item_types, schema)
        case inspect.CollectionType() if isinstance(schema.get("items"), dict):
            add_formats(kind.item_type, schema["items"])
        case _ if hasattr(kind, "fields"):
            _add_to_fields(kind.fields, schema)
        case _ if hasattr(kind, "value_type"):
            if isinstance(schema.get("additionalProperties"), dict):
                add_formats(kind.value_type, schema["additionalProperties"])


def _add_format(schema: Schema, name: str) -> None:
    if schema.get("type") == "string" and "contentEncoding" not in schema:
        schema.setdefault("format", name)


def _add_to_fields(fields: tuple[inspect.Field, ...], schema: Schema) -> None:
    _add_to_items([field.type for field in fields], schema)
    properties = schema.get("properties", {})
    for field in fields:
        if field.encode_name in properties:
            add_formats(field.type, properties[field.encode_name])


def _add_to_items(kinds: Iterable[Any], schema: Schema) -> None:
    """Add formats to an array with a type for each place; the first place may be that of a tag."""
    kinds = list(kinds)
    items = schema.get("prefixItems", [])
    for kind, item in zip(kinds, items[len(items) - len(kinds) :], strict=False):
        add_formats(kind, item)
