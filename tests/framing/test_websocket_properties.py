"""Properties of SP on WebSocket, for any messages, chunks and bytes."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.raw_websocket import (
    HOST,
    REP,
    REQ,
    connected_client,
    connected_server,
    frame,
    make_client,
    make_server,
)

from requite.errors import RemoteViolation
from requite.framing import Limits, SpWebSocket

SMALL = Limits(message_size_bytes_max=400)

pieces = st.binary(max_size=20) | st.sampled_from([121, 122, 126, 1025, 65536]).map(bytes)
message_lists = st.lists(st.lists(pieces, max_size=4), max_size=8)
cuts = st.lists(st.integers(0, 1 << 20), max_size=12)

# The parts of a frame. Each value is likely, so that every branch is reached.
firsts = st.sampled_from([0x82, 0x82, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0x81]) | st.integers(
    0, 255
)
payloads = (
    st.binary(max_size=12)
    | st.sampled_from([125, 126, 400, 401]).map(bytes)
    | st.sampled_from([b"\x03\xe8", b"\x03\xe8bye", b"\x03"])
)
likely = st.builds(frame, firsts, payloads, masked=st.booleans())
garbage = st.binary(max_size=200) | st.lists(likely, max_size=20).map(b"".join)


def chunks(stream: bytes, borders: list[int]) -> list[bytes]:
    ends = sorted(border % (len(stream) + 1) for border in borders)
    return [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]


def connected(*, is_client: bool, limits: Limits = SMALL) -> SpWebSocket:
    return connected_client(limits=limits) if is_client else connected_server(limits=limits)


def outcome(framing: SpWebSocket, stream: list[bytes]) -> tuple[list[list[bytes]], str | None]:
    """Return the messages of a stream, and its violation or None."""
    messages: list[list[bytes]] = []
    for chunk in stream:
        try:
            messages += framing.receive(chunk)
        except RemoteViolation as violation:
            return messages, str(violation)
    return messages, None


def may_end(framing: SpWebSocket) -> bool:
    try:
        framing.at_end()
    except RemoteViolation:
        return False
    return True


@given(messages=message_lists, borders=cuts, is_client=st.booleans())
def test_any_messages_survive_the_round_trip_in_any_chunks(messages, borders, is_client):
    sender = connected(is_client=not is_client)
    out: list[bytes] = []
    added = sum(sender.encode(message, out) for message in messages)
    stream = b"".join(out)
    assert added == len(stream)
    receiver = connected(is_client=is_client, limits=Limits())
    whole = [[b"".join(message)] for message in messages]
    assert outcome(receiver, chunks(stream, borders)) == (whole, None)
    assert may_end(receiver)


@given(messages=message_lists, at=st.integers(0), is_client=st.booleans())
def test_any_truncation_is_refused_without_other_effects(messages, at, is_client):
    sender = connected(is_client=not is_client)
    out: list[bytes] = []
    borders = [0]
    for message in messages:
        borders.append(borders[-1] + sender.encode(message, out))
    stream = b"".join(out)
    end = at % (len(stream) + 1)
    receiver = connected(is_client=is_client, limits=Limits())
    delivered, violation = outcome(receiver, [stream[:end]])
    assert violation is None
    assert len(delivered) == len([border for border in borders[1:] if border <= end])
    assert may_end(receiver) == (not receiver.mid_message) == (end in borders)
    received = end - max(border for border in borders if border <= end)
    assert (receiver.partial_size > 0) == (received > 0)
    headers = 14 * (1 + received // 100)
    assert received - headers <= receiver.partial_size <= received + 1


@given(data=garbage, borders=cuts, is_client=st.booleans())
def test_any_bytes_have_the_same_result_in_any_chunks(data, borders, is_client):
    one, other = connected(is_client=is_client), connected(is_client=is_client)
    whole, cut = outcome(one, [data]), outcome(other, chunks(data, borders))
    # A violation occurs in both or in neither. In one chunk, the messages before a violation are
    # lost.
    assert (whole[1] is None) == (cut[1] is None)
    assert whole[0] == cut[0][: len(whole[0])]
    if whole[1] is None:
        assert whole == cut
        assert (one.farewell, one.mid_message) == (other.farewell, other.mid_message)
        assert may_end(one) == may_end(other)


@given(
    data=st.binary(max_size=60) | garbage,
    kept=st.integers(0, 400),
    is_client=st.booleans(),
    borders=cuts,
)
def test_any_bytes_in_the_upgrade_are_accepted_or_refused(data, kept, is_client, borders):
    beginning = make_client().opening()
    if is_client:
        server = make_server()
        server.receive(beginning)
        beginning = server.output()
    stream = beginning[: kept % (len(beginning) + 1)] + data
    ends = []
    for parts in ([stream], chunks(stream, borders)):
        framing = SpWebSocket(REQ if is_client else REP, REP, is_client=is_client, host=HOST)
        ends.append((outcome(framing, parts)[1] is None, framing.ready, may_end(framing)))
        framing.output()
    assert ends[0] == ends[1]


@given(flips=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4))
def test_a_damaged_upgrade_is_accepted_or_refused(flips):
    client, server = make_client(), make_server()
    request = bytearray(client.opening())
    for at, value in flips:
        request[at % len(request)] = value
    _, violation = outcome(server, [bytes(request)])
    answer = bytearray(server.output())
    assert violation is None or answer.startswith(b"HTTP/1.1 4")  # refused, with an HTTP error
    for at, value in flips if answer else ():
        answer[at % len(answer)] = value
    outcome(client, [bytes(answer)])
    may_end(client)
