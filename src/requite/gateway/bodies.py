"""The bodies of requests: read within limits, and converted to what a service takes.

A service has the codec JSON or MessagePack; clients of a gateway send and get JSON. Methods of
bytes take and return them as they are.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.requests import ClientDisconnect

from requite.gateway.problems import Problem
from requite.typed.codec import FLAWS, JSON, MSGPACK, flaw_of, msgpack_to_json
from requite.typed.schema import REFERENCE

if TYPE_CHECKING:
    from starlette.types import Receive

    from requite.gateway.policy import GatewayPolicy
    from requite.typed.described import DescribedMethod, Description, Schema

JSON_TYPE: Final = "application/json"
BYTES_TYPE: Final = "application/octet-stream"
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Bodies:
    """The bytes of all bodies that a gateway holds."""

    def __init__(self) -> None:
        self.held = 0


class Body:
    """The body of one request. Leaving the context gives its bytes back."""

    def __init__(self, bodies: Bodies, policy: GatewayPolicy) -> None:
        self._bodies: Final = bodies
        self._policy: Final = policy
        self._size = 0
        self.is_read = False

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_error: object) -> None:
        self._bodies.held -= self._size
        self._size = 0

    def check_length(self, field: str) -> None:
        """Refuse a body by its `Content-Length`, before it is read."""
        if field.isdecimal() and len(field) < 20 and int(field) > self._policy.body_size_max:
            raise self._too_large()

    async def read(self, receive: Receive) -> bytes:
        """Return the body. Raises `Problem` for one beyond a limit, and `ClientDisconnect`."""
        chunks = []
        while not self.is_read:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            chunks.append(chunk)
            self._size += len(chunk)
            self._bodies.held += len(chunk)
            self.is_read = not message.get("more_body", False)
            if self._size > self._policy.body_size_max:
                raise self._too_large()
            if self._bodies.held > self._policy.bodies_size_max:
                raise Problem("Overloaded", "the gateway holds too many bodies; it has not run")
        return b"".join(chunks)

    def _too_large(self) -> Problem:
        size_max = self._policy.body_size_max
        return Problem("TooLarge", f"the body has more than {size_max} bytes, the maximum")


def is_bytes(schema: Schema) -> bool:
    """Whether a message is bytes as they are."""
    return schema.get("contentEncoding") == "binary"


def is_nothing(schema: Schema) -> bool:
    """Whether a method takes or returns nothing."""
    return schema.get("type") == "null"


def check_coding(field: str) -> None:
    """Raise `Problem` for a compressed body: a method of bytes would get it as it is."""
    if field.strip().lower() not in ("", "identity"):
        raise Problem("BadType", "send the body without Content-Encoding; it has not run")


def check_type(field: str, method: DescribedMethod) -> None:
    """Raise `Problem` unless a body has the content type of its method.

    The types are those that web pages of other sites cannot send without the gateway's consent.
    """
    wanted = BYTES_TYPE if is_bytes(method.input) else JSON_TYPE
    if field.partition(";")[0].strip().lower() != wanted:
        raise Problem("BadType", f"send Content-Type: {wanted}")


def payload_of(body: bytes, method: DescribedMethod, described: Description) -> bytes:
    """Return what the service gets. Raises `Problem` for a body that is not JSON, or that has an
    object with a key twice."""
    if is_bytes(method.input):
        return body
    if is_nothing(method.input) and not body:
        return b""
    try:
        if not body:
            raise ValueError("the body is empty")
        value = msgspec.json.decode(body)
        JSON.check_keys(body)
        if described.codec == MSGPACK.name:
            return MSGPACK.encode(_packed(value, method.input, described.definitions))
    except FLAWS as error:
        path, reason = flaw_of(error)
        raise Problem("BadRequest", f"{path}: {reason}", path=path, reason=reason) from error
    return body


def _packed(value: Any, schema: Schema, definitions: dict[str, Schema]) -> Any:
    """Return a value whose texts in base 64 are bytes, as MessagePack has them."""
    kinds = _alternatives(schema, definitions)
    if isinstance(value, str):
        texts = [kind for kind in kinds if kind.get("type") == "string"]
        if not texts or any(kind.get("contentEncoding") != "base64" for kind in texts):
            return value
        try:
            return b64decode(value, validate=True)
        except binascii.Error as error:
            raise ValueError(f"a text is not base 64: {error}") from error
    if isinstance(value, dict):
        kind = next((kind for kind in kinds if _is_tagged(value, kind)), {})
        known, rest = kind.get("properties", {}), _schema(kind.get("additionalProperties"))
        return {k: _packed(v, known.get(k, rest), definitions) for k, v in value.items()}
    if isinstance(value, list):
        kind = next((kind for kind in kinds if kind.get("type") == "array"), {})
        first, rest = kind.get("prefixItems", []), _schema(kind.get("items"))
        known = dict(enumerate(first))
        return [_packed(v, known.get(n, rest), definitions) for n, v in enumerate(value)]
    return value


def _alternatives(schema: Schema, definitions: dict[str, Schema]) -> list[Schema]:
    """Return the schemas of which a value has one, without references."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _alternatives(definitions.get(reference.removeprefix(REFERENCE), {}), definitions)
    if "anyOf" in schema:
        return [found for each in schema["anyOf"] for found in _alternatives(each, definitions)]
    return [schema]


def _is_tagged(value: dict[str, Any], schema: Schema) -> bool:
    """Whether an object has the tag of a schema, if that has one."""
    if schema.get("type") != "object":
        return False
    tags = {
        name: part["enum"] for name, part in schema.get("properties", {}).items() if "enum" in part
    }
    return all(value.get(name) in allowed for name, allowed in tags.items() if name in value)


def _schema(part: Any) -> Schema:
    return part if isinstance(part, dict) else {}


def event_data_of(payload: bytes, method: DescribedMethod, codec: str) -> bytes:
    """Return a partial reply as JSON: bytes are a string in base 64, since events are text. Raises
    `Problem` as `json_of`."""
    return JSON.encode(payload) if is_bytes(method.output) else json_of(payload, method, codec)


def json_of(payload: bytes, method: DescribedMethod, codec: str, attempts: int = 1) -> bytes:
    """Return a reply as JSON, or as bytes. Raises `Problem` for one that is neither JSON nor
    MessagePack."""
    if is_bytes(method.output):
        return payload
    if is_nothing(method.output) and not payload:
        return b"null"
    try:
        if codec == MSGPACK.name:
            return msgpack_to_json(payload)
        _decode_raw(payload)
    except FLAWS as error:
        path, reason = flaw_of(error)
        raise Problem(
            "BadReply",
            f"the reply is not {codec} that JSON can have: {path}: {reason}; the handler has run",
            may_have_executed=True,
            attempts=attempts,
            path=path,
            reason=reason,
        ) from error
    return payload
