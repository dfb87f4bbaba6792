"""Describe messages of the Pirate patterns in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.sim.kernel.transcript import show_body

_WORDS: Final = {
    b"READY": "READY",
    b"\x01": "READY",
    b"HEARTBEAT": "HEARTBEAT",
    b"\x02": "HEARTBEAT",
}


def describe(_sender: str, message: Sequence[bytes]) -> str:
    """Describe a message; only its direction tells a request from a reply."""
    frames = list(message)
    while len(frames) > 1 and not frames[0]:
        del frames[0]
    if len(frames) == 1 and frames[0] in _WORDS:
        return _WORDS[frames[0]]
    if len(frames) > 2 and not frames[1]:
        return f"for {frames[0].hex()}: {show_body(frames[2:])}"
    return show_body(frames)
