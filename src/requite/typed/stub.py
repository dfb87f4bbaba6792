"""Write the classes that a client binds, from the description of a service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from requite.typed.annotations import Annotations, identifier
from requite.typed.described import DescribedError, DescribedMethod, Description, Schema
from requite.typed.schema import REFERENCE

_HEAD: Final = '''"""Classes to call {service} {version}, written by `requite stub`.

    client.bind({name}, {prefix!r}{codec})
"""

from __future__ import annotations
'''


def stub_of(described: Description) -> str:
    """Return a module of Python: the types of the messages, the errors, and a `Protocol` class for
    `AsyncClient` and one for `Client`."""
    schemas = described.definitions.values()
    annotations = Annotations({name for each in schemas for name in each.get("properties", {})})
    errors = {error.name: error for method in described.methods for error in method.errors}
    raised = {str(error.data.get("$ref", "")).removeprefix(REFERENCE) for error in errors.values()}
    blocks = [
        _type(identifier(name), schema, annotations)
        for name, schema in described.definitions.items()
        if name not in raised
    ]
    blocks += [_error(error, described.definitions, annotations) for error in errors.values()]
    name = "".join(word.capitalize() for word in described.prefix.replace("-", "_").split("."))
    blocks += [
        _protocol(name, described, annotations, is_async=is_async) for is_async in (True, False)
    ]
    parts = ["\n".join(block) for block in blocks]
    codec = "" if described.codec == "json" else f", codec={described.codec!r}"
    head = _HEAD.format(
        service=described.service,
        version=described.version,
        name=identifier(name),
        prefix=described.prefix,
        codec=codec,
    )
    return "\n\n".join([head + "\n" + _imports(annotations), *parts]) + "\n"


def _imports(annotations: Annotations) -> str:
    lines = [
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(annotations.imports.items())
    ]
    return "\n".join([*lines, "", "import msgspec", "import requite", ""])


def _type(name: str, schema: Schema, annotations: Annotations) -> Iterator[str]:
    if "properties" not in schema:
        yield f"{name} = {annotations.of(schema)}"
        return
    fields = dict(schema["properties"])
    options = ""
    for key, inner in schema["properties"].items():
        values = inner.get("enum", [])
        if len(values) == 1 and isinstance(values[0], str) and key in schema.get("required", []):
            options = f", tag_field={key!r}, tag={values[0]!r}"
            del fields[key]
            break
    yield f"class {name}(msgspec.Struct{options}):"
    yield from _doc(schema.get("description", ""))
    yield from _fields(fields, schema.get("required", []), annotations, of_struct=True)


def _error(
    error: DescribedError, definitions: dict[str, Schema], annotations: Annotations
) -> Iterator[str]:
    schema = definitions.get(str(error.data.get("$ref", "")).removeprefix(REFERENCE), {})
    if schema:
        annotations.use("dataclasses", "dataclass", "field")
        yield "@dataclass"
    yield f"class {error.name}(Exception):"
    yield from _doc(error.doc or "Raised by the service.")
    if schema:
        yield from _fields(
            schema.get("properties", {}), schema.get("required", []), annotations, of_struct=False
        )


def _fields(
    properties: dict[str, Schema],
    required: list[str],
    annotations: Annotations,
    *,
    of_struct: bool,
) -> Iterator[str]:
    if not properties:
        yield "    pass"
    for key in sorted(properties, key=lambda key: key not in required):
        schema = properties[key]
        name, annotation = identifier(key), annotations.of(schema)
        named = f", name={key!r}" if of_struct and name != key else ""
        if key in required:
            yield f"    {name}: {annotation}" + (f" = msgspec.field({named[2:]})" if named else "")
        elif "default" in schema:
            default = annotations.literal(schema["default"], annotation)
            if not of_struct:
                default = default.replace("msgspec.field", "field")
            elif named:
                inner = default.removeprefix("msgspec.field(").removesuffix(")")
                default = inner if default != inner else f"default={default}"
                default = f"msgspec.field({default}{named})"
            yield f"    {name}: {annotation} = {default}"
        else:
            default = f"msgspec.field(default=msgspec.UNSET{named})" if named else "msgspec.UNSET"
            yield f"    {name}: {annotation} | msgspec.UnsetType = {default}"


def _protocol(
    name: str, described: Description, annotations: Annotations, *, is_async: bool
) -> Iterator[str]:
    annotations.use("typing", "Protocol", "Unpack")
    client = "AsyncClient" if is_async else "Client"
    yield f"class {identifier(name if is_async else name + 'Blocking')}(Protocol):"
    yield f'    """The methods of {described.service} {described.version}, for `{client}`."""'
    for method in described.methods:
        yield ""
        yield from _method(method, annotations, is_async=is_async)


def _method(method: DescribedMethod, annotations: Annotations, *, is_async: bool) -> Iterator[str]:
    if method.errors:
        yield f"    @requite.raises({', '.join(error.name for error in method.errors)})"
    output = annotations.of(method.output)
    if method.partial:
        iterator = "AsyncIterator" if is_async else "Iterator"
        annotations.use("collections.abc", iterator)
        output = f"{iterator}[{output}]"
    message = "" if method.input == {"type": "null"} else f", {_parameter(method, annotations)}"
    word = "async def" if is_async and not method.partial else "def"
    options = "call_options" if method.parameter == "options" else "options"
    options = f"**{options}: Unpack[requite.CallOptions]"
    yield f"    {word} {method.name}(self{message}, {options}) -> {output}:"
    yield from (f"    {line}" for line in _doc(method.doc or f"Call {method.address}."))
    yield "        ..."


def _parameter(method: DescribedMethod, annotations: Annotations) -> str:
    return f"{identifier(method.parameter or 'message')}: {annotations.of(method.input)}"


def _doc(text: Any) -> Iterator[str]:
    if text:
        escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
        lines = escaped.split("\n")
        yield f'    """{lines[0]}' + ('"""' if len(lines) == 1 else "")
        yield from (f"    {line}".rstrip() for line in lines[1:])
        if len(lines) > 1:
            yield '    """'
