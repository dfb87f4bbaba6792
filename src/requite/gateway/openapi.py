"""The descriptions of services as a document of OpenAPI 3.1, whose schemas are JSON Schema 2020-12.

Source: https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from requite import __version__
from requite.gateway.bodies import BYTES_TYPE, JSON_TYPE
from requite.gateway.options import KEY_FIELD, KEY_SIZE_MAX, TIMEOUT_FIELD
from requite.gateway.problems import CONTENT_TYPE, KINDS
from requite.gateway.streams import EVENTS_TYPE
from requite.typed.schema import REFERENCE, is_bytes, is_nothing

if TYPE_CHECKING:
    from requite.gateway.policy import GatewayPolicy
    from requite.typed.described import DescribedError, DescribedMethod, Description, Schema

VERSION: Final = "3.1.1"
_SCHEMAS: Final = "#/components/schemas/"
_EVENTS: Final = (
    "Server-sent events: `data` is a partial reply; `event: end` is the end, `event: error` a"
    " problem."
)
_SECURITY: Final[list[dict[str, Any]]] = [{"token": []}, {"password": []}]
_BASE64: Final = {"type": "string", "contentEncoding": "base64"}
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail", "error", "may_have_executed", "attempts"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error": {"type": "string", "description": "The class of the error."},
        "may_have_executed": {
            "type": "boolean",
            "description": "Whether the method may have run. If not, the request can be repeated.",
        },
        "attempts": {"type": "integer", "description": "How often the request was sent."},
        "request_id": {
            "type": "string",
            "pattern": "^[0-9a-f]{32}$",
            "description": "The ID of the request in journals, if it was sent: for `requite why`.",
        },
        "path": {"type": "string", "description": "The place in the body: `$.count`."},
        "reason": {"type": "string", "description": "What is wrong there."},
    },
}


def openapi_of(
    services: Iterable[Description],
    may_call: Callable[[str], bool],
    *,
    root: str,
    has_users: bool,
    is_open: Callable[[str], bool],
    policy: GatewayPolicy,
) -> dict[str, Any]:
    """Return the document of the methods that a user may call. `root`: the path of the gateway;
    `is_open`: whether a method may be called without a token or password."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    tags: list[dict[str, Any]] = []
    for described in services:
        methods = [each for each in described.methods if may_call(each.address)]
        if not methods:
            continue
        tags.append({"name": described.prefix, "description": f"version {described.version}"})
        for name, schema in described.definitions.items():
            schemas[f"{described.prefix}.{name}"] = _adapted(schema, described.prefix)
        for method in methods:
            operation = _operation(method, described.prefix)
            if has_users and is_open(method.address):
                operation["security"] = [{}, *_SECURITY]
            paths[f"/{method.address}"] = {"post": _adapted(operation, described.prefix)}
    document: dict[str, Any] = {
        "openapi": VERSION,
        "info": {
            "title": "Typed services",
            "version": __version__,
            "description": f"A body has at most {policy.body_size_max} bytes.",
        },
        "servers": [{"url": root or "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": _parameters(policy),
            "responses": {"Problem": _problem("The call failed.")},
        },
    }
    if has_users:
        document["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"},
            "password": {"type": "http", "scheme": "basic"},
        }
        document["security"] = _SECURITY
    return document


def _adapted(part: Any, prefix: str) -> Any:
    """Return a part with references to the schemas of its service in the document."""
    if isinstance(part, list):
        return [_adapted(each, prefix) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: f"{_SCHEMAS}{prefix}.{value.removeprefix(REFERENCE)}"
        if name == "$ref" and isinstance(value, str) and value.startswith(REFERENCE)
        else _mapped(value, prefix)
        if name == "discriminator"
        else _adapted(value, prefix)
        for name, value in part.items()
    }


def _mapped(discriminator: Any, prefix: str) -> Any:
    """Return a discriminator, whose mapping has references as plain texts."""
    if not isinstance(discriminator, dict) or not isinstance(discriminator.get("mapping"), dict):
        return _adapted(discriminator, prefix)
    mapping = {
        value: _adapted({"$ref": target}, prefix)["$ref"]
        for value, target in discriminator["mapping"].items()
    }
    return {**discriminator, "mapping": mapping}


def _operation(method: DescribedMethod, prefix: str) -> dict[str, Any]:
    summary, _, rest = method.doc.partition("\n")
    operation: dict[str, Any] = {
        "operationId": method.address,
        "tags": [prefix],
        "summary": summary,
        "description": rest.strip(),
        "parameters": [
            {"$ref": f"#/components/parameters/{name}"} for name in (TIMEOUT_FIELD, KEY_FIELD)
        ],
        "responses": {
            "200": _success(method),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if not is_nothing(method.input):
        kind = BYTES_TYPE if is_bytes(method.input) else JSON_TYPE
        operation["requestBody"] = {
            "required": True,
            "content": {kind: {"schema": _schema(method.input)}},
        }
    else:
        operation["requestBody"] = {"content": {JSON_TYPE: {"schema": {"type": "null"}}}}
    if method.errors:
        refused = KINDS["DeclaredError"]
        operation["responses"][str(refused.status)] = _declared(method.errors, refused.title)
    return operation


def _success(method: DescribedMethod) -> dict[str, Any]:
    if method.partial:
        schema = {"type": "string", "contentMediaType": EVENTS_TYPE}
        data = _BASE64 if is_bytes(method.output) else method.output
        content = {EVENTS_TYPE: {"schema": schema, "x-data": data}}
        return {"description": _EVENTS, "content": content}
    kind = BYTES_TYPE if is_bytes(method.output) else JSON_TYPE
    return {"description": "The reply.", "content": {kind: {"schema": _schema(method.output)}}}


def _schema(schema: Schema) -> Schema:
    """Return a schema; that of bytes allows anything."""
    return {} if is_bytes(schema) else schema


def _declared(errors: Iterable[DescribedError], title: str) -> dict[str, Any]:
    kinds = [
        {
            "title": error.name,
            "description": error.doc,
            "allOf": [{"$ref": f"{_SCHEMAS}Problem"}],
            "properties": {"error": {"const": error.name}, "data": error.data},
        }
        for error in errors
    ]
    return {**_problem(f"{title}."), "content": {CONTENT_TYPE: {"schema": {"anyOf": kinds}}}}


def _problem(text: str) -> dict[str, Any]:
    schema = {"$ref": f"{_SCHEMAS}Problem"}
    return {"description": text, "content": {CONTENT_TYPE: {"schema": schema}}}


def _parameters(policy: GatewayPolicy) -> dict[str, Any]:
    return {
        TIMEOUT_FIELD: {
            "name": TIMEOUT_FIELD,
            "in": "header",
            "description": f"Seconds until the deadline, {policy.timeout:g} without it.",
            "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": policy.timeout_max},
        },
        KEY_FIELD: {
            "name": KEY_FIELD,
            "in": "header",
            "description": "The same for each attempt at one request. With it the request may be"
            " sent to another worker after one was lost.",
            "schema": {"type": "string", "minLength": 1, "maxLength": KEY_SIZE_MAX},
        },
    }
