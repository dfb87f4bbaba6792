"""Read messages of the Freelance pattern without the code of the engines under test."""

from __future__ import annotations

from collections.abc import Sequence

from requite.protocols.freelance.wire import Model
from requite.sim.kernel.transcript import show_body, show_frame

PING = (b"PING",)
PONG = (b"PONG",)


def request_body(model: Model, message: Sequence[bytes]) -> list[bytes] | None:
    """Return the body of a request as a server receives it; None for anything else."""
    if model is Model.AGENT:
        return list(message[1:]) or None
    frames = list(message)
    if b"" not in frames:
        return None
    envelope = frames.index(b"") + (2 if model is Model.SHOTGUN else 1)
    return frames[envelope:] or None


def sent_body(model: Model, message: Sequence[bytes]) -> list[bytes] | None:
    """Return the body of a request as a client's engine sends it; in model one, the REQ socket adds
    the envelope later."""
    return list(message) if model is Model.FAILOVER else request_body(model, message)


def describe(model: Model, message: Sequence[bytes]) -> str:
    """Describe a message in words."""
    if tuple(message) in (PING, PONG):
        return f"{message[0].decode()} (HEARTBEAT)"
    if model is Model.FAILOVER:  # a client's socket adds the envelope; a server's does not
        return show_body([frame for frame in message if frame] or message)
    heads = 1 if model is Model.AGENT else 2
    control = " ".join(map(show_frame, message[:heads]))
    return f"[{control}] {show_body(message[heads:])}"
