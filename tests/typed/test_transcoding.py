"""Messages as JSON and back: one form, MessagePack with bytes, schemas of foreign services."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import requite
from requite.typed.codec import FLAWS, JSON
from requite.typed.described import Description, read_description
from requite.typed.transcoding import from_json, to_json


class Picture(msgspec.Struct):
    name: str
    pixels: bytes
    sizes: list[tuple[int, bytes]] = []
    more: dict[str, bytes] = {}
    weight: float = 0.0
    inner: Picture | None = None


def described(codec: str = "msgpack") -> Description:
    pictures = requite.Service("pictures", codec=codec)

    @pictures.method
    async def turn(picture: Picture) -> Picture:
        return picture

    @pictures.method
    async def raw(body: bytes) -> bytes:
        return body

    @pictures.method
    async def ping() -> None: ...

    return read_description(JSON.encode(pictures.describe()), "it")


def foreign(schema: Any, codec: str = "msgpack", **definitions: Any) -> Description:
    """Return the description of a service whose method has this schema of its messages."""
    text = {
        "requite": 1, "service": "a", "version": "1", "prefix": "a", "codec": codec,
        "methods": [{"name": "m", "address": "a.m", "input": schema, "output": {}}],
        "$defs": definitions,
    }  # fmt: skip
    return read_description(json.dumps(text).encode(), "it")


def sent(text: bytes | str, whole: Description, method: int = 0) -> bytes:
    body = text.encode() if isinstance(text, str) else text
    return from_json(body, whole.methods[method], whole)


ANYTHING = foreign({}, "json")


@pytest.mark.parametrize(
    ("texts", "canonical"),
    [
        (['{"b": 1, "a": [2]}', '{"a":[2],"b":1}', ' {"a" :\n[ 2 ], "b":1}\t'], '{"a":[2],"b":1}'),
        (['"\\u00e9\\/"', '"é/"'], '"é/"'),
        (["1.0", "1", "1e0", "0.1e1", "10E-1", "1.000"], "1"),
        (["1.10", "1.1", "11e-1"], "1.1"),
        (["-0.0", "0", "0e5"], "0"),
        (["1e-7", "0.0000001", "1E-07"], "1e-7"),
        (["[1e22]", "[1E+22]"], "[1e22]"),
        (["9007199254740993.0", "9007199254740993"], "9007199254740993"),
        (["1e16", "1e+16", "10000000000000000", "10000000000000000.0"], "10000000000000000"),
        (["12345678901234567890.0", "12345678901234567890"], "12345678901234567890"),
        (["10e-401", "1.0E-400", "1e-400"], "1E-400"),
        (["0.123456789012345678901", "0.1234567890123456789010"], "0.123456789012345678901"),
        (["null", " null"], "null"),
    ],
)
def test_one_value_has_one_form(texts: list[str], canonical: str) -> None:
    assert {sent(text, ANYTHING) for text in texts} == {canonical.encode()}


@pytest.mark.parametrize(
    "number",
    ["12345678901234567890.123456789", "0.1000000000000000055511151231257827", "1e-400"],
)
def test_a_number_that_is_no_double_keeps_its_digits(number: str) -> None:
    canonical = sent(f'{{"price": {number}}}', ANYTHING)
    assert msgspec.json.decode(canonical, type=dict[str, Decimal]) == {"price": Decimal(number)}


def test_large_integers_keep_their_digits() -> None:
    assert sent(f"[ {2**64} ]", ANYTHING) == f"[{2**64}]".encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("{", "truncated"),
        ('{"a":1,"a":1}', "'a' twice"),
        ('{"x":{"a": 1, "b": 2, "a": 1}}', "'a' twice"),
        ("1e400", "out of range"),
        ("[-1e999999999999999999999]", "out of range"),
        ("1e-999999999999999999999", "out of range"),
        ("NaN", "malformed"),
        ("[" * 100_000 + "]" * 100_000, "recursion"),
    ],
)
def test_what_is_no_message_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FLAWS, match=f"(?i){reason}"):
        sent(text, ANYTHING)


@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_messages_reach_the_method_and_come_back(codec: str) -> None:
    whole = described(codec)
    decode: Any = msgspec.msgpack.decode if codec == "msgpack" else msgspec.json.decode
    inner = Picture("in", b"\0\1")
    picture = Picture("out", b"ab\xff", [(1, b"x"), (2, b"yz")], {"k": b"v"}, 0.5, inner)
    text = msgspec.json.encode(picture)
    body = sent(text, whole)
    assert decode(body, type=Picture) == picture
    spaced = json.dumps(json.loads(text), indent=2, sort_keys=True)
    assert sent(spaced, whole) == body
    assert json.loads(to_json(body, whole.methods[0], codec)) == json.loads(text)


def test_numbers_of_messagepack_are_doubles() -> None:
    precise = '{"name": "a", "pixels": "", "weight": 0.1000000000000000055511151231257827}'
    assert msgspec.msgpack.decode(sent(precise, described()), type=Picture).weight == 0.1


def test_bytes_and_nothing_are_as_they_are() -> None:
    whole = described()
    assert sent(b"\xff{", whole, 1) == b"\xff{"
    assert to_json(b"\xff", whole.methods[1], "msgpack") == b"\xff"
    assert sent(b"", whole, 2) == b""
    assert sent(b" null ", whole, 2) == b"\xc0"
    assert to_json(b"", whole.methods[2], "msgpack") == b"null"


def test_a_text_that_is_not_base_64() -> None:
    with pytest.raises(ValueError, match="not base 64"):
        sent('{"name": "a", "pixels": "no base 64!"}', described())


BASE64 = {"type": "string", "contentEncoding": "base64"}


@pytest.mark.parametrize(
    ("schema", "definitions", "value", "packed"),
    [
        ({"properties": {"x": True}, "type": "object"}, {}, {"x": "YQ=="}, {"x": "YQ=="}),
        ({"anyOf": [True, {"type": "string"}]}, {}, "YQ==", "YQ=="),
        ({"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}, {"T": BASE64}, "YQ==", b"a"),
        ({"$ref": "#/$defs/no"}, {}, "YQ==", "YQ=="),
        ({"$ref": "#/$defs/T"}, {"T": {"$ref": "#/$defs/T"}}, ["YQ=="], ["YQ=="]),
        ({"type": "array", "items": BASE64}, {}, ["YQ==", "Yg=="], [b"a", b"b"]),
    ],
)
def test_schemas_of_foreign_services(
    schema: Any, definitions: Any, value: Any, packed: Any
) -> None:
    whole = foreign(schema, **definitions)
    assert msgspec.msgpack.decode(sent(json.dumps(value), whole)) == packed


def test_schemas_that_refer_to_each_other_in_many_ways_are_read_once() -> None:
    count = 50
    definitions: dict[str, Any] = {
        f"t{n}": {"anyOf": 2 * [{"$ref": f"#/$defs/t{n + 1}"}]} for n in range(count)
    }
    definitions[f"t{count}"] = BASE64
    whole = foreign({"$ref": "#/$defs/t0"}, **definitions)
    assert msgspec.msgpack.decode(sent('"YQ=="', whole)) == b"a"  # of 2**50 ways
