"""Scripts about Majordomo: see `requite.sim.kernel.script`.

    broker interval_s=1 attempts_max=2       knobs by name
    worker w1 echo version=0.2               a name, its service, and fields of `WorkerSpec`
    client c tries=1                         a name, and fields of `ClientSpec`
    stranger s version=0.3
    0.1 c calls echo slow service_s=0.5      a service, a behaviour, and fields of `CallPlan`
    0.4 s says ready(b"echo", 1, 1000, 0)    a command of its dialect

With a line `heartbeats`, the transcript includes heartbeats.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from requite.engine import Connect, Effect, Input, PeerJoined, PeerLost, Send, Wake
from requite.errors import ConfigurationError
from requite.protocols.majordomo import wire
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.policy import PartialsFor01
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.script import NETWORK, SEED, Script, Words, of_kind, settings
from requite.sim.majordomo import scenarios
from requite.sim.majordomo.cast import MajordomoCast
from requite.sim.majordomo.checkers import CHECKERS
from requite.sim.majordomo.knobs import ClientSpec, Knobs, WorkerSpec
from requite.sim.majordomo.roles import Dialler, MajordomoParts, Stage
from requite.sim.majordomo.words import describe

_QUIET: Final[dict[str, Any]] = {
    "network": NETWORK,
    "pace": Pace(),
    "interval_s": 1.0,
    "liveness": 3,
    "attempts_max": 3,
    "service_grace_s": 2.0,
    "service_ttl_s": 10.0,
    "services_max": 100,
    "queue_max": 100,
    "client_pending_max": 100,
    "tell_old_clients": False,
    "partials_for_0_1": PartialsFor01.JOIN,
    "drain_timeout_s": 5.0,
    "handover": True,
}

_COMMANDS: Final[dict[str, Any]] = {
    "client_request": wire.ClientRequest,
    "client_cancel": wire.ClientCancel,
    "client_heartbeat": wire.ClientHeartbeat,
    "client_partial": wire.ClientPartial,
    "client_final": wire.ClientFinal,
    "ready": wire.Ready,
    "worker_request": wire.WorkerRequest,
    "worker_partial": wire.WorkerPartial,
    "worker_final": wire.WorkerFinal,
    "worker_heartbeat": wire.WorkerHeartbeat,
    "disconnect": wire.Disconnect,
    "progress": wire.Progress,
    "drain": wire.DrainNotice,
    "worker_cancel": wire.WorkerCancel,
}


class MajordomoScript(Script):
    """A script with a broker and its peers."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines, CHECKERS, describe)

    def create_processes(self, cast: Sequence[Words]) -> Mapping[str, Process]:
        """Create all processes of the script."""
        knobs = _knobs(cast)
        self.history.knobs = knobs
        stage = Stage(
            self.world, self.network, self.history, self, knobs, MajordomoParts(), self.transcript
        )
        scripted = [
            ScriptedPeer(name, stage, **_with_version(rest))
            for name, *rest in of_kind(cast, "stranger")
        ]
        return {process.name: process for process in (*MajordomoCast(stage).honest, *scripted)}

    def read_call(self, words: Words) -> dict[str, Any]:
        """Read a service, a behaviour, and fields of the call."""
        service, behaviour, *rest = words
        return {"service": service, "behaviour": Behaviour(behaviour), **settings(rest)}


def _knobs(cast: Sequence[Words]) -> Knobs:
    workers = []
    for name, service, *rest in of_kind(cast, "worker"):
        workers.append(WorkerSpec(name, service, **_with_version(rest)))
    clients = []
    for name, *rest in of_kind(cast, "client"):
        clients.append(ClientSpec(name, first_sequence=0, **_with_version(rest)))
    knobs = replace(
        scenarios.draw(SEED, scenarios.MDP_SCENARIOS["calm"]),
        clients=tuple(clients),
        workers=tuple(workers),
        **_QUIET,
    )
    return replace(knobs, **settings(word for line in of_kind(cast, "broker") for word in line))


def _with_version(words: Iterable[str]) -> dict[str, Any]:
    """Read settings; a version looks like a number, but is text."""
    given = {"version": "0.3"} | settings(words)
    return given | {"version": str(given["version"])}


class _SendMessage(tuple[Any, ...]):
    """The input of a scripted peer's engine: a message to send."""


class _ScriptedEngine:
    """The engine of a scripted peer: it sends scripted messages to its only peer."""

    def __init__(self) -> None:
        self._dial_at: float | None = 0.0
        self._peer: Any = None

    def handle(self, events: Sequence[Input], _now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._handle(event)]

    def _handle(self, event: Input) -> Iterator[Effect]:
        if isinstance(event, PeerJoined):
            self._peer = event.peer
        elif isinstance(event, PeerLost):
            self._peer = None
        elif isinstance(event, Wake):
            self._dial_at = None
            yield Connect()
        elif isinstance(event, _SendMessage) and self._peer is not None:
            yield Send(self._peer, list(event))

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at

    def snapshot(self) -> bool:
        """Return whether it is connected."""
        return self._peer is not None


class ScriptedPeer(Dialler):
    """A process that connects, and sends the messages of the script."""

    is_honest = False

    def __init__(self, name: str, stage: Stage, version: str) -> None:
        super().__init__(name, False, stage)
        self._dialect = by_version(version)

    def make_engine(self) -> Any:
        """Return an engine that sends scripted messages."""
        return _ScriptedEngine()

    def say(self, command: str) -> None:
        """Send a command, such as `disconnect()`: its name in `_COMMANDS`, and its fields."""
        call = ast.parse(command, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ConfigurationError(f"{command!r} is not a command of a dialect")
        kind = _COMMANDS.get(call.func.id)
        if kind is None:
            raise ConfigurationError(
                f"{call.func.id!r} is not a command; the commands are {', '.join(_COMMANDS)}"
            )
        message = self._dialect.encode(kind(*map(ast.literal_eval, call.args)))
        self.turn(self.host.submit, _SendMessage(message))
