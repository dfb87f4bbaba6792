"""Bytes of AMQP 0.9.1 as its specification gives them, and as pamqp (an independent library)
encodes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header
from tests.spec.requirement import requirement

from requite.errors import LocalViolation, RemoteViolation
from requite.protocols.amqp import fields, methods, wire
from requite.protocols.amqp.methods import decode
from requite.protocols.amqp.properties import Properties, decode_properties, encode_properties


def encoded_by_pamqp(command: Any) -> bytes:
    """Return the payload of a method's frame, as pamqp encodes it."""
    return bytes(command.index.to_bytes(4, "big") + command.marshal())


# --- methods --------------------------------------------------------------------------------------
def test_a_publishing_is_what_the_specification_says() -> None:
    # 60 40, reserved, exchange "", routing key "echo", mandatory
    assert methods.publish("", "echo", mandatory=True).hex() == "003c00280000" + "00" + (
        "04" + b"echo".hex() + "01"
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (methods.SELECT_CONFIRMS, commands.Confirm.Select()),
        (methods.publish("a", "b"), commands.Basic.Publish(exchange="a", routing_key="b")),
        (methods.qos(16), commands.Basic.Qos(prefetch_count=16)),
        (methods.ack(7), commands.Basic.Ack(7)),
        (methods.reject(7, requeue=True), commands.Basic.Reject(7, True)),
        (methods.reject(7, requeue=False), commands.Basic.Reject(7, False)),
        (methods.cancel("c"), commands.Basic.Cancel("c")),
        (
            methods.consume("q", "c", no_ack=True),
            commands.Basic.Consume(queue="q", consumer_tag="c", no_ack=True),
        ),
        (
            methods.consume("q", "c", no_ack=False),
            commands.Basic.Consume(queue="q", consumer_tag="c"),
        ),
        (
            methods.queue_declare("q", exclusive=True, auto_delete=True),
            commands.Queue.Declare(queue="q", exclusive=True, auto_delete=True),
        ),
        (
            methods.queue_declare("q", {"x-queue-type": "quorum"}, durable=True),
            commands.Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": "quorum"}),
        ),
        (
            methods.queue_declare("q", passive=True),
            commands.Queue.Declare(queue="q", passive=True),
        ),
        (
            methods.queue_bind("q", "e", "k"),
            commands.Queue.Bind(queue="q", exchange="e", routing_key="k"),
        ),
        (
            methods.queue_unbind("q", "e", "k"),
            commands.Queue.Unbind(queue="q", exchange="e", routing_key="k"),
        ),
        (methods.queue_delete("q"), commands.Queue.Delete(queue="q")),
        (methods.get("q"), commands.Basic.Get(queue="q")),
        (
            methods.consume("q", "c", no_ack=False, exclusive=True),
            commands.Basic.Consume(queue="q", consumer_tag="c", exclusive=True),
        ),
        (methods.channel_close(200, "done"), commands.Channel.Close(200, "done", 0, 0)),
        (
            methods.exchange_declare("e", "direct", {"alternate-exchange": "o"}),
            commands.Exchange.Declare(
                exchange="e",
                exchange_type="direct",
                durable=True,
                arguments={"alternate-exchange": "o"},
            ),
        ),
        (
            methods.exchange_declare("e", "fanout"),
            commands.Exchange.Declare(exchange="e", exchange_type="fanout", durable=True),
        ),
        (
            methods.exchange_declare("e", "direct", passive=True),
            commands.Exchange.Declare(
                exchange="e", exchange_type="direct", durable=True, passive=True
            ),
        ),
        (methods.connection_open("/"), commands.Connection.Open("/")),
        (methods.tune_ok(16, 131072, 20), commands.Connection.TuneOk(16, 131072, 20)),
        (methods.connection_close(200, "bye"), commands.Connection.Close(200, "bye", 0, 0)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else value[:4].hex(),
)
def test_methods_are_encoded_as_by_pamqp(ours: bytes, theirs: Any) -> None:
    assert ours.hex() == encoded_by_pamqp(theirs).hex()


@pytest.mark.parametrize(
    ("theirs", "heard"),
    [
        (commands.Connection.Tune(2047, 131072, 60), methods.Tuned(2047, 131072, 60)),
        (
            commands.Channel.Close(404, "NOT_FOUND", 60, 40),
            methods.Closed(404, "NOT_FOUND", methods.BASIC_PUBLISH),
        ),
        (commands.Connection.Blocked("low on disk"), methods.Blocked("low on disk")),
        (commands.Queue.DeclareOk("q", 3, 1), methods.Declared("q", 3, 1)),
        (commands.Basic.ConsumeOk("c"), methods.Consuming("c")),
        (commands.Basic.Cancel("c"), methods.Cancelled("c", by_us=False)),
        (commands.Basic.CancelOk("c"), methods.Cancelled("c", by_us=True)),
        (
            commands.Basic.Deliver("c", 9, True, "e", "k"),
            methods.Delivered("c", 9, True, "e", "k"),
        ),
        (
            commands.Basic.Return(312, "NO_ROUTE", "e", "k"),
            methods.Returned(312, "NO_ROUTE", "e", "k"),
        ),
        (commands.Basic.Ack(5, True), methods.Confirmed(5, True, True)),
        (commands.Basic.Nack(5, False, False), methods.Confirmed(5, False, False)),
        (commands.Basic.GetOk(9, True, "e", "k", 3), methods.Got(9, True, "e", "k", 3)),
        (commands.Basic.GetEmpty(), methods.Done(methods.BASIC_GET_EMPTY)),
        (commands.Queue.DeleteOk(3), methods.Done(methods.QUEUE_DELETE_OK)),
        (commands.Queue.UnbindOk(), methods.Done(methods.QUEUE_UNBIND_OK)),
        (commands.Exchange.DeclareOk(), methods.Done(methods.EXCHANGE_DECLARE_OK)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_methods_of_the_server_are_decoded(theirs: Any, heard: Any) -> None:
    assert decode(encoded_by_pamqp(theirs)) == heard


@given(st.binary(max_size=64))
def test_any_bytes_decode_to_a_method_or_are_refused(data: bytes) -> None:
    for method in (data, methods.BASIC_DELIVER + data, methods.CONNECTION_START + data):
        complaint = "not refused"
        try:
            decode(method)
        except RemoteViolation as violation:
            complaint = str(violation)
        assert complaint


# --- properties and tables ------------------------------------------------------------------------
def test_properties_are_encoded_as_by_pamqp() -> None:
    ours = Properties(
        "0000000000000001", "reply", "m", "1500", {"x-status": "ok"}, True, user_id="ann"
    )
    theirs = header.ContentHeader(
        body_size=5,
        properties=commands.Basic.Properties(
            correlation_id="0000000000000001",
            reply_to="reply",
            message_id="m",
            expiration="1500",
            headers={"x-status": "ok"},
            delivery_mode=2,
            user_id="ann",
        ),
    )
    assert encode_properties(ours, 5).hex() == theirs.marshal().hex()


def test_unused_properties_are_ignored() -> None:
    theirs = header.ContentHeader(
        body_size=0,
        properties=commands.Basic.Properties(
            content_type="text/plain",
            content_encoding="utf-8",
            priority=3,
            correlation_id="c",
            message_type="t",
            user_id="u",
            app_id="a",
        ),
    )
    assert decode_properties(theirs.marshal()) == Properties("c", user_id="u")


_VALUES = st.recursive(
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=8) | st.none()
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text("abcxyz-", max_size=6), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_TABLES = st.dictionaries(st.text("abcxyz-", max_size=8), _VALUES, max_size=4)


@given(_TABLES)
def test_tables_survive_the_round_trip(values: dict[str, Any]) -> None:
    data = fields.table(values)

    assert fields.read_table(data, 0) == (values, len(data))


@given(
    st.text("0123456789abcdef", max_size=20),
    st.text(max_size=20),
    st.text("0123456789", max_size=9),
    _TABLES,
    st.booleans(),
    st.text(max_size=20),
)
def test_properties_survive_the_round_trip(
    name: str, reply_to: str, expiration: str, headers: dict[str, Any], persistent: bool, user: str
) -> None:
    properties = Properties(name, reply_to, name, expiration, headers, persistent, "", user)

    assert decode_properties(encode_properties(properties, 1)) == properties


@given(st.binary(max_size=80))
def test_any_bytes_decode_to_properties_or_are_refused(data: bytes) -> None:
    for each in (data, bytes.fromhex("003c0000") + bytes(8) + data):
        complaint = "not refused"
        try:
            decode_properties(each)
        except RemoteViolation as violation:
            complaint = str(violation)
        assert complaint


def test_malformed_headers_leave_the_rest_readable() -> None:
    whole = encode_properties(Properties("c", "r", headers={"x-a": "b"}), 0)
    broken = whole.replace(b"\x03x-aS", b"\x03x-aQ")  # a type that does not exist

    properties = decode_properties(broken)

    assert (properties.correlation_id, properties.reply_to) == ("c", "r")
    assert "unknown type 'Q'" in properties.flaw


def test_too_deeply_nested_tables_are_refused() -> None:
    data = fields.table({})
    for _ in range(40):
        data = fields.long(b"\x01aF" + data)
    with pytest.raises(RemoteViolation, match="too deep"):
        fields.read_table(data, 0)


def test_values_that_cannot_be_encoded_are_refused() -> None:
    with pytest.raises(LocalViolation, match="255 bytes"):
        methods.publish("", "k" * 256)
    with pytest.raises(LocalViolation, match="cannot contain"):
        fields.table({"a": 1.5})


# --- correlation ids, statuses, deadlines and attempts --------------------------------------------
@requirement("amqp:correlation-id")
def test_correlation_ids_are_slot_and_sequence_number() -> None:
    request_id = 3 << 32 | 0xABCD

    assert wire.correlation_id(request_id) == "000000030000abcd"
    assert wire.request_id_of("000000030000abcd") == request_id


@pytest.mark.parametrize(
    "text",
    ["", "3", "0x0000030000abcd", " 00000030000abcd", "000000030000ABCD", "é" * 16, "_" * 16],
)
def test_foreign_correlation_ids_have_no_request_id(text: str) -> None:
    assert wire.request_id_of(text) == -1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("error", "RemoteFailure"),
        ("rejected", "RemoteFailure"),
        ("expired", "CallTimeout"),
        ("maxlen", "Overloaded"),
        ("delivery_limit", "Poisoned"),
        ("whatever", "RemoteFailure"),
        (7, "RemoteFailure"),
        ({"a": 1}, "RemoteFailure"),
    ],
)
def test_each_status_maps_to_an_error(status: Any, error: str) -> None:
    found = wire.status_error(status, b"why", 1)

    assert type(found).__name__ == error
    assert "why" in str(found)


def test_ok_or_no_status_is_no_error() -> None:
    assert wire.status_error(None, b"", 1) is None
    assert wire.status_error("ok", b"", 1) is None


@pytest.mark.parametrize(
    ("remaining_s", "text"), [(2.5, "2500"), (0.0001, "1"), (float("inf"), ""), (1e9, "")]
)
def test_a_deadline_is_sent_as_the_remaining_milliseconds(remaining_s: float, text: str) -> None:
    assert wire.expiration(remaining_s) == text


@pytest.mark.parametrize(
    ("headers", "redelivered", "attempt"),
    [
        ({}, False, 1),
        ({}, True, 2),
        ({"x-delivery-count": 3}, True, 4),
        ({"x-acquired-count": 4, "x-delivery-count": 2}, True, 3),
        ({"x-delivery-count": "many"}, True, 2),
        ({"x-delivery-count": -1}, False, 1),
    ],
)
def test_the_attempt_is_read_from_the_headers_of_a_delivery(
    headers: dict[str, Any], redelivered: bool, attempt: int
) -> None:
    assert wire.attempt_of(Properties(headers=headers), redelivered) == attempt
