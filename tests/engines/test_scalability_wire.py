"""The stack of tags: golden bytes, and a comparison with a simple decoder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requite.protocols.scalability.wire import (
    IDS,
    channel_tag,
    is_too_deep,
    request_tag,
    stack_size,
)

IDENTS = st.integers(0, IDS - 1)


def read_tags(payload: bytes) -> int | None:
    """Count the tags of a payload as the draft describes: remove them one by one until one has its
    top bit set. Return None if the payload ends before."""
    count = 0
    while len(payload) >= 4:
        tag, payload = int.from_bytes(payload[:4], "big"), payload[4:]
        count += 1
        if tag >= 1 << 31:
            return count
    return None


@pytest.mark.parametrize(
    ("request_id", "wire"),
    [(0, "80000000"), (1, "80000001"), (823, "80000337"), (IDS - 1, "ffffffff")],
)
def test_a_request_tag_has_the_top_bit_set(request_id: int, wire: str) -> None:
    assert request_tag(request_id).hex() == wire


@pytest.mark.parametrize(
    ("channel_id", "wire"), [(0, "00000000"), (446, "000001be"), (IDS - 1, "7fffffff")]
)
def test_a_channel_tag_has_the_top_bit_clear(channel_id: int, wire: str) -> None:
    assert channel_tag(channel_id).hex() == wire


@given(st.lists(IDENTS, max_size=12), IDENTS, st.binary(max_size=9), st.integers(1, 14))
def test_the_stack_ends_after_the_request_id(
    channels: list[int], request_id: int, body: bytes, hops: int
) -> None:
    stack = b"".join(map(channel_tag, channels)) + request_tag(request_id)
    found = stack_size(stack + body, hops)
    assert found == (len(stack) if len(channels) < hops else 0)
    assert bool(found) != is_too_deep(stack + body, hops) or found


@given(st.binary(max_size=50), st.integers(1, 9))
@example(b"", 1)
@example(b"\x80\0\0", 8)
@example(b"\x80\0\0\0", 1)
@example(b"\0\0\0\0\x80\0\0\0", 1)
@example(b"\0" * 36 + b"\x80\0\0\0", 9)
def test_any_bytes_are_decoded_as_in_the_draft(payload: bytes, hops: int) -> None:
    count = read_tags(payload)
    if count is not None and count <= hops:
        assert stack_size(payload, hops) == 4 * count
    else:
        assert stack_size(payload, hops) == 0
        assert is_too_deep(payload, hops) == (len(payload) // 4 > hops)
