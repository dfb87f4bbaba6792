"""AMQP 0.9.1 on a stream: the handshake, frames in any chunks, content, refusals and malformed
data."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header
from pamqp.body import ContentBody
from pamqp.heartbeat import Heartbeat

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.amqp import Amqp, AmqpSettings
from requite.framing.base import Message
from requite.protocols.amqp import methods
from requite.protocols.amqp.fields import table
from requite.protocols.amqp.methods import CONNECTION

WORK = methods.channel(1)
_OPENED = frame.marshal(commands.Connection.OpenOk(), 0)


def start(mechanisms: bytes = b"PLAIN AMQPLAIN") -> bytes:
    """Return RabbitMQ's first frame, connection.start. The table is encoded by hand, since pamqp
    would encode it differently from RabbitMQ."""
    payload = methods.CONNECTION_START + b"\0\x09" + table({"product": "RabbitMQ"})
    payload += pack(">I", len(mechanisms)) + mechanisms + pack(">I", 5) + b"en_US"
    return b"\x01\0\0" + pack(">I", len(payload)) + payload + b"\xce"


def tune(heartbeat_s: int = 60, frame_size: int = 131072) -> bytes:
    return bytes(frame.marshal(commands.Connection.Tune(2047, frame_size, heartbeat_s), 0))


def opened(settings: AmqpSettings | None = None, **tuned: int) -> Amqp:
    framing = Amqp(settings or AmqpSettings())
    framing.receive(start())
    framing.receive(tune(**tuned))
    framing.receive(_OPENED)
    framing.output()
    return framing


def delivery(body: bytes, step: int = 100) -> bytes:
    parts = [
        frame.marshal(commands.Basic.Deliver("c", 1, False, "", "k"), 1),
        frame.marshal(header.ContentHeader(body_size=len(body)), 1),
    ]
    parts += [
        frame.marshal(ContentBody(body[at : at + step]), 1) for at in range(0, len(body), step)
    ]
    return b"".join(parts)


# --- the handshake --------------------------------------------------------------------------------
def test_the_handshake() -> None:
    framing = Amqp(AmqpSettings("v", "user", "secret", heartbeat_s=20))
    assert framing.opening() == b"AMQP\0\0\x09\x01"

    assert framing.receive(start()) == []
    said = framing.output()
    assert b"\x05PLAIN" in said
    assert b"\0user\0secret" in said
    assert not framing.ready

    assert framing.receive(tune(heartbeat_s=60)) == []
    _, _, answer = frame.unmarshal(framing.output())
    assert (answer.frame_max, answer.heartbeat) == (131072, 20)

    [[channel, agreed]] = framing.receive(_OPENED)
    assert framing.ready
    assert (channel, methods.decode(agreed)) == (CONNECTION, methods.Tuned(16, 131072, 20))


@pytest.mark.parametrize(("ours", "theirs", "agreed"), [(20, 5, 5), (20, 0, 0), (0, 60, 0)])
def test_the_shorter_heartbeat_interval_applies(ours: int, theirs: int, agreed: int) -> None:
    framing = Amqp(AmqpSettings(heartbeat_s=ours))
    framing.receive(start())
    framing.receive(tune(heartbeat_s=theirs))
    [[_, said]] = framing.receive(_OPENED)

    assert methods.decode(said) == methods.Tuned(16, 131072, agreed)


def test_a_refused_connection_is_reported() -> None:
    framing = Amqp(AmqpSettings(vhost="nowhere"))
    framing.receive(start())
    framing.receive(tune())
    [[channel, refusal]] = framing.receive(
        frame.marshal(commands.Connection.Close(530, "NOT_ALLOWED", 10, 40), 0)
    )

    assert framing.ready
    assert channel == CONNECTION
    assert methods.decode(refusal) == methods.Closed(530, "NOT_ALLOWED", methods.CONNECTION_OPEN)
    assert framing.farewell == "RabbitMQ closed the connection: 530 NOT_ALLOWED"
    assert methods.CONNECTION_CLOSE_OK in framing.output()
    assert framing.encode([], []) == 0


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"AMQP\0\1\0\0", "not speak AMQP 0.9.1, but 0.1.0.0"),
        (
            b"HTTP/1.1 400 Bad Request\r\n",
            "does not speak AMQP: its first bytes are those of an HTTP",
        ),
        (start(b"EXTERNAL"), "does not accept passwords"),
        (_OPENED[:-1] + b"\0", "instead of CE"),
        (start() + tune(frame_size=100), "frames of at most 100 bytes"),
        (start() + frame.marshal(commands.Connection.Blocked("x"), 0), "before the handshake"),
    ],
)
def test_malformed_handshakes_are_refused(said: bytes, why: str) -> None:
    framing = Amqp()
    for _ in range(2):  # every later call raises the same error
        with pytest.raises(RemoteViolation, match=why):
            framing.receive(said)
    with pytest.raises(RemoteViolation, match=why):
        framing.at_end()


def test_nothing_is_encoded_before_the_handshake() -> None:
    with pytest.raises(LocalViolation, match="before the handshake"):
        Amqp().encode([WORK, methods.OPEN_CHANNEL], [])
    with pytest.raises(RemoteViolation, match="may not be RabbitMQ"):
        Amqp().at_end()


# --- traffic --------------------------------------------------------------------------------------
_TRAFFIC = (
    delivery(b"x" * 250)
    + frame.marshal(Heartbeat(), 0)
    + delivery(b"")
    + frame.marshal(commands.Basic.Ack(3, True), 1)
)


def assert_traffic(messages: list[Message]) -> None:
    long, beat, empty, ack = messages
    assert long[0] == WORK
    assert long[3] == b"x" * 250
    assert beat == []
    assert empty[3] == b""
    assert methods.decode(ack[1]) == methods.Confirmed(3, True, True)


def test_messages_are_assembled_from_frames() -> None:
    assert_traffic(opened().receive(_TRAFFIC))


@given(st.lists(st.integers(1, 60), min_size=1))
def test_any_chunks_give_the_same_messages(sizes: list[int]) -> None:
    framing = opened()
    messages: list[Message] = []
    at = 0
    while at < len(_TRAFFIC):
        size = sizes[len(messages) % len(sizes)]
        messages += framing.receive(_TRAFFIC[at : at + size])
        at += size
    assert_traffic(messages)
    assert not framing.mid_message
    framing.at_end()


@given(st.binary(max_size=200), st.integers(0, len(_TRAFFIC)))
def test_any_bytes_are_accepted_or_refused(garbage: bytes, at: int) -> None:
    for framing in (opened(), Amqp()):
        try:
            framing.receive(_TRAFFIC[:at] + garbage)
        except RemoteViolation:
            with pytest.raises(RemoteViolation):
                framing.receive(b"")


def test_a_body_over_the_limit_is_dropped() -> None:
    framing = opened(AmqpSettings(body_size_max=200))

    large, small = framing.receive(delivery(b"x" * 250) + delivery(b"y" * 200))

    assert len(large) == 3
    assert small[3] == b"y" * 200


def test_pamqp_decodes_our_frames() -> None:
    framing = opened(frame_size=4096)
    out: list[bytes] = []
    body = bytes(5000)
    content = header.ContentHeader(body_size=5000).marshal()

    size = framing.encode([WORK, methods.publish("", "k"), content, body], out)
    size += framing.encode([], out)

    said = b"".join(out)
    assert len(said) == size
    frames = []
    while said:
        used, channel, each = frame.unmarshal(said)
        frames.append((channel, type(each).__name__, used))
        said = said[used:]
    names = ["Publish", "ContentHeader", "ContentBody", "ContentBody", "Heartbeat"]
    assert [name for _, name, _ in frames] == names
    assert [channel for channel, _, _ in frames] == [1, 1, 1, 1, 0]
    assert max(used for _, _, used in frames) == 4096


def test_closing_sends_connection_close_once() -> None:
    framing = opened()

    _, channel, close = frame.unmarshal(framing.closing())

    assert (channel, close.reply_code) == (0, 200)
    assert framing.closing() == b""
    assert framing.receive(_TRAFFIC) == []


@pytest.mark.parametrize(
    "said",
    [
        frame.marshal(header.ContentHeader(body_size=1), 1),
        frame.marshal(ContentBody(b"x"), 1),
        delivery(b"xy")[: -len(frame.marshal(ContentBody(b"xy"), 1))]
        + frame.marshal(ContentBody(b"xyz"), 1),
        delivery(b"xy")[: -len(frame.marshal(ContentBody(b"xy"), 1))]
        + frame.marshal(commands.Basic.Ack(1), 1),
        b"\x01\0\1\x7f\xff\xff\xff\0",
    ],
    ids=["header alone", "body alone", "body too long", "method inside", "frame too long"],
)
def test_unexpected_frames_are_refused(said: bytes) -> None:
    framing = opened()
    with pytest.raises(RemoteViolation):
        framing.receive(said)
