"""Properties of the SP stream mappings, for any messages, chunks and bytes."""

from hypothesis import given
from hypothesis import strategies as st

from requite.errors import RemoteViolation
from requite.framing import Limits, SpStream

REQ, REP = 48, 49
SMALL = Limits(message_size_bytes_max=400)

pieces = st.binary(max_size=20) | st.sampled_from([248, 255, 256, 257, 4097, 65536]).map(bytes)
# The framing parses runs of messages of equal size by a faster path.
runs = st.builds(lambda piece, count: [[piece]] * count, st.binary(max_size=40), st.integers(4, 20))
message_lists = st.lists(st.lists(pieces, max_size=4), max_size=8) | st.lists(
    runs | st.lists(st.lists(pieces, max_size=4), max_size=2), max_size=4
).map(lambda parts: [message for part in parts for message in part])
cuts = st.lists(st.integers(0, 1 << 20), max_size=12)

# Bytes that look like messages. Each kind and size is likely, so that every branch is reached.
likely = st.builds(
    lambda kind, size, body: kind + size.to_bytes(8, "big") + body,
    st.sampled_from([b"", b"\x01", b"\x01", b"\x02"]),
    st.sampled_from([0, 1, 4, 9, 400, 401, 1 << 63]) | st.integers(0, 20),
    st.binary(max_size=20) | st.sampled_from([400, 401]).map(bytes),
)
rows = st.builds(lambda one, count: one * count, likely, st.integers(4, 20))
garbage = st.binary(max_size=300) | st.lists(likely | rows, max_size=20).map(b"".join)


def chunks(stream: bytes, borders: list[int]) -> list[bytes]:
    ends = sorted(border % (len(stream) + 1) for border in borders)
    return [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]


def connected(*, in_band: bool, limits: Limits = SMALL) -> SpStream:
    framing = SpStream(REP, REQ, in_band=in_band, limits=limits)
    framing.receive(SpStream(REQ, REP).opening())
    return framing


def outcome(framing: SpStream, stream: list[bytes]) -> tuple[list[list[bytes]], str | None]:
    """Return the messages of a stream, and its violation or None."""
    messages: list[list[bytes]] = []
    for chunk in stream:
        try:
            messages += framing.receive(chunk)
        except RemoteViolation as violation:
            return messages, str(violation)
    return messages, None


def may_end(framing: SpStream) -> bool:
    try:
        framing.at_end()
    except RemoteViolation:
        return False
    return True


@given(messages=message_lists, borders=cuts, in_band=st.booleans())
def test_any_messages_survive_the_round_trip_in_any_chunks(messages, borders, in_band):
    out = [SpStream(REQ, REP).opening()]
    sender = connected(in_band=in_band)
    added = sum(sender.encode(message, out) for message in messages)
    stream = b"".join(out)
    assert added == len(stream) - 8
    receiver = SpStream(REP, REQ, in_band=in_band)
    whole = [[b"".join(message)] for message in messages]
    assert outcome(receiver, chunks(stream, borders)) == (whole, None)
    receiver.at_end()


@given(messages=message_lists, at=st.integers(0), in_band=st.booleans())
def test_any_truncation_is_refused_without_other_effects(messages, at, in_band):
    out: list[bytes] = []
    sender = connected(in_band=in_band)
    borders = [0]
    for message in messages:
        borders.append(borders[-1] + sender.encode(message, out))
    stream = b"".join(out)
    end = at % (len(stream) + 1)
    receiver = connected(in_band=in_band, limits=Limits())
    delivered, violation = outcome(receiver, [stream[:end]])
    assert violation is None
    assert len(delivered) == len([border for border in borders[1:] if border <= end])
    assert may_end(receiver) == (not receiver.mid_message) == (end in borders)
    assert receiver.partial_size == end - max(border for border in borders if border <= end)


@given(data=garbage, borders=cuts, in_band=st.booleans())
def test_any_bytes_have_the_same_result_in_any_chunks(data, borders, in_band):
    whole = outcome(connected(in_band=in_band), [data])
    cut = outcome(connected(in_band=in_band), chunks(data, borders))
    # A violation occurs in both or in neither. In one chunk, the messages before a violation are
    # lost.
    assert (whole[1] is None) == (cut[1] is None)
    assert whole[0] == cut[0][: len(whole[0])]
    if whole[1] is None:
        assert whole == cut


@given(data=st.binary(max_size=40), kept=st.integers(0, 8), borders=cuts)
def test_any_bytes_as_a_header_are_accepted_or_refused(data, kept, borders):
    stream = SpStream(REQ, REP).opening()[:kept] + data
    whole = SpStream(REP, REQ), SpStream(REP, REQ)
    ends = outcome(whole[0], [stream]), outcome(whole[1], chunks(stream, borders))
    assert (ends[0][1] is None) == (ends[1][1] is None)
    assert whole[0].ready == whole[1].ready
    assert may_end(whole[0]) == may_end(whole[1])
