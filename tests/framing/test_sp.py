"""The SP stream mappings (sp-tcp-mapping-01, sp-ipc-mapping-01), byte by byte, and their limits."""

import tracemalloc
from struct import pack

import pytest

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import Limits, SpStream

REQ, REP = 48, 49
MIB = 1 << 20

HELLO_REQ = bytes.fromhex("0053500000300000")
HELLO_REP = bytes.fromhex("0053500000310000")
REQUEST = bytes.fromhex("0000000000000009 80000001 48656c6c6f")
# The example of the draft: a request through two devices, as the service receives it, and its
# reply.
REQUEST_OF_TWO_HOPS = bytes.fromhex("0000000000000011 000001be 0000012b 80000337 48656c6c6f")
REPLY_OF_TWO_HOPS = bytes.fromhex("0000000000000011 000001be 0000012b 80000337 576f726c64")
IPC_REQUEST = bytes.fromhex("01 0000000000000009 80000001 48656c6c6f")

SMALL = Limits(message_size_bytes_max=1000)


def connected(**options: object) -> SpStream:
    """Return the framing of a REP that has received a REQ's header."""
    framing = SpStream(REP, REQ, **options)
    assert framing.receive(HELLO_REQ) == []
    return framing


def pieces(framing: SpStream, *messages: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    added = sum(framing.encode(message, out) for message in messages)
    assert added == sum(map(len, out))
    return out


def wire(framing: SpStream, *messages: list[bytes]) -> bytes:
    return b"".join(pieces(framing, *messages))


def chunked(framing: SpStream, data: bytes, step: int) -> list[list[bytes]]:
    got = []
    for at in range(0, len(data), step):
        got += framing.receive(data[at : at + step])
    return got


def refusal(framing: SpStream, data: bytes) -> str:
    with pytest.raises(RemoteViolation) as caught:
        framing.receive(data)
    for ask in (framing.at_end, lambda: framing.receive(b""), lambda: framing.receive(HELLO_REQ)):
        with pytest.raises(RemoteViolation) as again:
            ask()
        assert str(again.value) == str(caught.value)
    assert framing.output() == b""
    assert not framing.mid_message
    return str(caught.value)


@pytest.fixture(params=[False, True], ids=["stream", "ipc"])
def in_band(request) -> bool:
    return request.param


@pytest.fixture
def framing(in_band) -> SpStream:
    return connected(in_band=in_band)


# --- the header -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "peer", "header"), [(48, 49, HELLO_REQ), (49, 48, HELLO_REP)])
def test_the_header_is_sent_at_once_and_only_once(own, peer, header, in_band):
    framing = SpStream(own, peer, in_band=in_band)
    assert framing.opening() == header
    assert framing.output() == b""
    assert not framing.ready


@pytest.mark.parametrize("cut", range(9))
def test_the_framing_is_ready_after_the_last_byte_of_the_peers_header(cut, in_band):
    framing = SpStream(REP, REQ, in_band=in_band)
    assert framing.receive(HELLO_REQ[:cut]) == []
    assert framing.ready == (cut == 8)
    assert framing.receive(HELLO_REQ[cut:]) == []
    assert framing.ready
    assert framing.peer_identity == b""
    assert framing.output() == b""
    framing.at_end()


@pytest.mark.parametrize(
    "beginning",
    ["01", "0054", "005351", "00535001", "ff00000000000000017f", b"GET / HTTP/1.1".hex(), "1603"],
)
def test_an_invalid_header_is_refused_at_its_first_wrong_byte(beginning):
    assert "does not speak SP" in refusal(SpStream(REP, REQ), bytes.fromhex(beginning))


@pytest.mark.parametrize(
    ("beginning", "name"),
    [
        (b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01", "those of ZMTP of ZeroMQ (use mdp://"),
        (b"GET / HTTP/1.1\r\n", "those of an HTTP request"),
        (b"\x16\x03\x01", "those of TLS (use mdp+tls://"),
        (b"\x7fELF", r"b'\x7fELF'"),
    ],
)
def test_the_error_names_another_protocol(beginning, name):
    assert f"its first bytes are {name}" in refusal(SpStream(REP, REQ), beginning)


@pytest.mark.parametrize("at", range(8))
def test_every_byte_of_the_header_is_checked(at):
    for value in set(range(256)) - {HELLO_REQ[at]}:
        framing = SpStream(REP, REQ)
        header = HELLO_REQ[:at] + bytes((value,)) + HELLO_REQ[at + 1 :]
        with pytest.raises(RemoteViolation):
            framing.receive(header)
        assert not framing.ready


def test_reserved_bytes_that_are_not_zero_are_refused():
    assert "0x0100, not zero" in refusal(SpStream(REP, REQ), bytes.fromhex("0053500000300100"))


@pytest.mark.parametrize(
    ("own", "peer", "announced", "reason"),
    [
        (48, 49, 16, r"type 16 \(PAIR0.*; this REQ accepts only 49 \(REP\)"),
        (48, 49, 48, r"type 48 \(REQ\); this REQ accepts only 49 \(REP\)"),
        (49, 48, 49, r"type 49 \(REP\); this REP accepts only 48 \(REQ\)"),
        (49, 48, 98, r"type 98 \(SURVEYOR\); this REP accepts only 48"),
        (49, 48, 0x1234, r"type 4660 \(unknown\); this REP accepts only 48"),
        (16, 17, 49, r"type 49 \(REP\); this REQ accepts only 17 \(.*REP by the draft"),
        (
            3840,
            3841,
            48,
            r"type 48 \(REQ\); this endpoint of type 3840 accepts only 3841 \(unknown\)",
        ),
    ],
)
def test_an_incompatible_endpoint_is_refused_with_both_types(own, peer, announced, reason):
    with pytest.raises(RemoteViolation, match=reason):
        SpStream(own, peer).receive(pack(">4sHH", b"\0SP\0", announced, 0))


@pytest.mark.parametrize("cut", range(8))
def test_end_of_stream_inside_the_header_is_refused(cut):
    framing = SpStream(REP, REQ)
    framing.receive(HELLO_REQ[:cut])
    assert not framing.mid_message  # no message has begun
    with pytest.raises(RemoteViolation, match="before its SP header was complete"):
        framing.at_end()


@pytest.mark.parametrize("message", [[b"x"], [b"tags", b"body"], [b"x" * 300], [b"a", bytes(256)]])
def test_nothing_is_encoded_before_the_peers_header(message, in_band):
    framing, out = SpStream(REP, REQ, in_band=in_band), [b"before"]
    with pytest.raises(LocalViolation, match="before the peer's SP header"):
        framing.encode(message, out)
    assert out == [b"before"]


# --- messages -------------------------------------------------------------------------------------


def test_golden_bytes_of_a_request():
    assert connected().receive(REQUEST) == [[b"\x80\0\0\x01Hello"]]
    assert wire(connected(), [b"\x80\0\0\x01", b"Hello"]) == REQUEST
    assert wire(connected(), [b"\x80\0\0\x01Hello"]) == REQUEST


def test_golden_bytes_of_the_drafts_example():
    framing = connected()
    [[payload]] = framing.receive(REQUEST_OF_TWO_HOPS)
    assert payload == bytes.fromhex("000001be 0000012b 80000337") + b"Hello"
    assert wire(framing, [payload[:12], b"World"]) == REPLY_OF_TWO_HOPS
    assert wire(framing, [payload[:4], payload[4:8], payload[8:12], b"World"]) == REPLY_OF_TWO_HOPS


def test_golden_bytes_of_a_request_over_ipc():
    framing = connected(in_band=True)
    assert framing.receive(IPC_REQUEST) == [[b"\x80\0\0\x01Hello"]]
    assert wire(framing, [b"\x80\0\0\x01", b"Hello"]) == IPC_REQUEST


def test_header_and_messages_may_arrive_in_one_chunk():
    framing = SpStream(REP, REQ)
    assert framing.receive(HELLO_REQ + REQUEST + REQUEST) == [[b"\x80\0\0\x01Hello"]] * 2
    framing.at_end()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, MIB])
@pytest.mark.parametrize("form", [bytes, memoryview])
def test_a_message_is_sent_as_its_size_and_its_uncopied_pieces(framing, in_band, size, form):
    body = form(b"x" * size)
    for message in ([body], [b"tags", body], [b"one", b"two", body]):
        out = pieces(framing, message)
        total = sum(map(len, message))
        assert out[0] == b"\x01" * in_band + pack(">Q", total)
        assert [id(piece) for piece in out[1:]] == [id(piece) for piece in message]
        assert framing.receive(b"".join(out)) == [[b"".join(message)]]
    framing.at_end()


def test_an_empty_message_is_a_message(framing, in_band):
    empty = b"\x01" * in_band + bytes(8)
    assert wire(framing, [], [b""], [b"", b""], [b"", b"", b""]) == empty * 4
    assert framing.receive(empty * 4) == [[b""]] * 4
    assert chunked(framing, empty * 4, 1) == [[b""]] * 4
    framing.at_end()


def test_messages_are_separate_lists_of_bytes(framing):
    first, second = framing.receive(wire(framing, [b"a"], [b"b"]))
    first.append(b"mine")
    assert second == [b"b"]
    assert type(second[0]) is bytes


@pytest.mark.parametrize("step", [1, 2, 7, 8, 9, 64, 255, 4096, 65537])
def test_any_chunks_give_the_same_messages(framing, step):
    messages = [[b"%d" % size * (size // 4)] for size in (0, 4, 1024, 5000, 0, 0, 20_000, 4)]
    assert chunked(framing, wire(framing, *messages), step) == messages
    framing.at_end()


def test_end_of_stream_inside_a_message_is_refused_at_any_byte(in_band):
    data = wire(connected(in_band=in_band), [b"abc", b"x" * 300])
    for cut in range(1, len(data)):
        framing = connected(in_band=in_band)
        assert framing.receive(data[:cut]) == []
        assert framing.mid_message
        with pytest.raises(RemoteViolation, match="middle of a message"):
            framing.at_end()
        assert framing.receive(data[cut:]) == [[b"abc" + b"x" * 300]]
        assert not framing.mid_message
        framing.at_end()


@pytest.mark.parametrize("kind", [0, 2, 3, 0x80, 0xFF])
def test_other_types_of_ipc_messages_are_refused(kind):
    framing = connected(in_band=True)
    data = bytes((kind,)) + IPC_REQUEST[1:]
    assert f"unknown IPC type {kind:#04x}" in refusal(framing, IPC_REQUEST + data)


# --- memory use -----------------------------------------------------------------------------------


def test_peak_memory_while_a_long_message_arrives(framing, in_band):
    """Receiving a message of 16 MiB in chunks of 64 KiB takes twice its size: the chunks, and the
    joined message."""
    size, step = 16 * MIB, 65536
    chunk = b"x" * step
    tracemalloc.start()
    try:
        framing.receive(b"\x01" * in_band + pack(">Q", size))
        messages = []
        for _ in range(size // step):
            messages += framing.receive(chunk[:-1] + b"y")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [[len(payload)] for [payload] in messages] == [[size]]
    assert messages[0][0].count(b"y") == size // step
    assert peak < 2.1 * size


def test_chunks_of_one_byte_take_little_memory():
    framing = connected()
    framing.receive(pack(">Q", MIB))
    tracemalloc.start()
    try:
        for _ in range(100_000):
            framing.receive(b"xy"[:1])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 110_000


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [(64 << 20) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_size_over_the_limit_is_refused_when_announced(framing, in_band, announced):
    data = b"\x01" * in_band + pack(">Q", announced)
    tracemalloc.start()
    try:
        assert f"{announced} bytes; the maximum is {64 << 20}" in refusal(framing, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("step", [1, 10, 999, 1008, 5000])
def test_messages_of_exactly_the_limit_are_accepted(in_band, step):
    framing = connected(in_band=in_band, limits=SMALL)
    messages = [[b"x" * 1000], [b""], [b"y" * 1000], [b"z" * 1000]]
    assert chunked(framing, wire(framing, *messages), step) == messages
    framing.at_end()


@pytest.mark.parametrize("step", [1, 10, 999, 1008, 5000])
def test_one_byte_more_than_the_limit_is_refused(in_band, step):
    framing = connected(in_band=in_band, limits=SMALL)
    data = wire(framing, [b"x" * 1000], [b"x" * 1001], [b""])
    with pytest.raises(RemoteViolation, match="1001 bytes; the maximum is 1000"):
        chunked(framing, data, step)


def test_limits_apply_to_received_messages_only(in_band):
    framing = connected(in_band=in_band, limits=SMALL)
    assert len(wire(framing, [bytes(2000)])) == 2008 + in_band


@pytest.mark.parametrize("size", [0, 1, 4, 15, 300])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 64])
def test_runs_of_messages_of_equal_size(framing, in_band, size, count):
    """The framing parses runs of messages of equal size by a faster path, with equal results."""
    messages = [[bytes((number % 256,)) * size] for number in range(count)]
    others = [[b"y" * (size + 1)], [b"z" * size], [b"z" * size]]
    run = wire(framing, *messages)
    assert framing.receive(run) == messages
    assert framing.receive(run + wire(framing, *others)) == messages + others
    assert framing.receive(wire(framing, *others) + run) == others + messages
    for cut in range(0, len(run), 7):
        assert framing.receive(run[:cut]) + framing.receive(run[cut:] + run) == messages * 2
    framing.at_end()


@pytest.mark.parametrize("at", [0, 1, 4, 63])
def test_a_wrong_type_in_a_run_of_ipc_messages_is_refused(at):
    framing = connected(in_band=True)
    data = bytearray(IPC_REQUEST * 64)
    data[at * len(IPC_REQUEST)] = 7
    assert "unknown IPC type 0x07" in refusal(framing, bytes(data))


def test_a_run_of_messages_over_the_limit_is_refused(in_band):
    framing = connected(in_band=in_band, limits=SMALL)
    data = wire(framing, *[[b"x" * 1001]] * 5)
    assert "1001 bytes; the maximum is 1000" in refusal(framing, data)
