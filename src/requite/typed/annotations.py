"""JSON Schema as annotations of Python."""

from __future__ import annotations

import re
from collections.abc import Collection
from keyword import iskeyword
from typing import Any, Final

from requite.typed.described import Schema
from requite.typed.schema import REFERENCE

_STRINGS: Final = {
    "date-time": ("datetime", "datetime"),
    "date": ("datetime", "date"),
    "time": ("datetime", "time"),
    "partial-time": ("datetime", "time"),
    "duration": ("datetime", "timedelta"),
    "uuid": ("uuid", "UUID"),
    "decimal": ("decimal", "Decimal"),
}
_PLAIN: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}


def identifier(name: str) -> str:
    """Return a name as an identifier."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
    return f"_{name}" if name[0].isdigit() or iskeyword(name) else name


class Annotations:
    """Makes annotations, and notes what they import: names by module.

    `fields` are the names of fields: within a class, they would hide types of the same name
    (`time: time`), which are imported under another one.
    """

    def __init__(self, fields: Collection[str] = ()) -> None:
        self.imports: dict[str, set[str]] = {}
        self._fields = fields

    def of(self, schema: Schema) -> str:
        """Return the annotation of a schema; `Any` for one that has no type of Python."""
        if "$ref" in schema:
            return identifier(str(schema["$ref"]).removeprefix(REFERENCE))
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(map(self.of, schema["anyOf"])))
        if "enum" in schema or "const" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            if all(isinstance(value, str | int | None) for value in values):
                return f"{self._from('typing', 'Literal')}[{', '.join(map(repr, values))}]"
            return self._from("typing", "Any")
        if "contentEncoding" in schema:
            return "bytes"
        match schema.get("type"):
            case "string" if schema.get("format") in _STRINGS:
                return self._from(*_STRINGS[schema["format"]])
            case "array":
                return self._array(schema)
            case "object":
                inner = schema.get("additionalProperties")
                value = self.of(inner) if isinstance(inner, dict) else self._from("typing", "Any")
                return f"dict[str, {value}]"
            case kind if kind in _PLAIN:
                return _PLAIN[kind]
        return self._from("typing", "Any")

    def _array(self, schema: Schema) -> str:
        if firsts := schema.get("prefixItems"):
            return f"tuple[{', '.join(map(self.of, firsts))}]"
        items = schema.get("items")
        return f"list[{self.of(items) if isinstance(items, dict) else self._from('typing', 'Any')}]"

    def _from(self, module: str, name: str) -> str:
        other = f"{name}_" if name in self._fields else name
        self.use(module, name if other == name else f"{name} as {other}")
        return other

    def use(self, module: str, *names: str) -> None:
        """Note that names of a module are used."""
        self.imports.setdefault(module, set()).update(names)

    def literal(self, value: Any, annotation: str) -> str:
        """Return a default as an expression of a field of this annotation."""
        if value in ([], {}):
            return f"msgspec.field(default_factory={type(value).__name__})"
        if value is None or annotation in ("str", "int", "float", "bool", "Any"):
            return repr(value)
        return f"msgspec.field(default_factory=lambda: msgspec.convert({value!r}, {annotation}))"
