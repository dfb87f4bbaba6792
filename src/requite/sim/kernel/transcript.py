"""The transcript of a run: one line per message, with virtual time and symbolic names.

    0.0031  client-1 → broker    REQUEST 0.1 to echo, 2.5 s: hello
    0.0041    broker → worker-1  REQUEST 1, 2.499 s, attempt 1: hello

A line has the time at which the message is sent, whether it arrives or not. Lines with a star are
events of processes and calls. Each simulation describes the messages of its protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.engine import Disconnect, Effect, ResumeReading, Send, Stopped, StopReading
from requite.errors import CallError
from requite.request import Reply

if TYPE_CHECKING:
    from requite.sim.kernel.history import Call
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.world import World

_FRAME_SIZE_MAX: Final = 40
_FRAMES_MAX: Final = 5

Describe = Callable[[str, Sequence[bytes]], str]
"""Describes a message, from the name of the sender and the frames."""

Show = Callable[[Sequence[bytes]], str]
"""Shows the frames of a reply."""


def show_body(frames: Sequence[bytes]) -> str:
    """Show frames, or the first few of them."""
    shown = " | ".join(show_frame(frame) for frame in frames[:_FRAMES_MAX])
    return shown + (f" | … {len(frames)} frames" if len(frames) > _FRAMES_MAX else "")


def show_frame(frame: bytes) -> str:
    """Show a frame as text if it is text, with its length if it is long."""
    if not frame:
        return '""'
    text = frame[:_FRAME_SIZE_MAX].decode("utf-8", "replace")
    shown = text if text.isprintable() and "\ufffd" not in text else f"0x{frame[:12].hex()}"
    return shown if len(frame) <= _FRAME_SIZE_MAX else f"{shown}… ({len(frame)} bytes)"


RUN: Final = "--"
"""The name of the run itself in the transcript."""


class Entry(NamedTuple):
    """A message from `source` to `sink`, or an event of `source` (then `sink` is "").

    `short` is `text` without the name of the process.
    """

    at_s: float
    source: str
    sink: str
    text: str
    short: str

    def __str__(self) -> str:
        if self.sink:
            return f"{self.at_s:9.4f}  {self.source:>10} → {self.sink:<10} {self.text}"
        return f"{self.at_s:9.4f}  * {self.text}"


class Transcript:
    """Collects entries; without heartbeats unless requested, as they would outnumber the rest."""

    def __init__(
        self, world: World, describe: Describe, show: Show = show_body, *, heartbeats: bool = True
    ) -> None:
        self.entries: list[Entry] = []
        self._world = world
        self._describe = describe
        self._show = show
        self._heartbeats = heartbeats

    def effects(self, process: Process, effects: Iterable[Effect]) -> None:
        """Record the effects of an engine."""
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(process.name, effect)
            elif isinstance(effect, Disconnect):
                self.event(process.name, f"closes its connection to {name_of(effect.peer)}")
            elif isinstance(effect, StopReading):
                self.event(process.name, f"stops reading from {name_of(effect.peer)}")
            elif isinstance(effect, ResumeReading):
                self.event(process.name, f"reads from {name_of(effect.peer)} again")
            elif isinstance(effect, Stopped):
                self.event(process.name, "has drained")

    def outcome(self, client: str, call: Call, outcome: Reply | CallError) -> None:
        """Record how a call ends."""
        if isinstance(outcome, Reply):
            text = f"gets {self._show(outcome.frames)}"
        else:
            ran = "may have run" if outcome.may_have_executed else "has not run"
            text = f"fails with {type(outcome).__name__} ({ran}): {outcome}"
        self._add(client, f"call {call.number} of {client} {text}", f"call {call.number} {text}")

    def event(self, process: str, what: str) -> None:
        """Record an event of a process."""
        self._add(process, f"{process} {what}", what)

    def _sent(self, sender: str, send: Send) -> None:
        line = self._describe(sender, send.message)
        if self._heartbeats or "HEARTBEAT" not in line:
            self.entries.append(Entry(self._world.now, sender, name_of(send.peer), line, line))

    def _add(self, source: str, text: str, short: str) -> None:
        self.entries.append(Entry(self._world.now, source, "", text, short))

    @property
    def lines(self) -> list[str]:
        """All entries as text."""
        return [str(entry) for entry in self.entries]


def name_of(peer: Any) -> str:
    """Return the name of the process at the other end of a connection."""
    name: str = peer.stream.other.process.name
    return name
