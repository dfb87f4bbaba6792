"""Traffic with CURVE: limits, commands, and what somebody on the network can do to it (RFC 26)."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_box_afternm
from tests.spec.requirement import requirement
from tests.support.curve import Chance, connected, encoded

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import Limits, RefusedByPeer, Zmtp


def refusal(framing: Zmtp, data: bytes) -> str:
    with pytest.raises(RemoteViolation) as caught:
        framing.receive(data)
    assert framing.output() == b""
    return str(caught.value)


def boxed(framing: Zmtp, plain: bytes, *, flags: int = 0, after: int = 1) -> bytes:
    """Return a MESSAGE of this framing with any flags and data in its box."""
    traffic = framing._traffic
    nonce = pack(">Q", traffic._count + after)
    traffic._count += after
    box = crypto_box_afternm(plain, traffic._prefix + nonce, traffic._key)
    body = b"\x07MESSAGE" + nonce + box
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return pack(">BQ", flags | 2, len(body)) + body


# --- what somebody on the network can do ----------------------------------------------------------
@requirement(
    "curve:message-validated",
    "curve:message-no-error",
    "curve:server-verifies-nonces",
    "curve:client-verifies-nonces",
)
@pytest.mark.parametrize("to_server", [True, False])
@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (lambda one, two, three: one + one, "was sent before (a replay)"),
        (lambda one, two, three: one + two + one, "was sent before (a replay)"),
        (lambda one, two, three: two, "follows a gap"),
        (lambda one, two, three: one + three, "follows a gap"),
        (lambda one, two, three: two + one, "follows a gap"),
        (lambda one, two, three: one[:-1] + bytes((one[-1] ^ 1,)), "was altered"),
        (lambda one, two, three: one[:20] + b"!" + one[21:], "was altered"),
        (lambda one, two, three: b"\x00" + bytes((len(one) - 3,)) + one[2:-1], "was altered"),
        (lambda one, two, three: b"\x00\x05hello", "not a MESSAGE"),
        (lambda one, two, three: one + b"\x00\x00", "not a MESSAGE"),
        (lambda one, two, three: b"\x00\x20" + one[2:34], "not a MESSAGE"),
        (lambda one, two, three: b"\x01" + one[1:], "that is not encrypted"),
        (lambda one, two, three: b"\x08" + one[1:], "that is not encrypted"),
        (lambda one, two, three: b"\x04\x07\x05ERROR\x00", "not a MESSAGE"),
        (lambda one, two, three: b"\x04\x05\x04PING", "not a MESSAGE"),
    ],
)
def test_replayed_removed_altered_and_clear_frames_end_the_connection(
    attack: Callable[[bytes, bytes, bytes], bytes], reason: str, to_server: bool
) -> None:
    sender, receiver = connected() if to_server else reversed(connected())
    frames = [encoded(sender, [body]) for body in (b"one", b"two", b"three")]
    assert reason in refusal(receiver, attack(*frames))
    with pytest.raises(RemoteViolation):
        receiver.receive(b"".join(frames))


def test_a_message_of_the_other_direction_or_another_connection_is_refused() -> None:
    client, server = connected()
    client._traffic._count = client._traffic._their_count
    assert "was altered" in refusal(client, encoded(client, [b"reflected"]))
    other, _ = connected(chance=Chance(b"another"))
    assert "was altered" in refusal(server, encoded(other, [b"x"]))


@requirement("curve:message-flags")
@pytest.mark.parametrize("flags", [3, 4, 8, 0x80, 0xFF])
def test_reserved_flags_are_refused(flags: int) -> None:
    client, server = connected()
    assert "invalid flags" in refusal(server, boxed(client, bytes((flags,)) + b"\x04PING"))


def test_an_interrupted_message_uses_up_its_nonces() -> None:
    """Two boxes with one nonce would reveal their contents."""
    client, server = connected()
    used = client._traffic._count
    with pytest.raises(TypeError):
        client.encode([b"one", None, b"three"], [])
    assert client._traffic._count == used + 3
    assert "follows a gap" in refusal(server, encoded(client, [b"next"]))


# --- frames ---------------------------------------------------------------------------------------
def test_message_commands_are_accepted_as_command_frames_and_as_message_frames() -> None:
    client, server = connected()
    data = (
        boxed(client, b"\x01a", flags=4)
        + boxed(client, b"\x00b")
        + boxed(client, b"\x00c", flags=4)
    )
    data += boxed(client, b"\x00" + bytes(400), flags=4)
    assert server.receive(data) == [[b"a", b"b"], [b"c"], [bytes(400)]]


def test_empty_frames_and_messages() -> None:
    client, server = connected()
    assert server.receive(encoded(client, [b""], [b"", b"", b"x"])) == [[b""], [b"", b"", b"x"]]
    with pytest.raises(LocalViolation, match="at least one frame"):
        client.encode([], [])
    assert server.receive(encoded(client, [b"after"])) == [[b"after"]]


@pytest.mark.parametrize("size", [0, 222, 223, 65_503, 1 << 20])
def test_sizes_around_the_long_frame(size: int) -> None:
    client, server = connected()
    body = bytes(size)
    data = encoded(client, [body, b"end"])
    assert data[0] == (0 if size < 223 else 2)
    assert server.receive(data) == [[body, b"end"]]


def test_a_large_body_in_small_chunks_is_held_once() -> None:
    client, server = connected()
    data = encoded(client, [b"head", bytes(200_000)])
    step = 1000
    for at in range(0, len(data) - step, step):
        assert server.receive(data[at : at + step]) == []
        assert server.mid_message
        assert 0 < server.partial_size <= at + step + 100
    with pytest.raises(RemoteViolation, match="in the middle of a message"):
        server.at_end()
    assert server.receive(data[at + step :]) == [[b"head", bytes(200_000)]]
    assert server.partial_size == 0
    assert not server.mid_message
    server.at_end()


@given(
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=6),
    st.lists(st.integers(0, 4000), max_size=12),
)
def test_any_chunking_gives_the_same_messages(messages: list[list[bytes]], cuts: list[int]) -> None:
    client, server = connected()
    data = encoded(client, *messages)
    received = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        received += server.receive(data[at:cut])
        at = max(at, cut)
    assert received == messages
    assert server.partial_size == 0


@given(st.data())
def test_any_damage_ends_the_connection_or_is_not_in_the_data(data: st.DataObject) -> None:
    client, server = connected()
    messages = [[b"one", b"x" * 300], [b"two"], [b""]]
    stream = bytearray(encoded(client, *messages))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= data.draw(st.integers(1, 255))
    received: list[list[bytes]] = []
    try:
        received = server.receive(bytes(stream))
    except RemoteViolation:
        return
    # Only the flags LONG and COMMAND, and sizes, are outside of boxes: the rest may be missing.
    assert received == messages[: len(received)]


# --- limits ---------------------------------------------------------------------------------------
LIMITS = Limits(message_size_bytes_max=1000, frames_max=5, handshake_size_max=400)


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        ([bytes(1000)], True),
        ([bytes(1001)], False),
        ([bytes(500), bytes(500)], True),
        ([bytes(500), bytes(501)], False),
        ([b""] * 5, True),
        ([b""] * 6, False),
        ([bytes(250)] * 4, True),
        ([bytes(200)] * 5, True),
    ],
)
def test_limits_of_a_message(message: list[bytes], fits: bool) -> None:
    client, server = connected(limits=LIMITS)
    data = encoded(client, message)
    if fits:
        assert server.receive(data) == [message]
    else:
        assert "maximum" in refusal(server, data)


@pytest.mark.parametrize("size", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_an_announced_size_is_refused_before_it_is_held(size: int) -> None:
    _, server = connected(limits=LIMITS)
    assert "the maximum is 1000" in refusal(server, pack(">BQ", 2, size))


# --- commands -------------------------------------------------------------------------------------
def test_pings_between_frames_are_answered_in_a_box() -> None:
    client, server = connected(limits=LIMITS)
    ping = boxed(client, b"\x02\x04PING\x00\x0acontext")
    first, second = boxed(client, b"\x01" + bytes(990)), boxed(client, b"\x00" + bytes(10))
    assert server.receive(ping) == []
    assert server.peer_ttl_s == 1.0
    pong = server.output()
    assert b"PONG" not in pong
    assert client.receive(pong + encoded(server, [b"then"])) == [[b"then"]]
    assert server.receive(first) == []
    assert server.receive(second) == [[bytes(990), bytes(10)]]


def test_a_ping_within_a_message_does_not_count_against_its_limits() -> None:
    client, server = connected(limits=LIMITS)
    data = [boxed(client, b"\x01" + bytes(100)) for _ in range(4)]
    data += [boxed(client, b"\x02\x04PING\x00\x0acontext")]
    data += [boxed(client, b"\x00" + bytes(600))]
    assert server.receive(b"".join(data)) == [[bytes(100)] * 4 + [bytes(600)]]
    assert client.receive(server.output()) == []
    assert not client._traffic.commands


def test_a_flood_of_commands_in_one_read_is_refused() -> None:
    client, server = connected()
    pings = [boxed(client, b"\x02\x04PING\x00\x0a") for _ in range(1025)]
    assert "more than 1024 commands at once" in refusal(server, b"".join(pings))


def test_an_error_in_the_traffic_is_fatal_and_unknown_commands_are_not() -> None:
    client, server = connected()
    assert client.receive(boxed(server, b"\x02\x04WHAT??")) == []
    with pytest.raises(RefusedByPeer, match="no-more"):
        client.receive(boxed(server, b"\x02\x05ERROR\x07no-more"))


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (b"\x02", "empty name"),
        (b"\x02\x00", "empty name"),
        (b"\x02\x09PING", "empty name"),
        (b"\x02\x04PING" + bytes(400), "the maximum is 400"),
        (b"\x02\x04PING", "PING with 0 bytes"),
    ],
)
def test_a_malformed_command_in_a_box_is_refused(plain: bytes, reason: str) -> None:
    client, server = connected(limits=LIMITS)
    assert reason in refusal(server, boxed(client, plain))
