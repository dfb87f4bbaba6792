"""Messages in JSON, checked against descriptions: of our services, and of hostile ones."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest
from tests.typed.shop import Shop

from requite import RemoteViolation
from requite.errors import BadReply, BadRequest, RemoteFailure
from requite.speaks.plans import BODIES, Carries
from requite.typed import checking
from requite.typed.checking import JsonMethod
from requite.typed.codec import JSON, MSGPACK, flaw_of
from requite.typed.described import SIZE_MAX, Description, read_description

ALL = Carries(names=True, refusals=True, partials=True)


def shop(address: str = "orders.price", carries: Carries = ALL, **settings: Any) -> JsonMethod:
    body = JSON.encode(Shop(**settings).service.describe())
    return JsonMethod(read_description(body, "it"), address, carries)


def foreign(schema: Any, codec: str = "json", **definitions: Any) -> JsonMethod:
    """Return the method `a.m` of a foreign service, with this schema of its messages."""
    text = {
        "requite": 1, "service": "a", "version": "1", "prefix": "a", "codec": codec,
        "methods": [{"name": "m", "address": "a.m", "input": schema, "output": {}}],
        "$defs": definitions,
    }  # fmt: skip
    return JsonMethod(read_description(json.dumps(text).encode(), "it"), "a.m", ALL)


# --- requests -------------------------------------------------------------------------------------
def test_a_message_that_fits_is_sent_in_its_canonical_form() -> None:
    text = b'{ "sku": "a", "count": 2.0, "new": null }'
    assert shop().encode(text) == b'{"count":2,"new":null,"sku":"a"}'
    assert msgspec.msgpack.decode(shop(codec="msgpack").encode(text)) == json.loads(text)
    assert shop("orders.raw").encode(b"\xff{") == b"\xff{"
    assert shop("orders.ping").encode(b"") == b""
    assert shop("orders.ping").encode(b"null") == b"null"


def test_a_time_of_a_message_may_lack_its_time_zone() -> None:
    method = foreign({"type": "string", "format": "date-time"})
    for text in (b'"2026-01-02T03:04:05"', b'"2026-01-02T03:04:05+01:00"'):
        assert method.encode(text) == text


def test_without_names_the_body_begins_with_that_of_the_method() -> None:
    assert shop("orders.ping", BODIES, partials=False).encode(b"") == b"\x11RQT1\x0borders.ping"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        (b"", "$", "the body is empty"),
        (b"{", "$", "truncated"),
        (b"\xff", "$", "malformed"),
        (b'{"sku": NaN}', "$", "malformed"),
        (b"[]", "$", "is not of type 'object'"),
        (b'{"sku": "a", "count": "2"}', "$.count", "'2' is not of type 'integer'"),
        (b'{"sku": "a"}', "$", "'count' is a required property"),
        (b'{"sku": "a", "count": 1, "count": 2}', "$", "an object has the key 'count' twice"),
        (b'{"sku": "a", "count": 1, "x": {"y": 1, "y": 1}}', "$", "the key 'y' twice"),
        (b"[" * 100_000 + b"]" * 100_000, "$", "it is nested too deeply"),
        (json.dumps({"sku": 1, "count": ["x" * 10_000]}).encode(), "$.", "is not of type"),
    ],
)
def test_a_message_that_does_not_fit_is_not_sent(text: bytes, path: str, reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        shop().encode(text)
    error = refused.value
    assert (error.may_have_executed, error.attempts) == (False, 0)
    assert error.path.startswith(path)
    assert reason in error.reason or len(error.reason) == 300
    assert "the request was not sent" in str(error)
    assert len(str(error)) < 500


def test_a_message_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MESSAGE_SIZE_MAX", 30)
    assert shop().encode(b'{"sku": "a", "count": 2}')
    with pytest.raises(BadRequest, match="it has 31 bytes; the maximum is 30"):
        shop().encode(b'{"sku": "a", "count": 2}'.ljust(31))


def test_a_number_that_the_codec_does_not_have_is_not_sent() -> None:
    text = b'{"count":18446744073709551616,"sku":"a"}'
    assert shop().encode(text) == text
    with pytest.raises(BadRequest, match="can't serialize ints") as refused:
        shop(codec="msgpack").encode(text)
    assert not refused.value.may_have_executed


def test_bytes_in_messages_of_messagepack_are_texts_in_base_64() -> None:
    schema = {
        "type": "object",
        "properties": {"raw": {"type": "string", "contentEncoding": "base64"}},
    }
    method = foreign(schema, "msgpack")
    assert msgspec.msgpack.decode(method.encode(b'{"raw": "AP8="}')) == {"raw": b"\0\xff"}
    with pytest.raises(BadRequest, match="a text is not base 64"):
        method.encode(b'{"raw": "AP8"}')


def test_a_method_that_the_service_does_not_have() -> None:
    with pytest.raises(BadRequest, match=r"^orders has no method cost; it has price") as told:
        shop("orders.cost")
    assert not told.value.may_have_executed


# --- replies --------------------------------------------------------------------------------------
def test_replies_are_values() -> None:
    assert shop().decode(b'{"price":"1.50"}', 1) == {"price": "1.50"}
    packed = MSGPACK.encode({"price": Decimal("1.50"), "raw": b"\0"})
    assert shop(codec="msgpack").decode(packed, 1) == {"price": "1.50", "raw": "AA=="}
    assert shop("orders.ping").decode(b"", 1) is None
    assert shop("orders.raw").decode(b"\xff", 1) == b"\xff"
    with pytest.raises(BadReply) as bad:
        shop().decode(b"{", 3)
    assert (bad.value.attempts, bad.value.may_have_executed) == (3, True)


def test_a_number_that_json_does_not_have_is_a_bad_reply() -> None:
    with pytest.raises(BadReply, match=r"\$\.price: JSON has no inf"):
        shop(codec="msgpack").decode(msgspec.msgpack.encode({"price": math.inf}), 1)


def test_replies_that_carry_their_status() -> None:
    method = shop(carries=BODIES, partials=False)
    assert method.decode(b'\x11RQT1\0{"price":"1"}', 1) == {"price": "1"}
    with pytest.raises(RemoteFailure, match="OutOfStock: none left"):
        method.decode(b'\x11RQT1\1{"error":"OutOfStock","message":"none left"}', 1)
    with pytest.raises(BadReply, match="does not begin with"):
        method.decode(b'{"price":"1"}', 1)


# --- descriptions of foreign services -------------------------------------------------------------
LOOP = {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}
LIST = {"T": {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}}}}


@pytest.mark.parametrize(
    ("schema", "definitions", "reason"),
    [
        ({"type": "objekt"}, {}, "'objekt' is not valid"),
        ({"properties": 3}, {}, "3 is not of type 'object'"),
        ({"pattern": "(("}, {}, "'((' is not a 'regex'"),
        ({"$ref": "#/$defs/T"}, {}, "Pointer"),
        ({"$ref": "http://192.0.2.1/schema"}, {}, "Unresolvable: http://192.0.2.1/schema"),
        ({"$ref": "file:///etc/passwd"}, {}, "Unresolvable"),
        ({"$ref": "#/$defs/a"}, LOOP, "refers to itself without end"),
        ({"$dynamicRef": "#"}, {}, "refers to itself without end"),
    ],
)
def test_schemas_that_do_not_work(schema: Any, definitions: Any, reason: str) -> None:
    with pytest.raises(RemoteViolation) as refused:
        foreign(schema, **definitions).encode(b'{"x": "y"}')
    assert "the description of a.m cannot be used, so nothing was sent: " in str(refused.value)
    assert reason in str(refused.value)


def test_recursive_types_work_until_a_message_is_too_deep() -> None:
    method = foreign({"$ref": "#/$defs/T"}, **LIST)
    assert method.encode(b'{"next": {"next": {}}}')
    with pytest.raises(BadRequest, match=r"^\$\.next\.next: 1 is not of type 'object'"):
        method.encode(b'{"next": {"next": 1}}')
    with pytest.raises(BadRequest, match="nested too deeply"):
        method.encode(b'{"next":' * 900 + b"1" + b"}" * 900)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b" " * SIZE_MAX + b"1", f"the maximum is {SIZE_MAX}"),
        (b'{"$defs":' + b'{"a":' * 100_000, "nested too deeply"),
        (
            b'{"requite":1,"service":"a","version":"1","prefix":"a","codec":"xml","methods":[]}',
            "xml",
        ),
    ],
)
def test_descriptions_that_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RemoteViolation, match=f"it is not a description .*{reason}"):
        read_description(body, "it")


def test_the_address_called_is_the_one_asked_for() -> None:
    described = msgspec.convert(
        {
            "requite": 1, "service": "a", "version": "1", "prefix": "a", "codec": "json",
            "methods": [{"name": "m", "address": "bank.pay", "input": {}, "output": {}}],
        },
        Description,
    )  # fmt: skip
    with pytest.raises(BadRequest, match=r"^a has no method m; it has bank\.pay"):
        JsonMethod(described, "a.m", ALL)


@pytest.mark.parametrize(
    ("schema", "message", "path", "end"),
    [
        ({"type": "integer"}, "x" * 100_000, "$", "' is not of type 'integer'"),
        ({"enum": ["a", "b"]}, "x" * 100_000, "$", "' is not one of ['a', 'b']"),
        ({"additionalProperties": {"type": "null"}}, {"k" * 100_000: 1}, "$.kkk", "type 'null'"),
    ],
)
def test_a_refusal_does_not_quote_a_long_message_in_full(
    schema: Any, message: Any, path: str, end: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        foreign(schema).encode(json.dumps(message).encode())
    error = caught.value
    assert error.path.startswith(path)
    assert error.reason.endswith(end)
    assert len(error.path) <= 300
    assert len(error.reason) <= 300
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Literal["a", "b"], f'"{"x" * 100_000}"'),
        (dict[str, int], f'{{"{"k" * 100_000}": "x"}}'),
        (Literal["a"], f'"{"é" * 100_000}"'),
    ],
)
def test_a_worker_does_not_quote_a_long_message_in_full(kind: Any, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        JSON.decoder(kind)(text.encode())
    path, reason = flaw_of(caught.value)
    assert len(path) <= 300
    assert len(reason) <= 300
