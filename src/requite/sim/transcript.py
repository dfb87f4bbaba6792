"""What was said in a run, as text: one line per message, with virtual time and symbolic names.

    0.0031  client-1 → broker    REQUEST 0.1 to echo, 2.5 s: hello
    0.0041    broker → worker-1  REQUEST 1, 2.499 s, attempt 1: hello

A line stands where the message is sent; whether it arrives is another matter. Lines with a star
tell what happens to processes and calls. What a message says is put into words by `words.py` for
Majordomo, and by `scalability/words.py` for the scalability protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Disconnect, Effect, ResumeReading, Send, Stopped, StopReading
from requite.errors import CallError
from requite.request import Reply

if TYPE_CHECKING:
    from requite.sim.history import Call
    from requite.sim.process import Process
    from requite.sim.world import World

_FRAME_SIZE_MAX: Final = 40
_FRAMES_MAX: Final = 5

Describe = Callable[[str, Sequence[bytes]], str]
"""Says in words what a message says; it gets the name of the sender, and the frames."""

Show = Callable[[Sequence[bytes]], str]
"""Shows the frames of a reply."""


def show_body(frames: Sequence[bytes]) -> str:
    """Show frames, or the first few of them."""
    shown = " | ".join(show_frame(frame) for frame in frames[:_FRAMES_MAX])
    return shown + (f" | … {len(frames)} frames" if len(frames) > _FRAMES_MAX else "")


def show_frame(frame: bytes) -> str:
    """Show a frame as text if it is any, and its length if it is long."""
    if not frame:
        return '""'
    text = frame[:_FRAME_SIZE_MAX].decode("utf-8", "replace")
    shown = text if text.isprintable() and "\ufffd" not in text else f"0x{frame[:12].hex()}"
    return shown if len(frame) <= _FRAME_SIZE_MAX else f"{shown}… ({len(frame)} bytes)"


class Transcript:
    """Collects lines. Heartbeats are left out unless asked for: they would drown the rest."""

    def __init__(
        self, world: World, describe: Describe, show: Show = show_body, *, heartbeats: bool = True
    ) -> None:
        self.lines: list[str] = []
        self._world = world
        self._describe = describe
        self._show = show
        self._heartbeats = heartbeats

    def effects(self, process: Process, effects: Iterable[Effect]) -> None:
        """Write down what an engine does."""
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(process.name, effect)
            elif isinstance(effect, Disconnect):
                self._add(f"{process.name} closes its connection to {_name_of(effect.peer)}")
            elif isinstance(effect, StopReading):
                self._add(f"{process.name} stops reading from {_name_of(effect.peer)}")
            elif isinstance(effect, ResumeReading):
                self._add(f"{process.name} reads from {_name_of(effect.peer)} again")
            elif isinstance(effect, Stopped):
                self._add(f"{process.name} has drained")

    def outcome(self, client: str, call: Call, outcome: Reply | CallError) -> None:
        """Write down how a call ends."""
        if isinstance(outcome, Reply):
            text = f"gets {self._show(outcome.frames)}"
        else:
            ran = "may have run" if outcome.may_have_executed else "has not run"
            text = f"fails with {type(outcome).__name__} ({ran}): {outcome}"
        self._add(f"call {call.number} of {client} {text}")

    def event(self, process: str, what: str) -> None:
        """Write down what happens to a process."""
        self._add(f"{process} {what}")

    def _sent(self, sender: str, send: Send) -> None:
        line = self._describe(sender, send.message)
        if self._heartbeats or "HEARTBEAT" not in line:
            receiver = _name_of(send.peer)
            self.lines.append(f"{self._world.now:9.4f}  {sender:>10} → {receiver:<10} {line}")

    def _add(self, text: str) -> None:
        self.lines.append(f"{self._world.now:9.4f}  * {text}")


def _name_of(peer: Any) -> str:
    name: str = peer.stream.other.process.name
    return name
