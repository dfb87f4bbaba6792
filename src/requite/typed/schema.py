"""JSON Schema 2020-12 of annotated types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from requite.request import Request
from requite.typed.codec import is_model
from requite.typed.formats import add_formats, classes_in

Schema = dict[str, Any]

REFERENCE: Final = "#/$defs/"
_BYTES: Final[Schema] = {"contentEncoding": "binary", "description": "bytes, as they are"}
_NOTHING: Final[Schema] = {"type": "null"}
_KINDS: Final = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def check_type(kind: Any) -> None:
    """Raise `TypeError` for a type that no message can have."""
    schemas_of([kind])


def schemas_of(kinds: Sequence[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schemas of types, and the definitions to which they refer (`#/$defs/NAME`)."""
    encoded = [kind for kind in kinds if kind is not None and kind not in (bytes, Request)]
    types = inspect.multi_type_info(encoded)
    classes = classes_in(types)
    try:
        made, definitions = msgspec.json.schema_components(
            [*encoded, *(each.cls for each in classes)],  # the latter become references
            schema_hook=_schema_of_custom,
            ref_template=f"{REFERENCE}{{name}}",
        )
    except KeyError as error:  # of msgspec, for two classes of one name in one module
        raise TypeError(f"two types of the service have the name of {error}") from error
    for kind, schema in zip([*types, *classes], made, strict=True):
        add_formats(kind, resolved(schema, definitions) if hasattr(kind, "fields") else schema)
    made = made[: len(encoded)]
    for schema in [*made, *definitions.values()]:
        _hoist(schema, definitions)
    schemas = iter(made)
    return [_whole(kind) or next(schemas) for kind in kinds], definitions


def _whole(kind: Any) -> Schema | None:
    if kind in (bytes, Request):
        return dict(_BYTES)
    return dict(_NOTHING) if kind is None else None


def _schema_of_custom(kind: Any) -> Schema:
    if not is_model(kind):
        raise TypeError(f"messages cannot have values of {kind.__name__}")
    schema: Schema = kind.model_json_schema(ref_template=f"{REFERENCE}{{model}}")
    inner = schema.pop("$defs", {})
    return {"$ref": f"{REFERENCE}{kind.__name__}", "$defs": {**inner, kind.__name__: schema}}


def _hoist(schema: Any, definitions: dict[str, Schema]) -> None:
    """Move the definitions of models of pydantic to the others."""
    if isinstance(schema, dict):
        for name, inner in schema.pop("$defs", {}).items():
            _hoist(inner, definitions)
            if definitions.setdefault(name, inner) != inner:
                raise TypeError(f"two types of the service are named {name}")
        for value in schema.values():
            _hoist(value, definitions)
    elif isinstance(schema, list):
        for value in schema:
            _hoist(value, definitions)


# --- reading schemas ------------------------------------------------------------------------------
def resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Return the schema to which a schema refers, and itself if it is no reference."""
    for _ in range(len(definitions) + 1):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        schema = definitions.get(reference.removeprefix(REFERENCE), {})
    return schema


def kind_of(schema: Schema) -> str | None:
    """Return the type of a schema, that of its values for an enumeration; None: any type."""
    values = values_of(schema)
    if values is None or "type" in schema:
        return schema.get("type")
    kinds = {_KINDS.get(type(value)) for value in values}
    return kinds.pop() if len(kinds) == 1 else None


def values_of(schema: Schema) -> list[Any] | None:
    """Return the values of an enumeration, None for any other schema."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def is_bytes(schema: Schema) -> bool:
    """Whether a message is bytes as they are."""
    return schema.get("contentEncoding") == "binary"


def is_nothing(schema: Schema) -> bool:
    """Whether a method takes or returns nothing."""
    return schema.get("type") == "null"
