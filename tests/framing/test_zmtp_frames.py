"""Frames of messages and commands of ZMTP, byte by byte, and their limits (RFC 37, Framing)."""

import tracemalloc
from struct import pack

import pytest

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import Limits, RefusedByPeer, SocketType, Zmtp
from requite.framing.zmtp_frames import FrameReader

MIB = 1 << 20
SIZE_HEADERS = {
    0: "00 00",
    1: "00 01",
    255: "00 ff",
    256: "02 0000000000000100",
    65535: "02 000000000000ffff",
    65536: "02 0000000000010000",
    MIB: "02 0000000000100000",
}


@pytest.fixture
def framing(connect) -> Zmtp:
    return connect()[0]


def pieces(framing: Zmtp, *messages: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    added = sum(framing.encode(message, out) for message in messages)
    assert added == sum(map(len, out))
    return out


def wire(framing: Zmtp, *messages: list[bytes]) -> bytes:
    return b"".join(pieces(framing, *messages))


def refusal(framing: Zmtp, data: bytes) -> str:
    with pytest.raises(RemoteViolation) as caught:
        framing.receive(data)
    with pytest.raises(RemoteViolation):
        framing.receive(b"")
    assert framing.output() == b""
    return str(caught.value)


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZE_HEADERS)
def test_one_frame_at_the_limits_of_size_formats(framing, size):
    body = b"x" * size
    out = pieces(framing, [body])
    assert out[0] == bytes.fromhex(SIZE_HEADERS[size])
    assert out[1] is body  # not copied
    assert framing.receive(b"".join(out)) == [[body]]
    framing.at_end()


@pytest.mark.parametrize("size", SIZE_HEADERS)
def test_all_frames_but_the_last_have_the_more_flag(framing, size):
    body = b"x" * size
    out = pieces(framing, [body, b"", body])
    header = bytes.fromhex(SIZE_HEADERS[size])
    assert out[::2] == [bytes((header[0] | 1,)) + header[1:], b"\x01\x00", header]
    assert framing.receive(b"".join(out)) == [[body, b"", body]]


def test_golden_bytes_of_messages(framing):
    data = bytes.fromhex("01 05 68656c6c6f  03 0000000000000001 2c  00 00   00 01 78")
    assert framing.receive(data) == [[b"hello", b",", b""], [b"x"]]


def test_a_small_body_may_arrive_in_a_long_frame(framing):
    assert framing.receive(bytes.fromhex("02 0000000000000000 02 0000000000000002 6162")) == [
        [b""],
        [b"ab"],
    ]


def test_a_message_without_frames_cannot_be_sent(framing):
    out = [b"before"]
    with pytest.raises(LocalViolation, match="at least one frame"):
        framing.encode([], out)
    assert out == [b"before"]


def test_messages_are_separate_lists(framing):
    first, second = framing.receive(b"\x00\x01a\x00\x01b")
    first.append(b"mine")
    assert second == [b"b"]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 255, 256, 4096, 65537])
def test_any_chunks_give_the_same_messages(framing, step):
    messages = [
        [b"a" * size, b"", b"b" * other]
        for size in (0, 1, 254, 256, 5000)
        for other in (0, 255, 257, 9000)
    ]
    data = wire(framing, *messages)
    got = []
    for at in range(0, len(data), step):
        got += framing.receive(data[at : at + step])
    assert got == messages
    framing.at_end()


def test_end_of_stream_inside_a_message_is_refused_at_any_byte(connect):
    framing, peer = connect()
    data = wire(peer, [b"abc", b"x" * 300, b""])
    for cut in range(1, len(data)):
        framing, _ = connect()
        assert framing.receive(data[:cut]) == []
        with pytest.raises(RemoteViolation, match="middle of a message"):
            framing.at_end()


def test_peak_memory_while_a_long_body_arrives(framing):
    """Receiving a body of 16 MiB in chunks of 64 KiB takes twice its size: the chunks, and the
    joined body."""
    size, step = 16 * MIB, 65536
    chunk = b"x" * step
    tracemalloc.start()
    try:
        framing.receive(b"\x01\x01a\x02" + pack(">Q", size))
        messages = []
        for _ in range(size // step):
            messages += framing.receive(chunk[:-1] + b"y")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in messages[0]] == [1, size]
    assert messages[0][1].count(b"y") == size // step
    assert peak < 2.1 * size


def test_chunks_of_one_byte_take_little_memory(framing):
    framing.receive(b"\x02" + pack(">Q", MIB))
    tracemalloc.start()
    try:
        for _ in range(100_000):
            framing.receive(b"xy"[:1])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 110_000


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [(64 << 20) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("flags", [2, 3])
def test_a_size_over_the_limit_is_refused_when_announced(framing, announced, flags):
    tracemalloc.start()
    try:
        assert "the maximum is" in refusal(framing, bytes((flags,)) + pack(">Q", announced))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def chunked(framing: Zmtp, data: bytes, step: int) -> list[list[bytes]]:
    got = []
    for at in range(0, len(data), step):
        got += framing.receive(data[at : at + step])
    return got


SMALL = Limits(message_size_bytes_max=1000, frames_max=5)


@pytest.mark.parametrize("step", [1, 10, 300, 5000])
@pytest.mark.parametrize(
    "sizes", [(1000,), (744, 256), (0, 0, 0, 0, 1000), (200,) * 5, (255, 255, 255, 235), (0,) * 5]
)
def test_messages_at_the_limits_are_accepted(connect, step, sizes):
    framing, peer = connect(limits=SMALL)
    message = [b"x" * size for size in sizes]
    data = wire(peer, message, message, message)
    assert chunked(framing, data, step) == [message] * 3
    framing.at_end()


@pytest.mark.parametrize("step", [1, 10, 300, 5000])
@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ((1001,), "at least 1001 bytes; the maximum is 1000"),
        ((745, 256), "at least 1001 bytes; the maximum is 1000"),
        ((255, 255, 255, 236), "at least 1001 bytes; the maximum is 1000"),
        ((200, 200, 601), "at least 1001 bytes; the maximum is 1000"),
        ((0,) * 6, "more than 5 frames"),
        ((0, 0, 0, 0, 0, 300), "more than 5 frames"),
        ((300, 0, 0, 0, 0, 0, 0, 0), "more than 5 frames"),
    ],
)
def test_messages_over_the_limits_are_refused(connect, step, sizes, reason):
    framing, peer = connect(limits=SMALL)
    data = wire(peer, [b""], [b"x" * size for size in sizes])
    with pytest.raises(RemoteViolation, match=reason):
        chunked(framing, data, step)


@pytest.mark.parametrize("body", [b"", b"x" * 250, b"x" * 300])
def test_an_endless_message_is_refused(connect, body):
    framing, _ = connect(limits=SMALL)
    frame = b"\x01" + bytes((len(body),)) if len(body) < 256 else b"\x03" + pack(">Q", len(body))
    with pytest.raises(RemoteViolation):
        chunked(framing, (frame + body) * 7, 1)


def test_the_sixth_frame_is_refused_when_its_size_is_announced(connect):
    framing, _ = connect(limits=SMALL)
    framing.receive(b"\x01\x00" * 5)
    assert "more than 5 frames" in refusal(framing, b"\x02" + pack(">Q", 300))


def test_a_size_limit_below_the_frame_limit_applies(connect):
    framing, peer = connect(limits=Limits(message_size_bytes_max=10, frames_max=1000))
    assert framing.receive(wire(peer, [b"x" * 10])) == [[b"x" * 10]]
    assert "11 bytes" in refusal(framing, wire(peer, [b"x" * 11]))


def test_small_messages_bypass_the_exact_check_of_limits(framing, monkeypatch):
    """Most messages take a faster path that never reaches the exact check of limits."""
    data = wire(framing, *[[b"x" * 40, b"y" * 1000]] * 100)

    def counted(*_):
        raise AssertionError("an ordinary message was counted")

    monkeypatch.setattr(FrameReader, "_check_limits", counted)
    for step in (100, 1000, 50_000, len(data)):
        assert len(chunked(framing, data, step)) == 100


def test_commands_do_not_count_towards_message_limits(connect):
    framing, peer = connect(limits=SMALL)
    ping = b"\x04\x17\x04PING\x00\x00" + bytes(16)
    message = [b"x" * 200] * 5
    out = pieces(peer, message)
    frames = [header + body for header, body in zip(out[::2], out[1::2], strict=True)]
    data = (ping * 10).join(frames)
    assert framing.receive(data) == [message]
    assert framing.receive(data) == [message]


# --- flags --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [5, 7, 8, 9, 10, 12, 16, 32, 64, 128, 132, 255])
def test_reserved_bits_and_commands_with_more_are_refused(framing, flags):
    assert f"{flags:#04x}" in refusal(framing, bytes((flags,)) + bytes(20))


# --- commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [b"", b"\x00", b"0123456789abcdef"])
def test_ping_is_answered_by_pong_with_its_context(framing, context):
    ping = bytes((4, 7 + len(context))) + b"\x04PING\x00\x64" + context
    assert framing.receive(ping) == []
    assert framing.output() == bytes((4, 5 + len(context))) + b"\x04PONG" + context
    assert framing.output() == b""
    assert framing.peer_ttl_s == 10.0


def test_pings_are_answered_in_order_and_in_long_frames_too(framing):
    ping = b"\x04\x08\x04PING\x00\x001" + b"\x06" + pack(">Q", 8) + b"\x04PING\x00\x002"
    assert framing.receive(b"\x00\x01a" + ping + b"\x00\x01b") == [[b"a"], [b"b"]]
    assert framing.output() == b"\x04\x06\x04PONG1\x04\x06\x04PONG2"


def test_commands_may_arrive_between_the_frames_of_a_message(framing):
    # libzmq sends heartbeats between frames when a message does not fit into its output buffer.
    ping = b"\x04\x07\x04PING\x00\x00"
    data = b"\x01\x01a" + ping + b"\x01\x01b" + ping + b"\x00\x01c"
    for at in range(len(data)):
        got = framing.receive(data[:at])
        assert got + framing.receive(data[at:]) == [[b"a", b"b", b"c"]]
        assert framing.output() == b"\x04\x05\x04PONG" * 2


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00" + bytes(17)])
def test_a_ping_of_a_wrong_size_is_refused(framing, data):
    assert "PING" in refusal(framing, bytes((4, 5 + len(data))) + b"\x04PING" + data)


def test_a_flood_of_commands_in_one_read_is_refused(framing):
    ping = b"\x04\x07\x04PING\x00\x00"
    for _ in range(3):
        assert framing.receive(ping * 1024) == []
        assert framing.output() == b"\x04\x05\x04PONG" * 1024
    assert "more than 1024 commands at once" in refusal(framing, ping * 1025)


def test_ping_is_ignored_from_a_peer_of_3_0():
    framing = Zmtp(SocketType.ROUTER)
    greeting = Zmtp(SocketType.DEALER).opening()
    framing.receive(greeting[:11] + b"\x00" + greeting[12:])
    framing.receive(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
    framing.output()
    assert framing.receive(b"\x04\x07\x04PING\x00\x64\x00\x01a") == [[b"a"]]
    assert framing.output() == b""
    assert framing.peer_ttl_s == 0.0


@pytest.mark.parametrize(
    "command", [b"\x04PONG", b"\x09SUBSCRIBEx", b"\x05READY", b"\x07UNHEARDdata", b"\x01\xff"]
)
def test_other_commands_are_ignored(framing, command):
    assert framing.receive(bytes((4, len(command))) + command + b"\x00\x01a") == [[b"a"]]
    assert framing.output() == b""


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00PING", b"\x05PING"])
def test_commands_without_a_complete_name_are_refused(framing, body):
    assert "name" in refusal(framing, bytes((4, len(body))) + body)


@pytest.mark.parametrize("size", [4097, 1 << 63])
def test_a_long_command_is_refused_when_announced(framing, size):
    assert "a command of" in refusal(framing, b"\x06" + pack(">Q", size))


def test_an_error_command_is_raised_with_its_reason(framing):
    with pytest.raises(RefusedByPeer, match="Shutting-down"):
        framing.receive(b"\x04\x14\x05ERROR\x0dShutting-down")
