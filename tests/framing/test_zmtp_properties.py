"""Properties of ZMTP, for any messages, chunks and bytes."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.framing.logins import receive

from requite.errors import RemoteViolation
from requite.framing import Limits, PlainClient, PlainServer, SocketType, Zmtp, known_users

SMALL = Limits(message_size_bytes_max=400, frames_max=8, handshake_size_max=120)
PAIRS = [
    (SocketType.ROUTER, SocketType.DEALER),
    (SocketType.ROUTER, SocketType.REQ),
    (SocketType.DEALER, SocketType.ROUTER),
    (SocketType.REQ, SocketType.REP),
    (SocketType.REP, SocketType.REQ),
]
CLIENT = {"mechanism": PlainClient("user", "secret")}
SERVER = {"mechanism": PlainServer(known_users({"user": "secret"}))}
MECHANISMS = [({}, {}), (CLIENT, SERVER), (SERVER, CLIENT)]

bodies = st.binary(max_size=20) | st.sampled_from([254, 255, 256, 257, 4097, 65536]).map(bytes)
message_lists = st.lists(st.lists(bodies, min_size=1, max_size=6), max_size=8)
cuts = st.lists(st.integers(0, 1 << 20), max_size=12)

# Bytes that look like frames. Each flag and size is likely, so that the parsers are reached.
frames = st.builds(
    lambda flags, size, body: bytes((flags, *size)) + body,
    st.sampled_from([0, 1, 2, 3, 4, 6, 5, 8]) | st.integers(0, 255),
    st.sampled_from([(0,), (1,), (5,), (255,), (0, 0, 0, 0, 0, 0, 1, 0), (255,) * 8]),
    st.sampled_from([b"", b"\x04PING\0\0", b"\x05ERROR\x03400", b"\x05READY"])
    | st.binary(max_size=9),
)
garbage = st.binary(max_size=300) | st.lists(frames, max_size=30).map(b"".join)


@dataclass
class Recording:
    """One side of a connection: the bytes that it received and sent, and the positions where its
    stream may end."""

    stream: bytes
    answers: bytes
    borders: set[int] = field(default_factory=set)


def record(receiver: Zmtp, sender: Zmtp, messages: list[list[bytes]]) -> Recording:
    to_receiver, to_sender = sender.opening(), receiver.opening()
    said, answers = to_receiver, b""
    while to_receiver or to_sender:
        receive(receiver, to_receiver)
        receive(sender, to_sender)
        to_receiver, to_sender = sender.output(), receiver.output()
        said, answers = said + to_receiver, answers + to_sender
    out = [said]
    borders = {len(said)}
    for message in messages:
        sender.encode(message, out)
        borders.add(sum(map(len, out)))
    return Recording(b"".join(out), answers, borders)


def chunks(stream: bytes, borders: list[int]) -> list[bytes]:
    ends = sorted(border % (len(stream) + 1) for border in borders)
    return [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]


def outcome(framing: Zmtp, stream: list[bytes]) -> tuple[list[list[bytes]], bytes, str | None]:
    """Return the messages of a stream, the framing's output, and the violation or None."""
    messages: list[list[bytes]] = []
    said = b""
    for chunk in stream:
        try:
            messages += receive(framing, chunk)
        except RemoteViolation as violation:
            return messages, said + framing.output(), str(violation)
        said += framing.output()
    return messages, said, None


@given(messages=message_lists, borders=cuts)
def test_any_messages_survive_the_round_trip_in_any_chunks(connect, messages, borders):
    left, right = connect()
    out: list[bytes] = []
    added = sum(left.encode(message, out) for message in messages)
    stream = b"".join(out)
    assert added == len(stream)
    assert outcome(right, chunks(stream, borders)) == (messages, b"", None)
    right.at_end()


@given(
    messages=message_lists,
    borders=cuts,
    pair=st.sampled_from(PAIRS),
    mechanisms=st.sampled_from(MECHANISMS),
)
def test_a_complete_connection_has_the_same_result_in_any_chunks(
    messages, borders, pair, mechanisms
):
    own, peer = pair
    if peer is SocketType.REP:
        messages = []
    sender = Zmtp(peer, identity=b"peer", **mechanisms[1])
    recording = record(Zmtp(own, **mechanisms[0]), sender, messages)
    receiver = Zmtp(own, **mechanisms[0])
    delivered, said, violation = outcome(receiver, chunks(recording.stream, borders))
    if own is SocketType.ROUTER and peer is SocketType.REQ:
        messages = [[b"", *message] for message in messages]
    assert (delivered, said, violation) == (messages, recording.answers, None)
    assert receiver.ready
    assert receiver.peer_identity == (b"" if peer is SocketType.REP else b"peer")
    receiver.at_end()


@given(messages=message_lists, at=st.integers(0), mechanisms=st.sampled_from(MECHANISMS))
def test_any_truncation_is_refused_without_other_effects(messages, at, mechanisms):
    pair = [Zmtp(SocketType.ROUTER, **mechanisms[0]), Zmtp(SocketType.DEALER, **mechanisms[1])]
    recording = record(pair[0], pair[1], messages)
    end = at % (len(recording.stream) + 1)
    receiver = Zmtp(SocketType.ROUTER, **mechanisms[0])
    delivered, _, violation = outcome(receiver, [recording.stream[:end]])
    assert violation is None
    assert delivered == messages[: len(delivered)]
    assert len(delivered) == len([border for border in recording.borders if border <= end][1:])
    try:
        receiver.at_end()
        whole = True
    except RemoteViolation:
        whole = False
    assert whole == (end in recording.borders)
    if end >= min(recording.borders):
        received = end - max(border for border in recording.borders if border <= end)
        frames = len(max(messages, key=len, default=[])) + 1  # and the delimiter of REQ
        assert received <= receiver.partial_size <= received + 48 * frames
        assert (receiver.partial_size > 0) == receiver.mid_message == (not whole)


@given(data=garbage, borders=cuts, mechanism=st.sampled_from([{}, CLIENT, SERVER]))
def test_any_bytes_after_the_greeting_are_accepted_or_refused(data, borders, mechanism):
    greeting = Zmtp(SocketType.DEALER, **mechanism).opening()[:32] + bytes(32)
    ends = []
    for stream in ([data], chunks(data, borders)):
        framing = Zmtp(SocketType.ROUTER, limits=SMALL, **mechanism)
        ends.append(outcome(framing, [greeting, *stream]))
        assert framing.ready or not ends[-1][0]
    assert ends[0][2] == ends[1][2]


@given(data=st.binary(max_size=200), borders=cuts)
def test_any_bytes_as_a_greeting_are_accepted_or_refused(data, borders):
    whole = outcome(Zmtp(SocketType.ROUTER), [data])
    cut = outcome(Zmtp(SocketType.ROUTER), chunks(data, borders))
    assert whole == cut


@given(data=garbage, borders=cuts, own=st.sampled_from([SocketType.ROUTER, SocketType.REP]))
def test_any_bytes_after_the_handshake_have_the_same_result_in_any_chunks(
    connect, data, borders, own
):
    whole = outcome(connect(own, SocketType.DEALER, limits=SMALL)[0], [data])
    cut = outcome(connect(own, SocketType.DEALER, limits=SMALL)[0], chunks(data, borders))
    # A violation occurs in both or in neither. In one chunk, the messages before a violation are
    # lost.
    assert (whole[2] is None) == (cut[2] is None)
    assert whole[0] == cut[0][: len(whole[0])]
    if whole[2] is None:
        assert whole == cut


@given(data=garbage, flips=st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=3))
def test_a_damaged_stream_is_accepted_or_refused(data, flips):
    sender = Zmtp(SocketType.DEALER, identity=b"peer")
    stream = bytearray(record(Zmtp(SocketType.ROUTER), sender, [[b"a", b"b" * 300]]).stream + data)
    for at, mask in flips:
        stream[at % len(stream)] ^= mask
    *_, violation = outcome(Zmtp(SocketType.ROUTER, limits=SMALL), [bytes(stream)])
    assert violation != ""  # the violation has a reason
