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

The first word of a script chooses the protocol: `sp` the scalability protocols
(`scalability/script.py`), `pirate` the Pirates (`pirate/script.py`), any other Majordomo
(`majordomo_script.py`).
"""

from __future__ import annotations

import ast
import logging
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.sim.kernel.history import Checker, History
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.network import Network
from requite.sim.kernel.process import Process
from requite.sim.kernel.transcript import Describe, Show, Transcript, show_body
from requite.sim.kernel.workload import CallPlan
from requite.sim.kernel.world import World

SEED: Final = 0
NETWORK: Final = Shape(connect_timeout_s=1.0)
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


class Script:
    """A parsed script, which can be played once."""

    def __init__(
        self,
        lines: Sequence[str],
        checkers: Sequence[type[Checker]],
        describe: Describe,
        show: Show = show_body,
    ) -> None:
        self.world = World(SEED)
        self.history = History(self.world, checkers)
        self.transcript = Transcript(self.world, describe, show, heartbeats="heartbeats" in lines)
        self.network = Network(self.world, NETWORK)
        self._calls = 0
        self._end_s = 0.0
        cast = [shlex.split(line) for line in lines if not line[0].isdigit()]
        self._processes = dict(self.create_processes(cast))
        for i, process in enumerate(self._processes.values()):
            self.world.at(i * _START_EVERY_S, process.start)
        self._plan(line.split(maxsplit=1) for line in lines if line[0].isdigit())

    # --- for subclasses ---------------------------------------------------------------------------
    def create_processes(self, cast: Sequence[Words]) -> Mapping[str, Process]:
        """Create the processes that the first lines name."""
        raise NotImplementedError

    def read_call(self, words: Words) -> dict[str, Any]:
        """Parse the words of a call into fields of `CallPlan`, by name."""
        raise NotImplementedError

    # --- the play ---------------------------------------------------------------------------------
    def play(self) -> list[str]:
        """Play all steps; return the transcript and the violations."""
        self.world.run(self._end_s)
        violated = [f"VIOLATED {violation}" for violation in self.history.violations]
        return [*self.transcript.lines, *violated]

    def process_failed(self, process: Process, trace: str) -> None:
        """Record a process that ended with an exception."""
        self.history.tell("process_failed", process, trace)

    def process_changed(self, process: Process, what: str) -> None:
        """Record that a process started, ended, froze or thawed."""
        self.transcript.event(process.name, what)

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
        return plan._replace(**self.read_call(words))


def clean(script: str) -> list[str]:
    """Return the lines of a script without comments and empty lines."""
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    return [line for line in map(str.strip, script.splitlines()) if line and line[0] != "#"]


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
