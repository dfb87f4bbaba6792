"""Messages of others are read, and handed on, whatever they hold: bytes that are no UTF-8, tables
that are malformed, properties that requite has does not handle the input."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, encode, header

from requite.errors import RemoteViolation
from requite.framing.amqp import Amqp
from requite.protocols.amqp import methods
from requite.protocols.amqp.fields import altered_table, long, read_table
from requite.protocols.amqp.methods import decode
from requite.protocols.amqp.properties import altered_properties, decode_properties

_FLAGS_AT = 12  # in a content header: behind class, weight and size of the body
_NAME_IS_NO_TEXT = bytes.fromhex("0000000c 02fffe 53 00000004 76616c65")  # "\xff\xfe": "vale"


def nothing(_name: str) -> bool:
    return False


def frame(kind: int, payload: bytes) -> bytes:
    return bytes((kind, 0, 1)) + long(payload) + b"\xce"


def opened() -> Amqp:
    """A framing behind its handshake, as RabbitMQ would leave it."""
    framing = Amqp()
    framing.ready = True
    return framing


def content_header(headers: bytes, **properties: Any) -> bytes:
    """A content header as pamqp writes it, with a table of headers of which it knows nothing."""
    marker = {"MARK": "x"}
    given = commands.Basic.Properties(headers=marker, **properties)
    whole = bytes(header.ContentHeader(body_size=2, properties=given).marshal())
    return whole.replace(encode.field_table(marker), headers)


# --- reading --------------------------------------------------------------------------------------
@pytest.mark.parametrize("routing_key", [b"\xff", b"a\xfe\xffb", b"\xc3", b"\xed\xa0\x80"])
def test_a_routing_key_that_is_no_text_is_read_with_replacement_characters(
    routing_key: bytes,
) -> None:
    # basic.deliver: consumer "c", delivery 1, exchange "e"; then header, and a body of two bytes
    deliver = bytes.fromhex("003c003c 0163 0000000000000001 00 0165")
    deliver += bytes((len(routing_key),)) + routing_key
    head = bytes.fromhex("003c0000 0000000000000002 0000")
    said = frame(1, deliver) + frame(2, head) + frame(3, b"hi")

    [[_, method, _, body]] = opened().receive(said)

    assert decode(method) == methods.Delivered(
        "c", 1, False, "e", routing_key.decode(errors="replace")
    )
    assert body == b"hi"


@pytest.mark.parametrize(
    ("table", "headers"),
    [
        (bytes.fromhex("0000000c 02fffe 53 00000004 76616c65"), {"\ufffd\ufffd": "vale"}),
        (bytes.fromhex("00000009 0178 53 00000002 c3ff"), {"x": "\ufffd\ufffd"}),
        (bytes.fromhex("00000003 0178 51"), {}),  # a type that does not exist
        (bytes.fromhex("00000004 0978 5300"), {}),  # a name that is cut
        (bytes.fromhex("00000008 0178 53 000000ff 61"), {}),  # a value that is cut
        (bytes.fromhex("00000004 0178 74") + b"\x01", {"x": True}),
    ],
)
def test_headers_that_are_malformed_leave_the_rest_readable(
    table: bytes, headers: dict[str, Any]
) -> None:
    found = decode_properties(content_header(table, correlation_id="c", reply_to="r"))
    assert found.headers == headers
    assert bool(found.flaw) is not bool(headers)
    assert (found.correlation_id, found.reply_to) == ("c", "r")


@given(st.binary(max_size=60), st.text("abc", max_size=3))
def test_tables_may_hold_any_bytes(content: bytes, name: str) -> None:
    found = decode_properties(content_header(long(content), correlation_id=name))
    assert found.correlation_id == name
    assert isinstance(dict(found.headers), dict)


# --- handing on -----------------------------------------------------------------------------------
_ALL = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "message_id": "m",
    "timestamp": datetime(2020, 1, 1, tzinfo=UTC),
    "message_type": "t",
    "app_id": "a",
}
_HEADERS = {
    "CC": ["elsewhere"],
    "x-first-death-reason": "expired",
    "amount": Decimal("1.5"),
    "share": 0.25,
    "at": datetime(2020, 1, 1, tzinfo=UTC),
    "x-death": [{"count": 1, "queue": "q"}],
}


def written(headers: dict[str, Any] | None, **properties: Any) -> bytes:
    """A content header as pamqp writes it."""
    given = commands.Basic.Properties(headers=headers, **properties)
    return bytes(header.ContentHeader(body_size=5, properties=given).marshal())


def test_all_properties_are_handed_on_but_for_the_user() -> None:
    came = written(_HEADERS, expiration="1500", user_id="u", **_ALL)
    expected = {name: value for name, value in _HEADERS.items() if name != "CC"}
    gone = altered_properties(came, "", lambda name: name == "CC")
    assert gone.hex() == written(expected, **_ALL).hex()


def test_an_expiration_and_headers_are_put_in_place_of_others() -> None:
    came = written({"b": "1", "a": "2"}, expiration="1500", correlation_id="c")
    gone = altered_properties(came, "20", nothing, {"b": "3"})
    assert gone.hex() == written({"a": "2", "b": "3"}, expiration="20", correlation_id="c").hex()
    bare = altered_properties(written(None), "", nothing)
    assert bare.hex() == written(None).hex()
    assert altered_properties(bare, "20", nothing, {"a": "3"}) == written(
        {"a": "3"}, expiration="20"
    )


def test_bytes_that_are_no_text_are_handed_on_as_they_are() -> None:
    table = _NAME_IS_NO_TEXT
    came = content_header(table, correlation_id="ID").replace(b"\x02ID", b"\x02\xff\xfe")
    assert altered_properties(came, "", nothing) == came


def test_of_headers_that_are_malformed_none_is_handed_on() -> None:
    came = content_header(bytes.fromhex("00000003 0178 51"), correlation_id="c")
    found = decode_properties(altered_properties(came, "", nothing, {"a": "b"}))
    assert (found.headers, found.correlation_id, found.flaw) == ({"a": "b"}, "c", "")


def test_tables_in_tables_are_handed_on_however_deep() -> None:
    content = b""
    for _ in range(40):
        content = b"\x01aF" + long(content)
    assert altered_table(content, nothing, {}) == long(content)


@given(st.binary(max_size=60))
def test_whatever_is_handed_on_can_be_read(content: bytes) -> None:
    gone = altered_properties(content_header(long(content)), "", nothing, {"a": "b"})
    assert gone[_FLAGS_AT:]
    try:
        table = altered_table(content, nothing, {"a": "b"})
    except RemoteViolation:
        assert decode_properties(gone).headers == {"a": "b"}
    else:
        assert table in gone


@given(st.binary(max_size=80))
def test_any_bytes_are_handed_on_or_a_violation(data: bytes) -> None:
    for each in (data, bytes.fromhex("003c0000") + bytes(8) + data):
        complaint = "not refused"
        try:
            altered = altered_properties(each, "", nothing)
        except RemoteViolation as violation:
            complaint = str(violation)
        else:
            assert altered_properties(altered, "", nothing) == altered
        assert complaint


def test_a_table_that_is_dropped_is_empty() -> None:
    assert read_table(altered_table(b"\x01aV", lambda name: name == "a", {}), 0) == ({}, 4)
