"""Scenarios of services that run each request once; draws their knobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from requite.sim import majordomo_scenarios
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.faults import FaultKind
from requite.sim.knobs import Behaviour
from requite.sim.majordomo_scenarios import Scenario


@dataclass(frozen=True, slots=True)
class DedupScenario(Scenario):
    """A scenario; only MDP 0.3 tells repetitions from other requests."""

    versions: tuple[str, ...] = ("0.3",)


_LIST: Final = (
    DedupScenario(
        "dedup-calm",
        "calls are repeated, without faults",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM, Behaviour.FAIL),
    ),
    DedupScenario(
        "dedup-kill",
        "workers are killed between a write and its sync, and at any other moment",
        (FaultKind.CRASH_WORKER, FaultKind.CRASH_BROKER, FaultKind.CRASH_CLIENT),
        fixed={"durable": True},
    ),
    DedupScenario(
        "dedup-power",
        "machines lose power: unsynced data is lost or torn",
        (FaultKind.POWER_LOSS,),
        fixed={"durable": True, "faults_per_s": 0.8},
    ),
    DedupScenario(
        "dedup-retries",
        "replies are lost, so that clients and the broker send requests again",
        (FaultKind.RESET, FaultKind.BLACK_HOLE, FaultKind.PARTITION, FaultKind.CRASH_BROKER),
    ),
    DedupScenario(
        "dedup-swarm",
        "services that run each request once; a random subset of all faults",
        majordomo_scenarios.ALL_FAULTS,
        swarm=True,
    ),
)
DEDUP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: DedupScenario) -> DedupKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    ours = ("durable",)
    plain = {name: value for name, value in scenario.fixed.items() if name not in ours}
    knobs = majordomo_scenarios.draw(seed, replace(scenario, fixed=plain))
    rng = Random(f"{seed}/dedup")
    drawn = {name: getattr(knobs, name) for name in type(knobs).__dataclass_fields__}
    # Each service has one worker: workers do not share their stored replies.
    drawn["workers"] = tuple(
        replace(worker, service=service, identity=False)
        for worker, service in zip(knobs.workers, knobs.services, strict=False)
    )
    # One worker with a slow disk has a queue: a single try needs more time than half a second.
    drawn["clients"] = tuple(
        replace(client, attempt_timeout_s=None) if client.tries == 1 else client
        for client in knobs.clients
    )
    drawn["idempotent_p"] = 1.0  # so that requests are resent
    drawn |= _draw_ours(rng)
    drawn |= {name: value for name, value in scenario.fixed.items() if name in ours}
    return DedupKnobs(**drawn)


def _draw_ours(rng: Random) -> dict[str, Any]:
    return {
        "repeat_p": rng.choice((0.1, 0.5)),
        "durable": rng.random() < 0.8,
        "in_doubt": rng.choice(("refuse", "refuse", "run")),
        "store_failures": rng.random() < 0.3,
        "window_s": rng.choice((2.0, 20.0, 60.0)),
        "disk_s": rng.choice((0.0001, 0.005, 0.02)),
        "segment_size": rng.choice((4096, 1 << 16)),
    }
