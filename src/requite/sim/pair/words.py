"""Describe the messages between the servers of a pair in words."""

from __future__ import annotations

from collections.abc import Sequence

from requite.errors import RemoteViolation
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View, Word, decode
from requite.sim.kernel.transcript import show_frame


def describe(_sender: str, message: Sequence[bytes]) -> str:
    """Describe a message."""
    try:
        command = decode(list(message))
    except RemoteViolation:
        return f"malformed: {show_frame(b''.join(message))}"
    match command:
        case Word():
            wants = ", answer" if command.wants_answer else ""
            heard = f"{command.number}, heard {command.heard}"
            return f"HEARTBEAT {command.state.name}, epoch {command.epoch} ({heard}{wants})"
        case Switch(epoch):
            return f"SWITCH of epoch {epoch}"
        case Ask():
            return "ASK"
        case View():
            return f"VIEW {command.state.name}, epoch {command.epoch}"
        case Refused(reason):
            return f"REFUSED: {reason}"
