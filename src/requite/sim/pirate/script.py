"""Scripts about the Pirates: see `requite.sim.kernel.script`.

pirate paranoid interval_s=1.0           the first line: a `PirateVariant`, and knobs by name
client c tries=3 attempt_timeout_s=1.0   a name, and fields of `PirateClientSpec`
worker w                                 a worker at the queue; without a queue there are
0.1 c calls echo service_s=0.5           servers, server-1 and, with servers=2, server-2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from requite.sim.kernel.knobs import Behaviour
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.script import NETWORK, SEED, Script, Words, of_kind, settings
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant, PirateWorkerSpec
from requite.sim.pirate.parties import PirateParts, PirateStage
from requite.sim.pirate.scenarios import PIRATE_SCENARIOS, draw
from requite.sim.pirate.simulation import PirateCast
from requite.sim.pirate.words import describe
from requite.sim.pirate.workload import SERVICE

_QUIET: Final[dict[str, Any]] = {
    "network": NETWORK,
    "pace": Pace(),
    "lossless": False,
    "servers": 1,
    "capacity": 16,
    "queue_max": 64,
    "interval_s": 1.0,
    "liveness": 3,
    "pause_first_s": 1.0,
    "pause_max_s": 32.0,
    "output_size_max": 64 << 20,
}


class PirateScript(Script):
    """A script with clients, and a queue with workers, or servers."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(lines, PIRATE_CHECKERS, describe)

    def create_processes(self, cast: Sequence[Words]) -> Mapping[str, Process]:
        """Create all processes of the script."""
        knobs = _knobs(cast)
        self.history.knobs = knobs
        stage = PirateStage(
            self.world, self.network, self.history, self, knobs, PirateParts(), self.transcript
        )
        return {process.name: process for process in PirateCast(stage).honest}

    def read_call(self, words: Words) -> dict[str, Any]:
        """Read a behaviour, and fields of the call."""
        behaviour, *rest = words
        return {"service": SERVICE, "behaviour": Behaviour(behaviour), **settings(rest)}


def _knobs(cast: Sequence[Words]) -> PirateKnobs:
    [[crew, *rest]] = of_kind(cast, "pirate")
    clients = [PirateClientSpec(name, **settings(more)) for name, *more in of_kind(cast, "client")]
    workers = [PirateWorkerSpec(name) for [name] in of_kind(cast, "worker")]
    knobs = replace(
        draw(SEED, PIRATE_SCENARIOS["pirate-calm"]),
        crew=PirateVariant(crew),
        clients=tuple(clients),
        workers=tuple(workers),
        **_QUIET,
    )
    return replace(knobs, **settings(rest))
