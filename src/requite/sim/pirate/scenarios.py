"""Scenarios of the Pirate patterns; draws the knobs of a run from its seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from requite.sim.kernel.drawing import CALM, FAULTS, WORK, Choices, Draw, always, between, one_of
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario, partitions, usual
from requite.sim.pirate.knobs import PirateClientSpec, PirateKnobs, PirateVariant, PirateWorkerSpec

_PATIENCE: Final = 40  # one-way network delays


_LIST: Final = (
    Scenario(
        "pirate-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed=CALM | {"lossless": True, "clients.slots": 1024, "clients.attempt_timeout_s": 30.0},
    ),
    Scenario(
        "pirate-lazy",
        "clients retry; servers crash, freeze and come back",
        fixed={"crew": PirateVariant.LAZY},
        faults=(FaultKind.CRASH_MIDDLE, FaultKind.FREEZE_MIDDLE, FaultKind.POWER_LOSS),
    ),
    Scenario(
        "pirate-simple",
        "a queue and REQ workers, which crash and come back",
        fixed={"crew": PirateVariant.SIMPLE},
        faults=(FaultKind.CRASH_MIDDLE, FaultKind.CRASH_WORKER, FaultKind.POWER_LOSS),
    ),
    Scenario(
        "pirate-paranoid",
        "a queue and workers with heartbeats, which crash, freeze, and are cut off",
        fixed={"crew": PirateVariant.PARANOID},
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
    Scenario(
        "pirate-silence",
        "few requests, and workers freeze: only heartbeats show which peers are alive",
        faults=(FaultKind.FREEZE_WORKER, FaultKind.FREEZE_MIDDLE, FaultKind.BLACK_HOLE),
        fixed={
            "crew": PirateVariant.PARANOID,
            "calls": 12,
            "faults_per_s": 0.5,
            "outage_max": 10.0,
        },
    ),
    partitions("pirate"),
    Scenario(
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
    *usual("pirate", "client", "middle", "worker"),
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


def draw(seed: int, scenario: Scenario) -> PirateKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "pirate", scenario)
    variant: PirateVariant = luck.one("crew", one_of(*PirateVariant))
    calls = luck.calls()
    network = calls["network"]
    # A client that times out before a reply can arrive never gets one.
    patience_s = _PATIENCE * (network.latency_s + network.jitter_s)
    clients = luck.cast(PirateClientSpec, "client", between(1, 4), _CLIENT)
    workers = always(0) if variant is PirateVariant.LAZY else between(1, 4)
    return PirateKnobs(
        **luck.knobs(_KNOBS),
        **calls,
        crew=variant,
        clients=tuple(
            replace(client, attempt_timeout_s=max(client.attempt_timeout_s, patience_s))
            for client in clients
        ),
        workers=luck.cast(PirateWorkerSpec, "worker", workers, {}),
    )
