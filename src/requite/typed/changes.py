"""Incompatible changes between two descriptions of a service.

What a caller of the old one sends must be accepted by the new one, and what the new one sends must
be readable by a caller of the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from requite.typed.described import DescribedMethod, Description, Schema
from requite.typed.schema import kind_of, resolved, values_of

Definitions = dict[str, Schema]

_LIMITS: Final = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip

_TIMES: Final = ("date-time", "time")
"""Formats that older descriptions do not have: there, any string may be a `datetime` or `time`."""


def incompatible_changes(old: Description, new: Description) -> list[str]:
    """Return, as sentences, what breaks callers of the old service; empty if nothing does."""
    found: list[str] = []
    if old.prefix != new.prefix:
        found.append(f"the names begin with {new.prefix}, not with {old.prefix}")
    if old.codec != new.codec:
        found.append(f"the codec is {new.codec}, not {old.codec}")
    methods = {method.name: method for method in new.methods}
    for method in old.methods:
        if method.name not in methods:
            found.append(f"{method.name} is gone")
            continue
        found += _changed(method, methods[method.name], old.definitions, new.definitions)
    return found


def _changed(
    old: DescribedMethod, new: DescribedMethod, before: Definitions, after: Definitions
) -> Iterator[str]:
    name = old.name
    if old.partial is not new.partial:
        yield f"{name} has {'' if new.partial else 'no '}partial replies now"
    requests = _Comparison(before, after, without=_TIMES)
    for reason in requests.misfits(old.input, new.input, "$"):
        yield f"{name} refuses requests that it took: {reason}"
    for reason in _Comparison(after, before).misfits(new.output, old.output, "$"):
        yield f"{name} returns what its callers cannot read: {reason}"
    errors = {error.name: error for error in old.errors}
    for error in new.errors:
        if error.name in errors:
            known = errors[error.name]
            for reason in _Comparison(after, before).misfits(error.data, known.data, "$"):
                yield f"{name} raises {error.name} as its callers cannot read it: {reason}"


class _Comparison:
    """Whether values of one schema, the writer's, fit another one, the reader's.

    `without`: formats that the reader may have where the writer has none.
    """

    def __init__(
        self, writers: Definitions, readers: Definitions, *, without: tuple[str, ...] = ()
    ) -> None:
        self._writers = writers
        self._without = without
        self._readers = readers
        self._found: dict[tuple[int, int], list[str]] = {}

    def misfits(self, writer: Schema, reader: Schema, path: str) -> list[str]:
        """Return why values of `writer` do not fit `reader`. Two schemas are compared once, at the
        first place that has them: types may be recursive, or refer to each other in many ways."""
        writer, reader = resolved(writer, self._writers), resolved(reader, self._readers)
        pair = (id(writer), id(reader))
        if pair not in self._found:
            self._found[pair] = []
            self._found[pair] = list(dict.fromkeys(self._whole(writer, reader, path)))
        return self._found[pair]

    def _whole(self, writer: Schema, reader: Schema, path: str) -> Iterator[str]:
        for alternative in writer.get("anyOf", [writer]):
            readers = reader.get("anyOf", [reader])
            reasons = [list(self._one(alternative, each, path)) for each in readers]
            if all(reasons):
                yield from min(reasons, key=len)

    def _one(self, writer: Schema, reader: Schema, path: str) -> Iterator[str]:
        writer, reader = resolved(writer, self._writers), resolved(reader, self._readers)
        if (values := values_of(reader)) is not None:
            sent = values_of(writer)
            if sent is None:
                yield f"{path} is any {kind_of(writer) or 'value'}, not one of {values}"
            elif added := [value for value in sent if value not in values]:
                yield f"{path} may be {', '.join(map(repr, added))}"
            return
        kind, wanted = kind_of(writer), reader.get("type")
        if wanted is not None and kind != wanted and (kind, wanted) != ("integer", "number"):
            yield f"{path} is {kind or 'any value'}, not {wanted}"
            return
        for name in ("format", "contentEncoding"):
            if name in reader and writer.get(name) != reader[name]:
                if name not in writer and reader[name] in self._without:
                    continue
                yield f"{path} is {writer.get(name, 'any string')}, not {reader[name]}"
        for name in _LIMITS:
            if name in reader and writer.get(name) != reader[name]:
                yield f"{path} has another limit: {name} {reader[name]}"
        yield from self._parts(writer, reader, path)

    def _parts(self, writer: Schema, reader: Schema, path: str) -> Iterator[str]:
        sent, known = writer.get("properties", {}), reader.get("properties", {})
        always = writer.get("required", [])
        for name in reader.get("required", []):
            if name not in always:
                yield (
                    f"{path}.{name} may be missing" if name in sent else f"{path}.{name} is missing"
                )
        for name, schema in sent.items():
            if name in known:
                yield from self.misfits(schema, known[name], f"{path}.{name}")
            elif reader.get("additionalProperties") is False:
                yield f"{path}.{name} is unknown"
        for key, step in (("items", "[]"), ("additionalProperties", ".*")):
            inner, outer = writer.get(key), reader.get(key)
            if isinstance(inner, dict) and isinstance(outer, dict):
                yield from self.misfits(inner, outer, path + step)
        pairs = zip(writer.get("prefixItems", []), reader.get("prefixItems", []), strict=False)
        for number, (inner, outer) in enumerate(pairs):
            yield from self.misfits(inner, outer, f"{path}[{number}]")
