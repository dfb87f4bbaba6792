"""Scenarios of the Pirate patterns; draws the knobs of a run from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.sim.kernel.drawing import FAULTS, WORK, Choices, Draw, always, between, one_of
from requite.sim.kernel.faults import FaultKind, faults_of
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant, PirateWorkerSpec

_PATIENCE: Final = 40  # one-way network delays


@dataclass(frozen=True, slots=True)
class PirateScenario(Scenario):
    """A scenario. `variants`: a run draws one."""

    variants: tuple[PirateVariant, ...] = tuple(PirateVariant)


_ALL: Final = faults_of("client", "middle", "worker", more=(FaultKind.INTRUDER,))
_LIST: Final = (
    PirateScenario(
        "pirate-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed={
            "lossless": True,
            "network.jitter_s": 0.0,
            "network.spike_p": 0.0,
            "big_p": 0.0,
            "cancel_p": 0.0,
            "timeout_s": 60.0,
            "service_s": 0.005,
            "output_size_max": 64 << 20,
            "clients.slots": 1024,
            "clients.attempt_timeout_s": 30.0,
        },
    ),
    PirateScenario(
        "pirate-lazy",
        "clients retry; servers crash, freeze and come back",
        variants=(PirateVariant.LAZY,),
        faults=(FaultKind.CRASH_MIDDLE, FaultKind.FREEZE_MIDDLE, FaultKind.POWER_LOSS),
    ),
    PirateScenario(
        "pirate-simple",
        "a queue and REQ workers, which crash and come back",
        variants=(PirateVariant.SIMPLE,),
        faults=(FaultKind.CRASH_MIDDLE, FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
    ),
    PirateScenario(
        "pirate-paranoid",
        "a queue and workers with heartbeats, which crash, freeze, and are cut off",
        variants=(PirateVariant.PARANOID,),
        faults=(
            FaultKind.CRASH_MIDDLE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
            FaultKind.FREEZE_MIDDLE,
            FaultKind.FREEZE_WORKER,
            FaultKind.PARTITION,
            FaultKind.BLACK_HOLE,
        ),
    ),
    PirateScenario(
        "pirate-silence",
        "few requests, and workers freeze: only heartbeats show which peers are alive",
        variants=(PirateVariant.PARANOID,),
        faults=(FaultKind.FREEZE_WORKER, FaultKind.FREEZE_MIDDLE, FaultKind.BLACK_HOLE),
        fixed={"calls": 12, "faults_per_s": 0.5, "outage_max": 10.0},
    ),
    PirateScenario(
        "pirate-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        faults=(
            FaultKind.PARTITION,
            FaultKind.PARTITION_ONE_WAY,
            FaultKind.CLOG,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
        ),
    ),
    PirateScenario(
        "pirate-overload",
        "more requests than can be answered in time: abandoned ones never start",
        faults=(FaultKind.RESET, FaultKind.CRASH_CLIENT, FaultKind.CLOG),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 250,
            "service_s": 0.2,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "capacity": 1,
            "network.buffer_size": 2 << 10,
        },
    ),
    PirateScenario(
        "pirate-garbage",
        "intruders send garbage, as clients, workers and servers' clients",
        faults=(FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    PirateScenario(
        "pirate-drain",
        "clients, workers, servers and queues drain and come back",
        faults=(FaultKind.DRAIN_CLIENT, FaultKind.DRAIN_MIDDLE, FaultKind.DRAIN_WORKER),
    ),
    PirateScenario("pirate-swarm", "a random subset of all faults", faults=_ALL, swarm=True),
)
PIRATE_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    **WORK,
    **FAULTS,
    "calls": between(40, 120),
    "faulty_s": between(4.0, 15.0),
    "endless_p": always(0.0),
    "servers": between(1, 2),
    "capacity": one_of(1, 2, 16),
    "queue_max": one_of(1, 4, 64),
    "interval_s": one_of(0.2, 0.5, 1.0),
    "liveness": one_of(3, 4, 5),
    "pause_first_s": one_of(0.1, 0.5, 1.0),
    "pause_max_s": one_of(1.0, 4.0),
    "drain_timeout_s": one_of(0.5, 3.0),
    "output_size_max": one_of(1 << 20, 64 << 20),
    "lossless": always(False),
}
_CLIENT: Final[Choices] = {
    "tries": one_of(1, 2, 3, 3, 5),
    "attempt_timeout_s": one_of(0.3, 1.0, 2.5),
    "connections": one_of(1, 3, 8),
    "slots": one_of(4, 64, 64),
}


def draw(seed: int, scenario: PirateScenario) -> PirateKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "pirate", scenario)
    variant: PirateVariant = luck.one("crew", one_of(*scenario.variants))
    calls = luck.calls()
    network = calls["network"]
    clients = luck.specs("client", between(1, 4), _CLIENT)
    # A client that times out before a reply can arrive never gets one.
    patience_s = _PATIENCE * (network.latency_s + network.jitter_s)
    for client in clients.values():
        client["attempt_timeout_s"] = max(client["attempt_timeout_s"], patience_s)
    workers = always(0) if variant is PirateVariant.LAZY else between(1, 4)
    return PirateKnobs(
        **luck.knobs(_KNOBS),
        **calls,
        crew=variant,
        clients=tuple(PirateClientSpec(name, **knobs) for name, knobs in clients.items()),
        workers=tuple(PirateWorkerSpec(name) for name in luck.specs("worker", workers, {})),
    )
