"""Play a scenario from a script, step by step, instead of drawing it from a seed.

A script names the processes, then the events with their times; `play` returns the lines of the
transcript. Nothing is random: each way takes a millisecond, and there are no unscripted faults.

    client c                                 a process: see the scripts of each protocol
    0.1 c calls echo service_s=0.5           a call, with fields of `CallPlan`
    0.2 c cancels 1                          calls are numbered in the order of the script
    0.3 w1 crashes                           or: loses-power, freezes, thaws, starts, drains
    0.4 s says something                     a scripted peer sends a message
    0.5 cut c w1                             one way; mend, clog and unclog as well
    1.0 reset w1                             break its connections
    3.0 ends

The first word of a script is the group of a protocol: `sp`, `flp` or `pirate`; any other word
begins a script about Majordomo. What else a protocol reads is in its `script.py`.
"""

from __future__ import annotations

import ast
import logging
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from requite.errors import ConfigurationError
from requite.sim.kernel.history import History
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.network import Network
from requite.sim.kernel.plan import Plan
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.result import Options
from requite.sim.kernel.simulation import Simulation
from requite.sim.kernel.transcript import Transcript
from requite.sim.kernel.workload import CallPlan
from requite.sim.kernel.world import World

SEED: Final = 0
NETWORK: Final = Shape(connect_timeout_s=1.0)
QUIET: Final[dict[str, Any]] = {
    "network": NETWORK,
    "pace": Pace(),
    "lossless": False,
    "output_size_max": 64 << 20,
}
"""Knobs of scripts: nothing is drawn, and nothing is late."""
_START_EVERY_S: Final = 0.001
_DEEDS: Final[dict[str, str]] = {
    "crashes": "crash",
    "loses-power": "lose_power",
    "freezes": "freeze",
    "thaws": "thaw",
    "starts": "start",
    "drains": "drain",
}

Words = list[str]


class Form(NamedTuple):
    """How a protocol's scripts are read.

    `knobs` reads the lines without a time, and `call` the words of a call, into fields of
    `CallPlan`. `strangers` creates the processes of a script that follow no protocol.
    """

    simulation: type[Simulation]
    knobs: Callable[[Sequence[Words]], Any]
    call: Callable[[Words], dict[str, Any]]
    strangers: Callable[[Sequence[Words], Any], Sequence[Process]] = lambda _cast, _stage: ()


class Script:
    """A parsed script, which can be played once: its steps take the place of a plan."""

    def __init__(self, lines: Sequence[str], form: Form) -> None:
        cast = [shlex.split(line) for line in lines if not line[0].isdigit()]
        plan = Plan("script", SEED, form.knobs(cast), (), ())
        options = Options(transcript=True, heartbeats="heartbeats" in lines)
        run: Any = form.simulation(plan, options)  # type: ignore[call-arg]
        self.world: World = run.world
        self.history: History = run.history
        self.transcript: Transcript = run.transcript
        self.network: Network = run.cast.network
        self._read_call = form.call
        self._calls = 0
        self._end_s = 0.0
        processes = (*run.cast.honest, *form.strangers(cast, run.cast.stage))
        self._processes: dict[str, Process] = {process.name: process for process in processes}
        for i, process in enumerate(self._processes.values()):
            self.world.at(i * _START_EVERY_S, process.start)
        self._plan(line.split(maxsplit=1) for line in lines if line[0].isdigit())

    # --- the play ---------------------------------------------------------------------------------
    def play(self) -> list[str]:
        """Play all steps; return the transcript and the violations."""
        self.world.run(self._end_s)
        violated = [f"VIOLATED {violation}" for violation in self.history.violations]
        return [*self.transcript.lines, *violated]

    # --- the steps --------------------------------------------------------------------------------
    def _plan(self, steps: Iterable[Words]) -> None:
        for at_s, step in steps:
            if step == "ends":
                self._end_s = float(at_s)
            else:
                self.world.at(float(at_s), self._act(step))

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
                plan = self._call(first, shlex.split(rest[0]))
                return lambda: process.user.call(plan)
            case "cancels":
                return lambda: process.turn(process.user.cancel, self.history.calls[int(rest[0])])
            case "says":
                return lambda: process.say(rest[0])
        if second not in _DEEDS:
            raise ConfigurationError(f"cannot read {step!r}")
        act: Callable[[], None] = getattr(process, _DEEDS[second])
        return act

    def _tamper(self, verb: str, source: str, sink: str) -> None:
        self.transcript.event("the network:", f"{verb} {source} to {sink}")
        getattr(self.network, verb)(source, sink)

    def _reset(self, process: Process) -> None:
        self.transcript.event("the network:", f"reset {process.name}")
        for stream in list(process.streams):
            self.network.reset(stream)

    def _call(self, client: str, words: Words) -> CallPlan:
        self._calls += 1
        plan = CallPlan(
            number=self._calls,
            at_s=0.0,
            client=client,
            service="",
            behaviour=Behaviour.ECHO,
            service_s=0.0,
            parts=0,
            payload=b"payload",
            timeout_s=5.0,
            idempotent=True,
            wants_partials=False,
            cancel_after_s=None,
        )
        return plan._replace(**self._read_call(words))


def clean(script: str) -> list[str]:
    """Return the lines of a script without comments and empty lines."""
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    return [line for line in map(str.strip, script.splitlines()) if line and line[0] != "#"]


def read_call(words: Words) -> dict[str, Any]:
    """Read a behaviour, and fields of the call."""
    behaviour, *rest = words
    return {"behaviour": Behaviour(behaviour), **settings(rest)}


def specs(cast: Sequence[Words], kind: str, make: Callable[..., Any], **given: Any) -> Any:
    """Return the records of the processes of a kind: each line has a name, and fields."""
    named = of_kind(cast, kind)
    return tuple(make(name, **given | settings(rest)) for name, *rest in named)


def of_kind(cast: Sequence[Words], kind: str) -> list[Words]:
    """Return the words after `kind` of each line that begins with it."""
    return [words[1:] for words in cast if words[0] == kind]


def settings(words: Iterable[str]) -> dict[str, Any]:
    """Parse `name=value`; a value is a Python literal, or text without quotes."""
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[name] = value
    return found
