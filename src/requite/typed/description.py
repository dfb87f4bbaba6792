"""The description of a service, which its method `describe` returns as JSON.

Source: docs/protocols/typed.md, section "Descriptions".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from requite.typed.method import Method
from requite.typed.schema import Schema, schemas_of

FORMAT: Final = 1
"""The version of the format of descriptions."""
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def description_of(
    service: str, version: str, codec: str, prefix: str, methods: Iterable[Method]
) -> dict[str, Any]:
    """Return a description: every method with the schemas of what it takes, returns and raises."""
    methods = list(methods)
    kinds: list[Any] = []
    for method in methods:
        kinds += [method.signature.input, method.signature.output]
        kinds += [error.data for error in method.errors.values()]
    schemas, definitions = schemas_of(kinds)
    following = iter(schemas)
    return {
        "requite": FORMAT,
        "service": service,
        "version": version,
        "prefix": prefix,
        "codec": codec,
        "$schema": DIALECT,
        "methods": [
            {
                "name": method.name,
                "address": method.address,
                "doc": method.signature.doc,
                "parameter": method.signature.parameter,
                "input": next(following),
                "output": next(following),
                "partial": method.signature.streams,
                "errors": [
                    {"name": error.name, "doc": error.doc, "data": next(following)}
                    for error in method.errors.values()
                ],
            }
            for method in methods
        ],
        "$defs": dict[str, Schema](sorted(definitions.items())),
    }
