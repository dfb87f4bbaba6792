"""Receive bytes as the owner of a connection does that checks passwords at once."""

from __future__ import annotations

from requite.framing import Framing, Message


def receive(framing: Framing, chunk: bytes) -> list[Message]:
    """Give a framing bytes, and the result of the check for which its handshake then waits."""
    messages = framing.receive(chunk)
    if framing.login is not None:
        framing.login.check_now()
        messages += framing.receive(b"")
    return messages
