"""The framing of connections within one event loop: messages are handed over as they are.

There is nothing to frame where both ends are in one process: what one end encodes is what the other
receives, the same objects, in lists instead of byte strings. Only streams that hand on what they
are given can carry it (`inproc`). Greeting, limits and farewell are for strangers, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Handover:
    """See `requite.framing.base.Framing`; a message may be any object."""

    __slots__ = ()

    ready: bool = True
    refusal: str = ""
    peer_identity: bytes = b""
    farewell: str = ""
    mid_message: bool = False

    def opening(self) -> bytes:
        """There is nothing to say first."""
        return b""

    def receive(self, chunk: Any) -> Any:
        """Return the messages that the other end has put together since its last flush."""
        return chunk

    def output(self) -> bytes:
        """There is nothing to answer."""
        return b""

    def closing(self) -> bytes:
        """There is nothing to say at the end."""
        return b""

    def encode(self, message: Sequence[bytes], out: list[Any]) -> int:
        """Add a message to the list that stands for what is sent next; it counts as one byte."""
        if out:
            out[0].append(message)
        else:
            out.append([message])
        return 1

    def at_end(self) -> None:
        """A message is never cut."""
