"""Play a scenario that is written down, step by step, instead of drawn from a seed.

A script names the cast, then says what happens when; `play` returns what was said, as the lines of
a transcript. Nothing is random: each way takes a millisecond, and nothing goes wrong by itself.

    broker interval_s=1 attempts_max=2       knobs, by their names
    worker w1 echo version=0.2               a name, its service, and what a `WorkerSpec` has
    client c tries=1                         a name, and what a `ClientSpec` has
    stranger s version=0.3                   says whatever it is told to
    0.1 c calls echo slow service_s=0.5      a service, a behaviour, what a `CallPlan` has
    0.2 c cancels 1                          calls are numbered as they stand here
    0.3 w1 crashes                           or: loses-power, freezes, thaws, starts, drains
    0.4 s says ready(b"echo", 1, 1000, 0)    a command of its dialect
    0.5 cut c broker                         one way; mend, clog and unclog as well
    1.0 reset w1                             break its connections
    3.0 ends

A line `heartbeats` lets the transcript have them; it leaves them out else.
"""

from __future__ import annotations

import ast
import logging
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from requite.engine import Connect, Effect, Input, PeerJoined, PeerLost, Send, Wake
from requite.errors import ConfigurationError
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.policy import PartialsFor01
from requite.sim import majordomo_scenarios as scenarios
from requite.sim.cast import Cast
from requite.sim.checkers import CHECKERS
from requite.sim.history import History
from requite.sim.knobs import Behaviour, ClientSpec, Knobs, WorkerSpec
from requite.sim.majordomo import instruct
from requite.sim.network import Network, Shape
from requite.sim.process import Pace, Process
from requite.sim.roles import Dialler, Parts, Stage
from requite.sim.transcript import Transcript
from requite.sim.words import describe
from requite.sim.workload import CallPlan
from requite.sim.world import World

_START_EVERY_S: Final = 0.001
_SEED: Final = 0
_NETWORK: Final = Shape(connect_timeout_s=1.0)
_QUIET: Final[dict[str, Any]] = {
    "network": _NETWORK,
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
_DEEDS: Final[dict[str, Callable[[Process], None]]] = {
    "crashes": Process.crash,
    "loses-power": Process.lose_power,
    "freezes": Process.freeze,
    "thaws": Process.thaw,
    "starts": Process.start,
    "drains": Process.drain,
}


def play(script: str) -> list[str]:
    """Play a script; return the lines of its transcript, and of what was violated, if anything.

    Raises `ConfigurationError` for a line that cannot be read.
    """
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    lines = [line for line in map(str.strip, script.splitlines()) if line and line[0] != "#"]
    stage = _Stage(lines)
    return stage.play()


class _Stage:
    """A script that has been read."""

    def __init__(self, lines: list[str]) -> None:
        self._world = World(_SEED)
        self._history = History(self._world, CHECKERS)
        self._transcript = Transcript(self._world, describe, heartbeats="heartbeats" in lines)
        self._network = Network(self._world, _NETWORK)
        self._calls = 0
        self._end_s = 0.0
        self._put_up([shlex.split(line) for line in lines if not line[0].isdigit()])
        self._plan(line.split(maxsplit=1) for line in lines if line[0].isdigit())

    def play(self) -> list[str]:
        """Let everything happen."""
        self._world.run(self._end_s)
        violated = [f"VIOLATED {violation}" for violation in self._history.violations]
        return [*self._transcript.lines, *violated]

    # --- the cast ---------------------------------------------------------------------------------
    def _put_up(self, lines: list[list[str]]) -> None:
        knobs = _knobs(lines)
        instruct(self._history, knobs)
        stage = Stage(
            self._world, self._network, self._history, self, knobs, Parts(), self._transcript
        )
        self._cast = Cast(stage)
        strangers = [
            Stranger(name, stage, **_with_version(rest))
            for _, name, *rest in _of(lines, "stranger")
        ]
        self._processes = {p.name: p for p in (*self._cast.honest, *strangers)}
        for i, process in enumerate(self._processes.values()):
            self._world.at(i * _START_EVERY_S, process.start)

    def process_failed(self, process: Process, trace: str) -> None:
        """An exception came out of a process."""
        self._history.tell("process_failed", process, trace)

    def process_changed(self, process: Process, what: str) -> None:
        """A process started, ended, froze or thawed."""
        self._transcript.event(process.name, what)

    # --- the steps --------------------------------------------------------------------------------
    def _plan(self, steps: Iterable[list[str]]) -> None:
        for at_s, step in steps:
            if step == "ends":
                self._end_s = float(at_s)
            else:
                act = self._act(step)
                self._world.at(float(at_s), act)

    def _act(self, step: str) -> Callable[[], object]:
        first, second, *rest = step.split(maxsplit=2)
        if first in ("cut", "mend", "clog", "unclog"):
            return lambda: self._tamper(first, second, rest[0])
        if first == "reset":
            return lambda: self._reset(self._processes[second])
        process: Any = self._processes.get(first)
        if process is None:
            raise ConfigurationError(f"there is no {first!r} in the script: {step!r}")
        match second:
            case "calls":
                plan = self._call(first, rest[0])
                return lambda: process.user.call(plan)
            case "cancels":
                return lambda: process.turn(process.user.cancel, self._history.calls[int(rest[0])])
            case "says":
                return lambda: process.say(rest[0])
        if second not in _DEEDS:
            raise ConfigurationError(f"cannot read {step!r}")
        return lambda: _DEEDS[second](process)

    def _tamper(self, verb: str, source: str, sink: str) -> None:
        self._transcript.event("the network:", f"{verb} {source} to {sink}")
        getattr(self._network, verb)(source, sink)

    def _reset(self, process: Process) -> None:
        self._transcript.event("the network:", f"reset {process.name}")
        for stream in list(process.streams):
            self._network.reset(stream)

    def _call(self, client: str, text: str) -> CallPlan:
        service, behaviour, *rest = shlex.split(text)
        self._calls += 1
        plan = CallPlan(
            number=self._calls,
            at_s=0.0,
            client=client,
            service=service,
            behaviour=Behaviour(behaviour),
            service_s=0.0,
            parts=0,
            payload=b"payload",
            timeout_s=5.0,
            idempotent=True,
            wants_partials=False,
            cancel_after_s=None,
        )
        return plan._replace(**_settings(rest))


def _of(lines: list[list[str]], kind: str) -> list[list[str]]:
    return [line for line in lines if line[0] == kind]


def _settings(words: Iterable[str]) -> dict[str, Any]:
    """Read `name=value`, where a value is a Python literal, or a text without quotes."""
    settings = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            settings[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            settings[name] = value
    return settings


def _knobs(lines: list[list[str]]) -> Knobs:
    workers = []
    for _, name, service, *rest in _of(lines, "worker"):
        workers.append(WorkerSpec(name, service, **_with_version(rest)))
    clients = []
    for _, name, *rest in _of(lines, "client"):
        clients.append(ClientSpec(name, first_sequence=0, **_with_version(rest)))
    knobs = replace(
        scenarios.draw(_SEED, scenarios.MDP_SCENARIOS["calm"]),
        clients=tuple(clients),
        workers=tuple(workers),
        **_QUIET,
    )
    return replace(knobs, **_settings(word for line in _of(lines, "broker") for word in line[1:]))


def _with_version(words: Iterable[str]) -> dict[str, Any]:
    """Read settings; a version looks like a number, and is none."""
    settings = {"version": "0.3"} | _settings(words)
    return settings | {"version": str(settings["version"])}


class _Says(tuple[Any, ...]):
    """The input of a stranger's engine: a message to send."""


class _Obedient:
    """The engine of a stranger: says what it is told, to whoever it is connected with."""

    def __init__(self) -> None:
        self._dial_at: float | None = 0.0
        self._peer: Any = None

    def handle(self, event: Input, _now: float) -> Iterator[Effect]:
        """See `requite.engine.Engine.handle`."""
        if isinstance(event, PeerJoined):
            self._peer = event.peer
        elif isinstance(event, PeerLost):
            self._peer = None
        elif isinstance(event, Wake):
            self._dial_at = None
            yield Connect()
        elif isinstance(event, _Says) and self._peer is not None:
            yield Send(self._peer, list(event))

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`."""
        return self._dial_at

    def snapshot(self) -> bool:
        """Return whether it is connected."""
        return self._peer is not None


class Stranger(Dialler):
    """A process that connects, and says what the script has it say."""

    is_honest = False

    def __init__(self, name: str, stage: Stage, version: str) -> None:
        super().__init__(name, False, stage)
        self._dialect = by_version(version)

    def make_engine(self) -> Any:
        """Make an engine that obeys."""
        return _Obedient()

    def say(self, command: str) -> None:
        """Say a command, such as `disconnect()`: a method of the dialect, and its arguments."""
        call = ast.parse(command, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ConfigurationError(f"{command!r} is no command of a dialect")
        arguments = map(ast.literal_eval, call.args)
        message = getattr(self._dialect, call.func.id)(*arguments)
        self.turn(self.host.submit, _Says(message))
