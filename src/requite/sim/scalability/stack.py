"""Read tags and bodies of messages without the code of the engines under test.

A message is a stack of 32-bit tags and a body. All tags but the last have their top bit clear, and
name channels; the last one has it set, and names the request (sp-request-reply-01, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from requite.sim.kernel.transcript import show_frame
from requite.sim.kernel.workload import CallPlan

TAG_SIZE: Final = 4
BOTTOM: Final = 0x80
IDS: Final = 1 << 31  # channel ids, and request ids
NEWLINE: Final = b"\n"


class Parsed(NamedTuple):
    """A parsed message: its `stack` (all tags, in bytes) and its `body`."""

    stack: bytes
    body: bytes

    @property
    def depth(self) -> int:
        """The number of tags, including the request id."""
        return len(self.stack) // TAG_SIZE

    @property
    def request_id(self) -> int:
        """The id in the last tag."""
        return int.from_bytes(self.stack[-TAG_SIZE:], "big") - IDS

    @property
    def channel_ids(self) -> list[int]:
        """The ids in the other tags, the one nearest to the worker first."""
        tags = range(0, len(self.stack) - TAG_SIZE, TAG_SIZE)
        return [int.from_bytes(self.stack[at : at + TAG_SIZE], "big") for at in tags]


def parse(payload: bytes) -> Parsed | None:
    """Parse a message; None if no tag has its top bit set."""
    for at in range(0, len(payload) - TAG_SIZE + 1, TAG_SIZE):
        if payload[at] & BOTTOM:
            end = at + TAG_SIZE
            return Parsed(payload[:end], payload[end:])
    return None


def payload_of(message: Sequence[bytes]) -> bytes:
    """Return the bytes of a message on the wire: its pieces, joined."""
    return message[0] if len(message) == 1 else b"".join(message)


def body_of(plan: CallPlan) -> list[bytes]:
    """Return the body of a request: a line for each frame."""
    return [NEWLINE.join(plan.frames)]


def describe(message: Sequence[bytes]) -> str:
    """Describe a message: its channel ids, its request id, its body.

    Only its direction tells a request from a reply.
    """
    payload = payload_of(message)
    parsed = parse(payload)
    if parsed is None:
        return f"malformed: {show_frame(payload)}"
    path = "".join(f"{channel_id}." for channel_id in parsed.channel_ids)
    return f"{path}[{parsed.request_id}] {show([parsed.body])}"


def show(body: Sequence[bytes]) -> str:
    """Show a body; the bodies of planned calls have several lines."""
    return " | ".join(map(show_frame, payload_of(body).split(NEWLINE)))


def tag(number: int, *, bottom: bool = False) -> bytes:
    """Return the tag of an id."""
    return (number + IDS if bottom else number).to_bytes(TAG_SIZE, "big")
