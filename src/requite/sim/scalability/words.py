"""Describe messages of the scalability protocols in words."""

from __future__ import annotations

from collections.abc import Sequence

from requite.sim.kernel.transcript import show_frame
from requite.sim.scalability.stack import parse, payload_of


def describe(_sender: str, message: Sequence[bytes]) -> str:
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
    return " | ".join(map(show_frame, payload_of(body).split(b"\n")))
