"""Scenarios of services that run each request once; draws their knobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.kernel.drawing import Choices, Draw, chance, one_of
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import Behaviour, values_of
from requite.sim.majordomo import scenarios as majordomo_scenarios
from requite.sim.majordomo.scenarios import MajordomoScenario

_LIST: Final = (
    MajordomoScenario(
        "dedup-calm",
        "calls are repeated, without faults",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM, Behaviour.FAIL),
    ),
    MajordomoScenario(
        "dedup-kill",
        "workers are killed between a write and its sync, and at any other moment",
        (FaultKind.CRASH_WORKER, FaultKind.CRASH_BROKER, FaultKind.CRASH_CLIENT),
        fixed={"durable": True},
    ),
    MajordomoScenario(
        "dedup-power",
        "machines lose power: unsynced data is lost or torn",
        (FaultKind.POWER_LOSS,),
        fixed={"durable": True, "faults_per_s": 0.8},
    ),
    MajordomoScenario(
        "dedup-retries",
        "replies are lost, so that clients and the broker send requests again",
        (FaultKind.RESET, FaultKind.BLACK_HOLE, FaultKind.PARTITION, FaultKind.CRASH_BROKER),
    ),
    MajordomoScenario(
        "dedup-swarm",
        "services that run each request once; a random subset of all faults",
        majordomo_scenarios.ALL_FAULTS,
        swarm=True,
    ),
)
DEDUP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    "repeat_p": one_of(0.1, 0.5),
    "durable": chance(0.8),
    "in_doubt": one_of("refuse", "refuse", "run"),
    "store_failures": chance(0.3),
    "window_s": one_of(2.0, 20.0, 60.0),
    "disk_s": one_of(0.0001, 0.005, 0.02),
    "segment_size": one_of(4096, 1 << 16),
}
_VERSIONS: Final = ("0.3",)  # the older dialects do not tell repetitions from other requests
# Requests are resent only if they are idempotent.
_RESENT: Final = {"idempotent_p": 1.0, "workers.identity": False}


def draw(seed: int, scenario: MajordomoScenario) -> DedupKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    resent = replace(scenario, versions=_VERSIONS, fixed={**scenario.fixed, **_RESENT})
    knobs = majordomo_scenarios.draw(seed, resent)
    drawn = values_of(knobs)
    # Each service has one worker: workers do not share their stored replies.
    drawn["workers"] = tuple(
        replace(worker, service=service)
        for worker, service in zip(knobs.workers, knobs.services, strict=False)
    )
    # One worker with a slow disk has a queue: a single try needs more time than half a second.
    drawn["clients"] = tuple(
        replace(client, attempt_timeout_s=None) if client.tries == 1 else client
        for client in knobs.clients
    )
    return DedupKnobs(**drawn, **Draw(seed, "dedup", scenario).knobs(_KNOBS))
