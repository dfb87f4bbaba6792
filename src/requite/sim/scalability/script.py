"""Scripts about the scalability protocols: see `requite.sim.kernel.script`.

sp hops=8 in_band=True                   the first line; knobs by name
client c resend_s=1.0 first_id=823       a name, and fields of `SpClientSpec`
device d first_id=299                    a name, and fields of `DeviceSpec`
worker w capacity=1                      a name, and fields of `SpWorkerSpec`
connect c > d priority=2                 c dials d, and sends it requests
connect d < w                            w dials d, and gets requests from it
stranger s d:front                       dials a port: as a client at the front, ...
stranger t d:back-1-1                    ... as a worker at the back, by priority and weight
0.1 c calls echo service_s=0.5           a behaviour, and fields of `CallPlan`
0.4 s says 0000012b 80000337 hello       tags in hex, and a body, if any
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from requite.engine import Effect, Input, PeerJoined, PeerLost, Send
from requite.framing.sp import SpStream
from requite.protocols.scalability.wire import REP, REQ
from requite.shell.host import Host
from requite.sim.kernel.engine_process import EngineProcess
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.script import NETWORK, SEED, Script, Words, of_kind, settings
from requite.sim.kernel.stream import SimStream
from requite.sim.scalability.cast import SpCast
from requite.sim.scalability.checkers import SP_CHECKERS
from requite.sim.scalability.drawing import draw
from requite.sim.scalability.knobs import DeviceSpec, ScalabilityKnobs, SpClientSpec, SpWorkerSpec
from requite.sim.scalability.party import SpParts, SpStage
from requite.sim.scalability.scenarios import SP_SCENARIOS
from requite.sim.scalability.topology import FRONT, Edge
from requite.sim.scalability.words import describe, show

_TAG_DIGITS: Final = 8
_QUIET: Final[dict[str, Any]] = {
    "network": NETWORK,
    "pace": Pace(),
    "hops": 8,
    "hold_s": 30.0,
    "in_band": False,
    "output_size_max": 64 << 20,
    "lossless": False,
    "at_once": False,
}


class ScalabilityScript(Script):
    """A script with clients, devices and workers."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines, SP_CHECKERS, describe, show)

    def create_processes(self, cast: Sequence[Words]) -> Mapping[str, Process]:
        """Create all processes of the script, with its connections."""
        knobs = _knobs(cast)
        self.history.knobs = knobs
        stage = SpStage(
            self.world, self.network, self.history, self, knobs, SpParts(), self.transcript
        )
        named = of_kind(cast, "stranger")
        scripted = [ScriptedPeer(name, address, stage) for name, address in named]
        return {process.name: process for process in (*SpCast(stage).honest, *scripted)}

    def read_call(self, words: Words) -> dict[str, Any]:
        """Read a behaviour, and fields of the call."""
        behaviour, *rest = words
        return {"behaviour": Behaviour(behaviour), **settings(rest)}


def _knobs(cast: Sequence[Words]) -> ScalabilityKnobs:
    knobs = replace(
        draw(SEED, SP_SCENARIOS["sp-calm"]),
        clients=_specs(cast, "client", SpClientSpec),
        devices=_specs(cast, "device", DeviceSpec),
        workers=_specs(cast, "worker", SpWorkerSpec),
        edges=tuple(map(_edge, of_kind(cast, "connect"))),
        **_QUIET,
    )
    return replace(knobs, **settings(word for words in of_kind(cast, "sp") for word in words))


def _specs(cast: Sequence[Words], kind: str, make: Any) -> tuple[Any, ...]:
    """Return the specifications of one kind; ids begin at 1 unless a line sets them."""
    named = of_kind(cast, kind)
    return tuple(make(name, **{"first_id": 1} | settings(rest)) for name, *rest in named)


def _edge(words: Words) -> Edge:
    upper, way, lower, *rest = words
    return Edge(upper, lower, way == ">", **settings(rest))


class _SendMessage(tuple[bytes, ...]):
    """The input of a scripted peer's engine: a message to send."""


class _ScriptedEngine:
    """The engine of a scripted peer: it sends scripted messages to its only peer."""

    def __init__(self) -> None:
        self._peer: Any = None

    def handle(self, events: Sequence[Input], _now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._handle(event)]

    def _handle(self, event: Input) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            self._peer = event.peer
        elif isinstance(event, PeerLost):
            self._peer = None
        elif isinstance(event, _SendMessage) and self._peer is not None:
            yield Send(self._peer, event)

    def deadline(self) -> None:
        """Return None: no timers."""

    def snapshot(self) -> bool:
        """Return whether it is connected."""
        return self._peer is not None


class ScriptedPeer(EngineProcess):
    """A process that connects once, and sends the messages of the script."""

    is_honest = False

    def __init__(self, name: str, address: str, stage: SpStage) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor)
        self._stage = stage
        self._address = address

    def make_host(self) -> Host:
        """Return a host with an engine that sends scripted messages."""
        own, peer = (REQ, REP) if self._address.endswith(f":{FRONT}") else (REP, REQ)
        return Host(
            _ScriptedEngine(),
            self.clock,
            lambda: SpStream(own, peer, in_band=self._stage.knobs.in_band),
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            logger="requite.sim",
        )

    def started(self) -> None:
        """Connect."""
        self.network.dial(self, self._address, self._connected, lambda _why: None)

    def _connected(self, stream: SimStream) -> None:
        self.adopt(stream, lambda: self.host.opened(stream, kept=True))

    def say(self, words: str) -> None:
        """Send a message: words of eight hex digits are tags, the rest is the body."""
        pieces = [_piece(word) for word in words.split()]
        message = _SendMessage((b"".join(pieces),))
        transcript = self._stage.transcript
        if transcript is not None:
            transcript.event(self.name, f"says {describe(self.name, message)}")
        self.turn(self.host.submit, message)


def _piece(word: str) -> bytes:
    is_tag = len(word) == _TAG_DIGITS and all(digit in "0123456789abcdef" for digit in word)
    return bytes.fromhex(word) if is_tag else word.encode()
