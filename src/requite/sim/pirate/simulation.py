"""A run of the Pirate patterns: its tables and phases, and its scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from requite.sim.kernel.cast import Cast
from requite.sim.kernel.parties import PROBE_S, PartiesSimulation, handler_s_max, reconnect_s
from requite.sim.kernel.script import QUIET, SEED, Form, Words, of_kind, read_call, settings, specs
from requite.sim.kernel.simulation import Luck
from requite.sim.kernel.stage import RunStage
from requite.sim.kernel.transcript import show_body
from requite.sim.kernel.workload import CallPlan, plain_call
from requite.sim.pirate.checkers import PIRATE_CHECKERS
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant, PirateWorkerSpec
from requite.sim.pirate.parties import SERVICE, PirateCast, PirateParts
from requite.sim.pirate.scenarios import PIRATE_SCENARIOS, draw

_WORDS: Final = {
    b"READY": "READY",
    b"\x01": "READY",
    b"HEARTBEAT": "HEARTBEAT",
    b"\x02": "HEARTBEAT",
}


class PirateSimulation(PartiesSimulation):
    """A run with clients, and servers or a queue with workers."""

    knobs_type = PirateKnobs
    checkers = PIRATE_CHECKERS
    idle: ClassVar = {
        "client": ("held", "sent", "dialling"),
        "server": ("waiting", "running", "abandoned"),
        "queue": ("waiting", "busy"),
        "worker": ("waiting", "running", "abandoned", "dialling"),
    }
    drains = ("client", "worker", "middle")
    knobs: PirateKnobs
    cast: Cast

    def make_cast(self) -> PirateCast:
        """See `PartiesSimulation.make_cast`."""
        return PirateCast(RunStage.of(self, PirateParts))

    def describe(self, _sender: str, message: Sequence[bytes]) -> str:
        """Describe a message; only its direction tells a request from a reply."""
        frames = list(message)
        while len(frames) > 1 and not frames[0]:
            del frames[0]
        if len(frames) == 1 and frames[0] in _WORDS:
            return _WORDS[frames[0]]
        if len(frames) > 2 and not frames[1]:
            return f"for {frames[0].hex()}: {show_body(frames[2:])}"
        return show_body(frames)

    @classmethod
    def draw_calls(cls, knobs: PirateKnobs, luck: Luck) -> Iterable[CallPlan]:
        """Draw the calls; all are for one service."""
        return (plan._replace(service=SERVICE) for plan in super().draw_calls(knobs, luck))

    def settle_s(self) -> float:
        """Return the time in seconds in which everything must settle once faults have ended (I10).

        It is the sum of what may happen in sequence: a dead connection is detected and replaced,
        silent peers are given up, a pause before the next connection, deadlines pass, and handlers
        end.
        """
        knobs = self.knobs
        presence_s = 2 * knobs.silence_s + knobs.pause_max_s
        handler_s = handler_s_max(knobs.service_s, knobs.behaviours)
        return reconnect_s(knobs.network) + presence_s + 1.5 * knobs.timeout_s + 3 * handler_s

    def disagreements(self) -> Iterator[str]:
        """Yield tables that do not match the live peers; clients connect when they have calls."""
        middle, workers = self.cast.roles["middle"], len(self.knobs.workers)
        askers = sum(_count(client, "connections") for client in self.cast.roles["client"])
        known = sum(_count(party, "clients") for party in middle)
        if askers != known:
            yield f"clients have {askers} connections, but the other ends have {known}"
        for queue in () if self.knobs.crew is PirateVariant.LAZY else middle:
            if (_count(queue, "unready"), _count(queue, "idle")) != (0, workers):
                yield f"{workers} workers are connected, but {queue.name} has other ones"

    def probes(self, _client: str) -> int:
        """Return the number of probe calls: one for each worker, and one more."""
        return len(self.knobs.workers) + 1

    def probe(self, client: str, number: int) -> CallPlan:
        """See `PartiesSimulation.probe`."""
        plan = plain_call(client, number, PROBE_S, service_s=min(0.001, self.knobs.service_s))
        return plan._replace(service=SERVICE)


def _count(party: Any, name: str) -> int:
    count: int = getattr(party.hub.snapshot(), name)
    return count


# --- scripts: see `requite.sim.kernel.script` -----------------------------------------------------
def _script_knobs(cast: Sequence[Words]) -> PirateKnobs:
    """Read the processes of a script.

    pirate paranoid interval_s=1.0           the first line: a `PirateVariant`, and knobs by name
    client c tries=3 attempt_timeout_s=1.0   a name, and fields of `PirateClientSpec`
    worker w                                 a worker at the queue; without a queue there are
                                             servers, server-1 and, with servers=2, server-2
    """
    [[crew, *rest]] = of_kind(cast, "pirate")
    knobs: dict[str, Any] = {
        "servers": 1,
        "capacity": 16,
        "queue_max": 64,
        "interval_s": 1.0,
        "liveness": 3,
        "pause_first_s": 1.0,
        "pause_max_s": 32.0,
    }
    return replace(
        draw(SEED, PIRATE_SCENARIOS["pirate-calm"]),
        crew=PirateVariant(crew),
        clients=specs(cast, "client", PirateClientSpec),
        workers=specs(cast, "worker", PirateWorkerSpec),
        **QUIET | knobs | settings(rest),
    )


def _read_call(words: Words) -> dict[str, Any]:
    return {"service": SERVICE, **read_call(words)}


SCRIPT: Final = Form(PirateSimulation, _script_knobs, _read_call)
