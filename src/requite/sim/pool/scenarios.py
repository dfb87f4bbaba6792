"""The scenarios of pools, and how the knobs of a run are drawn from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.drawing import draw_faults
from requite.sim.pool.knobs import PoolFault, PoolKnobs, Task


@dataclass(frozen=True, slots=True)
class PoolScenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset. `fixed`: knobs
    with fixed values, by name."""

    name: str
    about: str
    faults: tuple[PoolFault, ...] = ()
    swarm: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)


_LIST: Final = (
    PoolScenario("pool-calm", "groups start, serve and go, and nothing goes wrong"),
    PoolScenario(
        "pool-manager",
        "managers die, leave, and lose their connections; others stand by",
        (PoolFault.CRASH_MANAGER, PoolFault.DRAIN_MANAGER, PoolFault.CUT_MANAGER),
    ),
    PoolScenario(
        "pool-workers",
        "workers die, lose their connections, stall, and meet requests that kill them",
        (PoolFault.CRASH_WORKER, PoolFault.CUT_WORKER),
        fixed={"faults_per_s": 0.5},
    ),
    PoolScenario(
        "pool-rabbit",
        "RabbitMQ restarts, refuses, and its management API is slow or silent",
        (
            PoolFault.RESTART_RABBIT,
            PoolFault.API_FAILS,
            PoolFault.API_SLOW,
            PoolFault.REFUSE,
            PoolFault.CUT_CALLER,
        ),
    ),
    PoolScenario(
        "pool-driver",
        "whoever runs workers is slow, fails, and does all the same what it said it could not",
        (PoolFault.DRIVER_FAILS, PoolFault.DRIVER_SLOW, PoolFault.CRASH_WORKER),
    ),
    PoolScenario(
        "pool-brief",
        "groups live so briefly that requests meet queues that are about to go",
        (PoolFault.CRASH_MANAGER, PoolFault.API_SLOW),
        fixed={
            "unbind_delay_s": 1.0,
            "stop_delay_s": 0.3,
            "extra_lifetime_s": 0.2,
            "interval_s": 0.5,
            "service_s": 0.05,
        },
    ),
    PoolScenario(
        "pool-meddling",
        "somebody unbinds and deletes queues by hand, and sends what nobody should",
        (PoolFault.MEDDLE, PoolFault.GARBAGE),
        fixed={"faults_per_s": 0.5},
    ),
    PoolScenario("pool-swarm", "a random part of everything", tuple(PoolFault), swarm=True),
)
POOL_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: PoolScenario) -> PoolKnobs:
    """Draw the knobs of a run: equal for the same seed and scenario."""
    rng = Random(f"{seed}/pool-knobs")
    unbind_delay_s = rng.choice((2.0, 5.0, 12.0))
    drawn: dict[str, Any] = {
        "calls": rng.randint(20, 80),
        "faulty_s": rng.uniform(10, 40),
        "keys": rng.randint(1, 6),
        "managers": rng.randint(1, 2),
        "callers": rng.randint(1, 3),
        **_draw_tasks(rng),
        "latency_s": rng.choice((0.0005, 0.005, 0.05)),
        "notice_s": rng.choice((0.0, 0.5, 3.0)),
        "api_s": rng.choice((0.01, 0.1, 0.5)),
        "sample_s": rng.choice((0.5, 5.0)),
        "ack_timeout_s": rng.choice((3.0, 8.0)),
        "driver_s": rng.choice((0.005, 0.1, 0.5)),
        "start_s": rng.choice((0.01, 0.3, 1.0)),
        "prefetch": rng.choice((1, 1, 3)),
        "unbind_delay_s": unbind_delay_s,
        "stop_delay_s": rng.choice((0.5, 2.0, 5.0)),
        "extra_lifetime_s": rng.choice((0.0, 0.1, 0.5)) * unbind_delay_s,
        "interval_s": rng.choice((0.5, 2.0)),
        "message_ttl_s": rng.choice((15.0, 60.0)),
        "delivery_limit": rng.choice((1, 2, 4)),
        "queue_length": rng.choice((0, 0, 0, 3)),
        "orphans": rng.choice((3, 10, 100)),
        "faults": draw_faults(rng, scenario.faults, scenario.swarm),
        "faults_per_s": rng.uniform(0.05, 0.3),
        "outage_max": rng.choice((2.0, 5.0, 10.0)),
    }
    return PoolKnobs(**drawn | dict(scenario.fixed))


def _draw_tasks(rng: Random) -> dict[str, Any]:
    weights = [rng.choice((0, 0, 1)) for task in Task if task is not Task.SERVE]
    return {
        "tasks": (Task.SERVE, *(task for task in Task if task is not Task.SERVE)),
        "weights": (rng.choice((5, 20)), *weights),
        "service_s": rng.choice((0.001, 0.05, 0.4)),
        "ttl_p": rng.choice((0.0, 0.2)),
        "silent_p": rng.choice((0.0, 0.1)),
    }
