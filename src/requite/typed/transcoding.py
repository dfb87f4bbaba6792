"""Messages of described methods as JSON, and back, for callers that know no types of Python.

A service has the codec JSON or MessagePack; its messages are JSON here in both cases, with bytes as
texts in base 64. Methods of bytes take and return them as they are.

The same JSON value always becomes the same bytes, however it is written: objects have sorted keys,
and there are no spaces. So a repetition with the same idempotency key is the same message,
whichever program sends it. Integers of 64 bits have neither a point nor an exponent; other numbers
are written in their shortest form, and one with more digits than a double holds keeps them all.
Only integers beyond 64 bits keep the form in which they were sent.

Source: docs/protocols/typed.md, section "Messages".
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final

import msgspec

from requite.typed.codec import JSON, MSGPACK, msgpack_to_json
from requite.typed.described import DescribedMethod, Description, Schema
from requite.typed.schema import REFERENCE, is_bytes, is_nothing

_INTEGER_MAX: Final = 2**64 - 1
_INTEGER_MIN: Final = -(2**63)
_SHORT: Final = 16  # a point and 15 digits, which every double holds


def _number(text: str) -> int | float | Decimal:
    """Return a number with a point or an exponent: a double only if it has exactly this value.

    It is called for each such number of a body, so the usual ones take no `Decimal`, with which
    each would take five times as long.
    """
    number = float(text)
    if len(text) <= _SHORT and "e" not in text and "E" not in text:
        return int(number) if number.is_integer() else number
    exact = _exact(text, number)
    if _INTEGER_MIN <= exact <= _INTEGER_MAX and exact == exact.to_integral_value():
        return int(exact)
    if exact == Decimal(repr(number)):
        return number
    return exact.normalize(Context(prec=len(text), Emin=MIN_EMIN, Emax=MAX_EMAX))


def _exact(text: str, number: float) -> Decimal:
    try:
        exact = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        exact = None
    if exact is None or not isfinite(number):
        raise ValueError(f"the number {text[:30]} is out of range")
    return exact


_decode: Final = msgspec.json.Decoder(float_hook=_number).decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_encode_sorted: Final = msgspec.json.Encoder(decimal_format="number", order="deterministic").encode
_pack_sorted: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_check_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


def from_json(text: bytes, method: DescribedMethod, described: Description) -> bytes:
    """Return the message of a request for one in JSON, in its canonical form.

    Raises one of `FLAWS` for what is not JSON, has an object with a key twice, or does not fit the
    codec of the service.
    """
    if is_bytes(method.input):
        return text
    if not text:
        if is_nothing(method.input):
            return b""
        raise ValueError("the body is empty")
    value = _decode(text)
    # An encoder writes no key twice; only other texts are parsed a second time, which takes ten
    # times as long.
    if _encode(value) != text:
        JSON.check_keys(text)
    if described.codec == MSGPACK.name:
        return _pack_sorted(_packed(value, method.input, described.definitions))
    return _encode_sorted(value)


def to_json(body: bytes, method: DescribedMethod, codec: str) -> bytes:
    """Return a reply, or a partial one, as JSON; that of a method of bytes as it is.

    Raises one of `FLAWS` for one that is not of the codec, or that JSON cannot have.
    """
    if is_bytes(method.output):
        return body
    if is_nothing(method.output) and not body:
        return b"null"
    if codec == MSGPACK.name:
        return msgpack_to_json(body)
    _check_json(body)
    return body


def _packed(value: Any, schema: Schema, definitions: dict[str, Schema]) -> Any:
    """Return a value as MessagePack has it: texts in base 64 are bytes, and numbers doubles."""
    if isinstance(value, Decimal):
        return float(value)
    if not isinstance(value, str | dict | list):
        return value
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
        known, rest = _object(kind.get("properties")), _object(kind.get("additionalProperties"))
        return {k: _packed(v, _object(known.get(k, rest)), definitions) for k, v in value.items()}
    kind = next((kind for kind in kinds if kind.get("type") == "array"), {})
    rest, places = _object(kind.get("items")), dict(enumerate(kind.get("prefixItems", [])))
    return [_packed(v, _object(places.get(n, rest)), definitions) for n, v in enumerate(value)]


def _alternatives(schema: Schema, definitions: dict[str, Schema]) -> list[Schema]:
    """Return the schemas of which a value has one, without references.

    Each schema counts once: those of a foreign service may refer to each other in many ways.
    """
    found: list[Schema] = []
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        reference = each.get("$ref")
        if isinstance(reference, str):
            waiting.append(_object(definitions.get(reference.removeprefix(REFERENCE))))
        elif "anyOf" in each:
            waiting += map(_object, reversed(each["anyOf"]))
        else:
            found.append(each)
    return found


def _is_tagged(value: dict[str, Any], schema: Schema) -> bool:
    """Whether an object has the tag of a schema, if that has one."""
    if schema.get("type") != "object":
        return False
    tags = {
        name: _object(part)["enum"]
        for name, part in _object(schema.get("properties")).items()
        if "enum" in _object(part)
    }
    return all(value.get(name) in allowed for name, allowed in tags.items() if name in value)


def _object(part: Any) -> Schema:
    """Return a part of a schema that is an object, else an empty one, which allows anything."""
    return part if isinstance(part, dict) else {}
