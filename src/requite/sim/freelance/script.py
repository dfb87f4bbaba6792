"""Scripts about the Freelance pattern: see `requite.sim.kernel.script`.

flp model=shotgun ping_s=1.0             the first line; knobs by name
client c s1 s2 attempts=3                a name, the servers in order, fields of `FlpClientSpec`
server s1 capacity=1                     a name, and fields of `FlpServerSpec`
0.1 c calls echo service_s=0.5           a behaviour, and fields of `CallPlan`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from requite.protocols.freelance.wire import Model
from requite.sim.freelance.cast import FlpCast
from requite.sim.freelance.knobs import FlpClientSpec, FlpServerSpec, FreelanceKnobs
from requite.sim.freelance.scenarios import FLP_SCENARIOS, draw
from requite.sim.freelance.simulation import FLP_CHECKERS
from requite.sim.freelance.stage import FlpParts, FlpStage
from requite.sim.freelance.words import describe
from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.script import NETWORK, SEED, Script, Words, of_kind, settings

_QUIET: Final[dict[str, Any]] = {
    "network": NETWORK,
    "pace": Pace(),
    "lossless": False,
    "ping_s": 2.0,
    "liveness": 3,
    "output_size_max": 64 << 20,
}


class FreelanceScript(Script):
    """A script with clients and servers."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines, FLP_CHECKERS, describe(_model(lines[0].split()[1:])))

    def create_processes(self, cast: Sequence[Words]) -> Mapping[str, Process]:
        """Create all processes of the script."""
        knobs = _knobs(cast)
        self.history.knobs = knobs
        stage = FlpStage(
            self.world, self.network, self.history, self, knobs, FlpParts(), self.transcript
        )
        return {process.name: process for process in FlpCast(stage).honest}

    def read_call(self, words: Words) -> dict[str, Any]:
        """Read a behaviour, and fields of the call."""
        behaviour, *rest = words
        return {"behaviour": Behaviour(behaviour), **settings(rest)}


def _model(words: Words) -> Model:
    named = [word.removeprefix("model=") for word in words if word.startswith("model=")]
    return Model(named[0]) if named else Model.AGENT


def _knobs(cast: Sequence[Words]) -> FreelanceKnobs:
    [words] = of_kind(cast, "flp")
    model = _model(words)
    given = settings(word for word in words if not word.startswith("model="))
    knobs = draw(SEED, FLP_SCENARIOS["flp-calm"])
    servers = tuple(_server(*words) for words in of_kind(cast, "server"))
    clients = tuple(_client(words, model) for words in of_kind(cast, "client"))
    quiet = _QUIET | {"model": model, "clients": clients, "servers": servers}
    return replace(knobs, **quiet | given)


def _server(name: str, *rest: str) -> FlpServerSpec:
    return FlpServerSpec(name, **settings(rest))


def _client(words: Words, model: Model) -> FlpClientSpec:
    name, *rest = words
    servers = tuple(word for word in rest if "=" not in word)
    attempt_s = 1.0 if model is Model.FAILOVER else None
    more = settings(word for word in rest if "=" in word)
    return FlpClientSpec(name, servers, **{"attempt_s": attempt_s} | more)
