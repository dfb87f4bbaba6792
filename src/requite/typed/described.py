"""Read the description of a service, which may be of any peer.

Source: docs/protocols/typed.md, section "Descriptions".
"""

from __future__ import annotations

import re
from itertools import chain
from keyword import iskeyword
from typing import Any, Final

import msgspec

from requite.errors import RemoteViolation
from requite.typed.codec import FLAWS, codec_of, flaw_of
from requite.typed.description import FORMAT

Schema = dict[str, Any]

SIZE_MAX: Final = 4 << 20
"""Bytes of a description; one of a thousand methods has about 1 MiB."""

_DEFINITION: Final = re.compile(r"[A-Za-z0-9._-]+")
_DEPTH_MAX: Final = 64  # of schemas


class DescribedError(msgspec.Struct, kw_only=True):
    """An error that a method declares; `data` is the schema of its fields."""

    name: str
    doc: str = ""
    data: Schema


class DescribedMethod(msgspec.Struct, kw_only=True):
    """A method; `parameter` is the name of its message, "" without one."""

    name: str
    address: str
    doc: str = ""
    parameter: str = ""
    input: Schema
    output: Schema
    partial: bool = False
    errors: list[DescribedError] = []


class Description(msgspec.Struct, kw_only=True):
    """What a service says of itself."""

    requite: int
    service: str
    version: str
    prefix: str
    codec: str
    methods: list[DescribedMethod]
    definitions: dict[str, Schema] = msgspec.field(name="$defs", default_factory=dict)


_decode = msgspec.json.Decoder(Description).decode


def read_description(body: bytes, whose: str) -> Description:
    """Return a description. Raises `RemoteViolation`, which names `whose` it is, if it is none."""
    try:
        if len(body) > SIZE_MAX:
            raise ValueError(f"it has {len(body)} bytes; the maximum is {SIZE_MAX}")
        described = _decode(body)
        _check(described)
    except FLAWS as error:
        path, reason = flaw_of(error)
        raise RemoteViolation(
            f"{whose} is not a description of a typed service: {path}: {reason}"
        ) from error
    return described


def _check(described: Description) -> None:
    if described.requite > FORMAT:
        raise ValueError(f"its format is {described.requite}, this version reads up to {FORMAT}")
    codec_of(described.codec)
    names = [(method.name, "a method") for method in described.methods]
    names += [(each.name, "an error") for method in described.methods for each in method.errors]
    for name, what in names:
        if not name.isidentifier() or iskeyword(name):
            raise ValueError(f"{name!r} cannot be the name of {what}")
    for method in described.methods:
        if method.address != f"{described.prefix}.{method.name}":
            raise ValueError(
                f"the address of {method.name} is {method.address!r}, not below"
                f" {described.prefix!r}"
            )
    if len({method.name for method in described.methods}) < len(described.methods):
        raise ValueError("two methods have the same name")
    for name in described.definitions:
        if not _DEFINITION.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of a definition")
    for method in described.methods:
        errors = (error.data for error in method.errors)
        for schema in chain((method.input, method.output), errors):
            _check_depth(schema)
    for schema in described.definitions.values():
        _check_depth(schema)


def _check_depth(part: Any, left: int = _DEPTH_MAX) -> None:
    if not left:
        raise ValueError(f"a schema is nested more than {_DEPTH_MAX} deep")
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for each in inner:
        _check_depth(each, left - 1)
