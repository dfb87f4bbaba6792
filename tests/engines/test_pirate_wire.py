"""The Pirates' frames: golden ones from the Guide and 6/PPP, round trips, and malformed ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import RemoteViolation
from requite.protocols.pirate import wire
from requite.protocols.pirate.wire import GUIDE, PPP, Envelope, Heartbeat, Pattern, Ready

FRAMES = st.lists(st.binary(max_size=6) | st.sampled_from([b"", b"\x01", b"\x02"]), max_size=6)
FULL = st.binary(min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("pattern", "frames", "said"),
    [
        (Pattern.PARANOID, [b"\x01"], Ready(PPP)),
        (Pattern.PARANOID, [b"READY"], Ready(GUIDE)),
        (Pattern.PARANOID, [b"\x02"], Heartbeat()),
        (Pattern.PARANOID, [b"HEARTBEAT"], Heartbeat()),
        (Pattern.PARANOID, [b"c", b"", b"x"], Envelope([b"c", b""], [b"x"])),
        (Pattern.PARANOID, [b"c", b"d", b"", b"", b"x"], Envelope([b"c", b"d", b""], [b"", b"x"])),
        (Pattern.SIMPLE, [b"", b"READY"], Ready(GUIDE)),
        (Pattern.SIMPLE, [b"", b"\x01"], Ready(PPP)),
        (Pattern.SIMPLE, [b"", b"c", b"", b"x"], Envelope([b"c", b""], [b"x"])),
    ],
)
def test_messages_of_workers_are_decoded(
    pattern: Pattern, frames: list[bytes], said: wire.FromWorker
) -> None:
    assert wire.decode_from_worker(pattern, frames) == said


@pytest.mark.parametrize(
    ("pattern", "frames"),
    [
        (Pattern.PARANOID, [b"\x03"]),
        (Pattern.PARANOID, [b""]),
        (Pattern.PARANOID, [b"c", b""]),
        (Pattern.PARANOID, [b"c", b"x"]),
        (Pattern.PARANOID, [b"", b"x"]),
        (Pattern.SIMPLE, [b"READY"]),
        (Pattern.SIMPLE, [b""]),
        (Pattern.SIMPLE, [b"", b"\x02"]),
        (Pattern.SIMPLE, [b"", b"", b"x"]),
        (Pattern.SIMPLE, [b"", b"c", b"x"]),
    ],
)
def test_malformed_messages_of_workers_are_refused(pattern: Pattern, frames: list[bytes]) -> None:
    with pytest.raises(RemoteViolation):
        wire.decode_from_worker(pattern, frames)


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        ([b"\x02"], Heartbeat()),
        ([b"HEARTBEAT"], Heartbeat()),
        ([b"c", b"", b"x"], Envelope([b"c", b""], [b"x"])),
        ([b"", b"x"], Envelope([b""], [b"x"])),
        ([b"x", b"y"], Envelope([], [b"x", b"y"])),
    ],
)
def test_messages_of_queues_are_decoded(frames: list[bytes], said: wire.ToWorker) -> None:
    assert wire.decode_to_worker(Pattern.PARANOID, frames) == said


def test_a_request_without_content_is_refused() -> None:
    with pytest.raises(RemoteViolation, match="data frames"):
        wire.decode_to_worker(Pattern.PARANOID, [b"c", b""])


def test_addresses_have_the_format_of_router_sockets() -> None:
    assert wire.new_address(7) == b"\0\0\0\0\x07"
    assert wire.new_address(2**32 - 1) == b"\0\xff\xff\xff\xff"
    assert wire.new_address(2**32) == bytes(5)


@given(
    st.sampled_from(Pattern),
    st.integers(0, 2**32 - 1),
    st.lists(FULL),
    st.lists(FULL | st.just(b""), min_size=1),
)
def test_requests_survive_the_round_trip(
    pattern: Pattern, number: int, stack: list[bytes], body: list[bytes]
) -> None:
    address = wire.new_address(number)
    frames = wire.request(pattern, address, [*stack, b"", *body])
    if pattern is Pattern.SIMPLE:
        assert frames.pop(0) == b""  # the REQ socket removes this frame
    assert wire.decode_to_worker(pattern, frames) == Envelope([address, *stack, b""], body)


@given(st.sampled_from(Pattern), FRAMES.filter(bool))
def test_any_frames_decode_or_are_refused(pattern: Pattern, frames: list[bytes]) -> None:
    for decode in (wire.decode_from_worker, wire.decode_to_worker):
        try:
            said = decode(pattern, list(frames))
        except RemoteViolation:
            continue
        if isinstance(said, Envelope):
            whole = said.envelope + said.body
            assert whole == frames[len(frames) - len(whole) :]
            assert said.body
