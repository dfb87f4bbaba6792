"""The description of a service as a document of AsyncAPI 3.0, with its request-reply objects.

Source: https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

from __future__ import annotations

from typing import Any, Final

from requite.typed.codec import codec_of
from requite.typed.described import DescribedMethod, Description, Schema
from requite.typed.schema import REFERENCE

VERSION: Final = "3.0.0"
_SCHEMAS: Final = "#/components/schemas/"


def asyncapi_of(described: Description) -> dict[str, Any]:
    """Return the document: a channel for each method and one for its replies, and an operation that
    receives requests and sends replies."""
    content_type = codec_of(described.codec).content_type
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for method in described.methods:
        _add(method, channels, operations)
    document = {
        "asyncapi": VERSION,
        "info": {"title": described.service, "version": described.version},
        "defaultContentType": content_type,
        "channels": channels,
        "operations": operations,
        "components": {"schemas": described.definitions},
    }
    return {name: _adapted(part) for name, part in document.items()}


def _adapted(part: Any) -> Any:
    """Return a part of a document with references to its schemas, and without discriminators: those
    of OpenAPI, which msgspec writes, are objects, those of AsyncAPI are not."""
    if isinstance(part, list):
        return [_adapted(each) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        name: value.replace(REFERENCE, _SCHEMAS)
        if name == "$ref" and isinstance(value, str)
        else _adapted(value)
        for name, value in part.items()
        if not (name == "discriminator" and isinstance(value, dict) and "propertyName" in value)
    }


def _add(method: DescribedMethod, channels: dict[str, Any], operations: dict[str, Any]) -> None:
    name, replies = method.name, f"{method.name}.reply"
    messages = {"reply": _message(f"{name}Reply", method.output)}
    messages |= {error.name: _message(error.name, error.data, error.doc) for error in method.errors}
    channels[name] = {
        "address": method.address,
        "messages": {"request": _message(f"{name}Request", method.input)},
    }
    channels[replies] = {"address": None, "messages": messages}
    references = [{"$ref": f"#/channels/{replies}/messages/{each}"} for each in messages]
    operations[name] = {
        "action": "receive",
        "summary": method.doc.partition("\n")[0],
        "description": method.doc + ("\n\nHas partial replies." if method.partial else ""),
        "channel": {"$ref": f"#/channels/{name}"},
        "messages": [{"$ref": f"#/channels/{name}/messages/request"}],
        "reply": {"channel": {"$ref": f"#/channels/{replies}"}, "messages": references},
    }


def _message(name: str, schema: Schema, summary: str = "") -> dict[str, Any]:
    return {"name": name, "summary": summary, "payload": schema}
