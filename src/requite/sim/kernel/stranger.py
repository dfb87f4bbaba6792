"""Processes of scripts that follow no protocol: they send what the script says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from requite.engine import Effect, Input, PeerJoined, PeerLost, Send
from requite.framing.base import Framing
from requite.shell.host import Host
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.stream import SimStream


class _SendMessage(tuple[bytes, ...]):
    """The input of a stranger's engine: a message to send."""


class _Engine:
    """The engine of a stranger: it sends messages to its only peer."""

    def __init__(self, stranger: Stranger) -> None:
        self._stranger = stranger
        self._peer: Any = None

    def handle(self, events: Sequence[Input], _now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        effects = [effect for event in events for effect in self._handle(event)]
        self._stranger.stage.transcript.effects(self._stranger, effects)
        return effects

    def _handle(self, event: Input) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            self._peer = event.peer
        elif isinstance(event, PeerLost):
            self._peer = None
        elif isinstance(event, _SendMessage) and self._peer is not None:
            yield Send(self._peer, list(event))

    def deadline(self) -> None:
        """Return None: no timers."""

    def snapshot(self) -> bool:
        """Return whether it is connected."""
        return self._peer is not None


class Stranger(EngineProcess):
    """A process that connects to `address` once; `read` turns words of a script into a message."""

    is_honest = False

    def __init__(
        self,
        name: str,
        address: str,
        stage: RunStage[Any, Any],
        framing: Callable[[], Framing],
        read: Callable[[str], Sequence[bytes]],
    ) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self.stage: Any = stage
        self._address = address
        self._framing = framing
        self._read = read

    def make_host(self) -> Host:
        """Return a host with an engine that sends scripted messages."""
        return self.host_of(_Engine(self), self.stage.knobs.limits, self._framing)

    def started(self) -> None:
        """Connect."""
        self.network.dial(self, self._address, self._connected, lambda _why: None)

    def _connected(self, stream: SimStream) -> None:
        self.adopt(stream, lambda: self.host.opened(stream, kept=True))

    def say(self, words: str) -> None:
        """Send a message."""
        self.turn(self.host.submit, _SendMessage(self._read(words)))
