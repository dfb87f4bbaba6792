"""WebSocket messages and control frames, byte by byte, and their limits.

RFC 6455, sections 5 to 7. Where section 5.7 has an example, the bytes are those of the example.
"""

import tracemalloc
from struct import pack

import pytest
from tests.support.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    HOST,
    KEY,
    PING,
    PONG,
    REP,
    REQ,
    TEXT,
    connected_client,
    connected_server,
    frame,
    frames_of,
    upgrade,
    xor,
)

from requite.errors import RemoteViolation
from requite.framing import Limits, SpWebSocket
from requite.framing.websocket_traffic import Traffic

MIB = 1 << 20
SMALL = Limits(message_size_bytes_max=1000)


class End:
    """The end of a connection under test: its framing, and whether it sends or receives masked
    frames."""

    def __init__(self, *, is_client: bool, **options: object) -> None:
        self.framing = connected_client(**options) if is_client else connected_server(**options)
        self.masks = is_client
        self.receives_masked = not is_client

    def frame(self, first: int, payload: bytes = b"") -> bytes:
        return frame(first, payload, masked=self.receives_masked)

    def pieces(self, *messages: list[bytes]) -> list[bytes]:
        out: list[bytes] = []
        added = sum(self.framing.encode(message, out) for message in messages)
        assert added == sum(map(len, out))
        return out

    def chunked(self, data: bytes, step: int) -> list[list[bytes]]:
        got = []
        for at in range(0, len(data), step):
            got += self.framing.receive(data[at : at + step])
        return got

    def said(self) -> list[tuple[int, bytes]]:
        output = self.framing.output()
        assert self.framing.output() == b""
        for first, _ in frames_of(output):
            assert first & FIN
        return frames_of(output)

    def refusal(self, data: bytes, step: int = 0) -> tuple[str, int, str]:
        """Return the error that `data` raises, and the code and reason of the Close frame sent to
        the peer."""
        with pytest.raises(RemoteViolation) as caught:
            self.chunked(data, step or len(data))
        told = str(caught.value)
        for ask in (self.framing.at_end, lambda: self.framing.receive(self.frame(0x82, b"x"))):
            with pytest.raises(RemoteViolation) as again:
                ask()
            assert str(again.value) == told
        [(first, payload)] = self.said()
        assert first == FIN | CLOSE
        assert self.framing.closing() == b""  # the Close frame has been sent already
        assert self.pieces([b"late"]) == []
        return told, int.from_bytes(payload[:2], "big"), payload[2:].decode()


@pytest.fixture(params=[True, False], ids=["client", "server"])
def is_client(request) -> bool:
    return request.param


@pytest.fixture
def end(is_client) -> End:
    return End(is_client=is_client)


@pytest.fixture
def small(is_client) -> End:
    return End(is_client=is_client, limits=SMALL)


# --- messages -------------------------------------------------------------------------------------


def test_the_bytes_of_a_message():
    masked = bytes.fromhex("8285 37fa213d 7f9f4d5158")
    plain = bytes.fromhex("8205 48656c6c6f")
    assert b"".join(End(is_client=True).pieces([b"Hello"])) == masked
    assert b"".join(End(is_client=False).pieces([b"He", b"llo"])) == plain
    assert connected_server().receive(masked) == [[b"Hello"]]
    assert connected_client().receive(plain) == [[b"Hello"]]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 125, 126, 1023, 1024, 1025, 65535])
@pytest.mark.parametrize("form", [bytes, memoryview])
def test_a_message_is_one_frame_at_the_limits_of_size_formats(end, size, form):
    body = bytes(range(256)) * 256
    message = [form(b""), form(body[: size // 2]), form(body[size // 2 : size])]
    data = b"".join(end.pieces(message))
    assert data == frame(FIN | BINARY, body[:size], masked=end.masks)


@pytest.mark.parametrize("size", [0, 1, 3, 124, 125, 126, 127, 1024, 1025, 65535, 65536, MIB])
@pytest.mark.parametrize("step", [1 << 30, 65536, 4099])
def test_a_frame_of_any_size_is_read(end, size, step):
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    data = end.frame(FIN | BINARY, body) + end.frame(FIN | BINARY, b"after")
    assert end.chunked(data, step) == [[body], [b"after"]]
    assert not end.framing.mid_message
    end.framing.at_end()


def test_a_server_does_not_copy_what_it_sends():
    end = End(is_client=False)
    tags, body = b"tags", b"x" * 1000
    assert [id(piece) for piece in end.pieces([tags, body])[1:]] == [id(tags), id(body)]
    body = b"x" * MIB
    views = [piece for piece in end.pieces([body]) if isinstance(piece, memoryview)]
    assert all(view.obj is body for view in views)
    assert sum(map(len, views)) == MIB


@pytest.mark.parametrize(
    "message", [[b"x" * 65536], [b"tags", b"", b"y" * MIB], [b"z" * 65535] * 3]
)
@pytest.mark.parametrize("form", [bytes, memoryview])
def test_a_long_message_is_sent_in_frames_that_nng_accepts(is_client, message, form):
    end, other = End(is_client=is_client), End(is_client=not is_client)
    data = b"".join(end.pieces([form(piece) for piece in message]))
    frames = frames_of(data)
    assert max(len(payload) for _, payload in frames) <= 65536
    opcodes = [first for first, _ in frames]
    assert opcodes == [BINARY, *[CONTINUATION] * (len(frames) - 2), FIN | CONTINUATION]
    assert b"".join(payload for _, payload in frames) == b"".join(message)
    assert other.framing.receive(data) == [[b"".join(message)]]


def test_every_frame_has_its_own_mask():
    client = SpWebSocket(REQ, REP, is_client=True, host=HOST)
    upgrade(client, SpWebSocket(REP, REQ, is_client=False))
    out: list[bytes] = []
    for _ in range(1000):
        client.encode([b"\0" * 8], out)
    client.encode([bytes(MIB)], out)
    keys = out[1::3]  # the element after each header
    assert len(keys) == 1000 + 17
    assert len(set(keys)) > 1000  # keys of 32 bits rarely repeat


def test_a_message_in_fragments_is_joined(end):
    fragments = [b"Hel", b"", b"l" * 70_000, b"o"]
    data = end.frame(BINARY, fragments[0])
    data += b"".join(end.frame(CONTINUATION, part) for part in fragments[1:3])
    data += end.frame(FIN | CONTINUATION, fragments[3])
    whole = [[b"".join(fragments)]]
    for step in (len(data), 1000, 65536):
        assert end.chunked(data, step) == whole
    assert end.framing.receive(data + data) == whole * 2


def test_control_frames_may_arrive_between_fragments(end):
    data = end.frame(BINARY, b"a") + end.frame(FIN | PING, b"1") + end.frame(FIN | PONG, b"?")
    data += end.frame(FIN | CONTINUATION, b"b") + end.frame(FIN | PING, b"2")
    for step in (len(data), 1):
        assert end.chunked(data, step) == [[b"ab"]]
        assert end.said() == [(FIN | PONG, b"1"), (FIN | PONG, b"2")]


def test_an_empty_message_is_a_message(end):
    data = end.frame(FIN | BINARY) + end.frame(BINARY) + end.frame(FIN | CONTINUATION)
    assert end.framing.receive(data) == [[b""], [b""]]
    assert b"".join(end.pieces([], [b""])) == frame(FIN | BINARY, b"", masked=end.masks) * 2


@pytest.mark.parametrize("step", [1, 2, 5, 64, 4096])
def test_any_chunks_give_the_same_messages(end, step):
    messages = [[b"%d" % size * (size // 4)] for size in (0, 4, 1024, 5000, 0, 20_000, 4)]
    data = b"".join(end.frame(FIN | BINARY, payload) for [payload] in messages)
    assert end.chunked(data, step) == messages
    end.framing.at_end()


def test_end_of_stream_inside_a_message_is_refused_at_any_byte(end, is_client):
    data = end.frame(BINARY, b"abc") + end.frame(FIN | CONTINUATION, b"x" * 300)
    for cut in range(1, len(data)):
        end = End(is_client=is_client)
        assert end.framing.receive(data[:cut]) == []
        assert end.framing.mid_message
        with pytest.raises(RemoteViolation, match="middle of a message"):
            end.framing.at_end()
        assert end.framing.receive(data[cut:]) == [[b"abc" + b"x" * 300]]
        assert not end.framing.mid_message
        end.framing.at_end()


def test_short_complete_messages_bypass_wsproto(end, monkeypatch):
    """Short messages are parsed by a faster path."""
    data = b"".join(end.frame(FIN | BINARY, b"x" * size) for size in (0, 11, 125, 126, 65535)) * 9

    def slow(*_):
        raise AssertionError("an ordinary message was read slowly")

    monkeypatch.setattr("wsproto.frame_protocol.FrameDecoder.receive_bytes", slow)
    assert len(end.framing.receive(data)) == 45


def test_of_a_chunked_stream_only_messages_at_chunk_borders_use_wsproto(end, monkeypatch):
    data = end.frame(FIN | BINARY, b"x" * 11) * 5000
    slowly = []
    take = Traffic._take

    def count(traffic, frame, messages):
        slowly.append(frame)
        take(traffic, frame, messages)

    monkeypatch.setattr(Traffic, "_take", count)
    assert end.chunked(data, 1000) == [[b"x" * 11]] * 5000
    chunks = len(data) // 1000 + 1
    assert len(slowly) <= 2 * chunks  # each cut splits one frame into two parts


# --- memory use -----------------------------------------------------------------------------------


def test_peak_memory_while_a_long_message_arrives(end):
    size, step = 4 * MIB, 65536
    data = end.frame(FIN | BINARY, b"x" * size)
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    tracemalloc.start()
    try:
        messages = []
        for chunk in chunks:
            messages += end.framing.receive(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [[len(payload)] for [payload] in messages] == [[size]]
    assert peak < 2.1 * size


def test_chunks_of_one_byte_take_little_memory():
    framing = connected_client()
    framing.receive(b"\x82\x7f" + pack(">Q", MIB))
    tracemalloc.start()
    try:
        for _ in range(20_000):
            framing.receive(b"xy"[:1])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 40_000


def test_any_number_of_empty_fragments_takes_no_memory(end):
    end.framing.receive(end.frame(BINARY))
    fragments = end.frame(CONTINUATION) * 500
    tracemalloc.start()
    try:
        for _ in range(20):
            assert end.framing.receive(fragments) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20_000
    assert end.framing.mid_message


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [(64 << 20) + 1, (1 << 63) - 1])
def test_a_size_over_the_limit_is_refused_when_announced(end, announced):
    header = bytes((FIN | BINARY, 127 | 128 * end.receives_masked)) + pack(">Q", announced)
    told, code, reason = end.refusal(header + KEY * end.receives_masked)
    assert (
        told
        == reason
        == f"received a message of at least {announced} bytes; the maximum is {64 << 20}"
    )
    assert code == 1009


@pytest.mark.parametrize("announced", [1 << 63, (1 << 64) - 1])
def test_a_size_beyond_the_rfcs_maximum_is_refused(end, announced):
    header = bytes((FIN | BINARY, 127 | 128 * end.receives_masked)) + pack(">Q", announced)
    told, code, reason = end.refusal(header)
    assert told == reason
    assert code == 1002


@pytest.mark.parametrize("step", [1, 10, 999, 5000])
def test_messages_of_exactly_the_limit_are_accepted(small, step):
    data = small.frame(FIN | BINARY, b"x" * 1000) * 2
    data += small.frame(BINARY, b"y" * 999) + small.frame(FIN | CONTINUATION, b"y")
    assert small.chunked(data, step) == [[b"x" * 1000], [b"x" * 1000], [b"y" * 1000]]


@pytest.mark.parametrize("step", [1, 10, 999, 5000])
@pytest.mark.parametrize("sizes", [(1001,), (500, 501), (1000, 0, 1), (1,) * 1001])
def test_one_byte_more_than_the_limit_is_refused(small, step, sizes):
    data = small.frame(FIN | BINARY, b"x" * 1000)
    first = BINARY
    for size in sizes[:-1]:
        data += small.frame(first, b"x" * size)
        first = CONTINUATION
    data += small.frame(FIN | first, b"x" * sizes[-1])
    told, code, _ = small.refusal(data, step)
    assert "at least 1001 bytes; the maximum is 1000" in told
    assert code == 1009


def test_limits_apply_to_received_messages_only(small):
    assert len(small.pieces([bytes(2000)])) > 0


# --- control frames -------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"Hello", bytes(125)])
def test_a_ping_is_answered_by_a_pong_with_its_payload(end, payload):
    assert end.framing.receive(end.frame(FIN | PING, payload)) == []
    assert end.said() == [(FIN | PONG, payload)]
    assert end.framing.receive(end.frame(FIN | PONG, payload)) == []
    assert end.said() == []
    assert not end.framing.mid_message


@pytest.mark.parametrize("part", [b"", b"Hello", b"\xff", b"x" * 5000])
@pytest.mark.parametrize("first", [FIN | TEXT, TEXT])
@pytest.mark.parametrize("step", [0, 1])
def test_text_is_refused_with_1003(end, part, first, step):
    data = end.frame(first, part)
    told, code, reason = end.refusal(end.frame(FIN | BINARY, b"x") + data, step)
    assert told == reason == "received a text message; SP uses binary messages"
    assert code == 1003


def test_frames_of_clients_must_be_masked_and_those_of_servers_must_not(end):
    wrong = frame(FIN | BINARY, b"Hello", masked=not end.receives_masked)
    told, code, _ = end.refusal(wrong)
    assert "masked frame" in told
    assert code == 1002


@pytest.mark.parametrize(
    ("first", "payload"),
    [
        (FIN | CONTINUATION, b"of nothing"),
        (CONTINUATION, b""),
        (FIN | BINARY | 0x40, b"reserved"),
        (FIN | BINARY | 0x20, b"reserved"),
        (FIN | BINARY | 0x10, b"reserved"),
        (FIN | 3, b""),
        (FIN | 7, b"unknown"),
        (FIN | 0xB, b"unknown"),
        (PING, b"in fragments"),
        (FIN | PING, bytes(126)),
        (FIN | CLOSE, b"\x03"),
        (FIN | CLOSE, b"\x03\xe7"),  # code 999
        (FIN | CLOSE, pack(">H", 1004)),
        (FIN | CLOSE, pack(">H", 1005)),
        (FIN | CLOSE, pack(">H", 1006)),
        (FIN | CLOSE, pack(">H", 1015)),
        (FIN | CLOSE, pack(">H", 2999)),
        (FIN | CLOSE, pack(">H", 5000)),
    ],
)
@pytest.mark.parametrize("step", [0, 1])
def test_frames_that_the_rfc_forbids_are_refused_with_1002(end, first, payload, step):
    told, code, reason = end.refusal(
        end.frame(FIN | BINARY, b"x") + end.frame(first, payload), step
    )
    assert told
    assert reason == told
    assert code == 1002
    assert end.framing.farewell == ""


def test_a_message_inside_a_message_is_refused(end):
    assert end.refusal(end.frame(BINARY, b"a") + end.frame(FIN | BINARY, b"b"))[1] == 1002


@pytest.mark.parametrize(("form", "size"), [(">BBH", 125), (">BBQ", 125), (">BBQ", 65535)])
def test_a_size_in_more_bytes_than_it_needs_is_refused(end, form, size):
    seven = 126 if form == ">BBH" else 127
    header = pack(form, FIN | BINARY, seven | 128 * end.receives_masked, size)
    body = b"x" * size
    told, code, _ = end.refusal(header + (KEY + xor(body) if end.receives_masked else body))
    assert "would have sufficed" in told
    assert code == 1002


# --- the closing handshake ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "the peer closed the WebSocket"),
        (pack(">H", 1000), "the peer closed the WebSocket with 1000 (normal closure)"),
        (
            pack(">H", 1001) + "bye\nfür heute".encode(),
            "the peer closed the WebSocket with 1001 (going away): bye für heute",
        ),
        (pack(">H", 1014), "the peer closed the WebSocket with 1014"),
        (pack(">H", 3000), "the peer closed the WebSocket with 3000"),
        (pack(">H", 4999) + b"x" * 123, f"the peer closed the WebSocket with 4999: {'x' * 100}"),
    ],
)
@pytest.mark.parametrize("step", [0, 1])
def test_a_close_frame_is_answered_and_reported_after_earlier_messages(end, payload, said, step):
    close = end.frame(FIN | CLOSE, payload)
    data = end.frame(FIN | BINARY, b"last") + close + end.frame(FIN | BINARY, b"too late") + b"\xff"
    assert end.framing.farewell == ""
    assert end.chunked(data, step or len(data)) == [[b"last"]]
    assert end.framing.farewell == said
    assert end.said() == [(FIN | CLOSE, payload[:2])]
    assert not end.framing.mid_message
    end.framing.at_end()
    assert end.framing.receive(b"anything") == []
    assert end.framing.output() == end.framing.closing() == b""
    assert end.pieces([b"to nobody"], [bytes(MIB)]) == []


def test_a_reason_that_is_not_utf_8_is_refused_with_1007(end):
    assert end.refusal(end.frame(FIN | CLOSE, b"\x03\xe8\xff"))[1] == 1007


def test_our_close_frame_is_sent_once_and_answered(is_client):
    end, other = End(is_client=is_client), End(is_client=not is_client)
    bye = end.framing.closing()
    assert frames_of(bye) == [(FIN | CLOSE, pack(">H", 1000))]
    assert end.framing.closing() == b""
    assert end.pieces([b"late"]) == []
    assert other.framing.receive(bye) == []
    assert other.framing.farewell == "the peer closed the WebSocket with 1000 (normal closure)"
    assert end.framing.receive(other.framing.output()) == []
    assert end.framing.farewell
    assert end.framing.output() == b""


def test_a_close_frame_may_arrive_with_the_end_of_the_upgrade():
    client, server = SpWebSocket(REQ, REP, is_client=True, host=HOST), connected_server()
    server = SpWebSocket(REP, REQ, is_client=False)
    server.receive(client.opening())
    answer = server.output()
    out: list[bytes] = []
    server.encode([b"last"], out)
    assert client.receive(answer + b"".join(out) + server.closing()) == [[b"last"]]
    assert client.ready
    assert client.farewell
    assert client.output()


def test_end_of_stream_without_a_close_frame_is_accepted_between_messages(end):
    messages = end.framing.receive(end.frame(FIN | BINARY, b"x"))
    end.framing.at_end()  # raises no violation
    assert messages == [[b"x"]]
