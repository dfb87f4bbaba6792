"""The scenarios of pools, and how the knobs of a run are drawn from its seed."""

from __future__ import annotations

from typing import Final

from requite.sim.kernel.drawing import Choice, Choices, Draw, always, between, one_of
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import Scenario
from requite.sim.pool.knobs import PoolKnobs, Task

FAULTS: Final = (
    FaultKind.CRASH_MANAGER,
    FaultKind.DRAIN_MANAGER,
    FaultKind.CUT_MANAGER,
    FaultKind.CRASH_WORKER,
    FaultKind.CUT_WORKER,
    FaultKind.CUT_CALLER,
    FaultKind.RESTART_RABBIT,
    FaultKind.API_FAILS,
    FaultKind.API_SLOW,
    FaultKind.DRIVER_FAILS,
    FaultKind.DRIVER_SLOW,
    FaultKind.REFUSE,
    FaultKind.MEDDLE,
    FaultKind.GARBAGE,
)


_LIST: Final = (
    Scenario("pool-calm", "groups start, serve and stop, without faults"),
    Scenario(
        "pool-manager",
        "managers crash, drain and lose their connections; others are on standby",
        (FaultKind.CRASH_MANAGER, FaultKind.DRAIN_MANAGER, FaultKind.CUT_MANAGER),
    ),
    Scenario(
        "pool-workers",
        "workers crash, lose their connections, stall, and get requests that crash them",
        (FaultKind.CRASH_WORKER, FaultKind.CUT_WORKER),
        fixed={"faults_per_s": 0.5},
    ),
    Scenario(
        "pool-rabbit",
        "RabbitMQ restarts and refuses; its management API is slow or does not answer",
        (
            FaultKind.RESTART_RABBIT,
            FaultKind.API_FAILS,
            FaultKind.API_SLOW,
            FaultKind.REFUSE,
            FaultKind.CUT_CALLER,
        ),
    ),
    Scenario(
        "pool-driver",
        "the driver is slow, fails, and sometimes acts although it reported a failure",
        (FaultKind.DRIVER_FAILS, FaultKind.DRIVER_SLOW, FaultKind.CRASH_WORKER),
    ),
    Scenario(
        "pool-brief",
        "groups stop so soon that requests reach queues that are about to be deleted",
        (FaultKind.CRASH_MANAGER, FaultKind.API_SLOW),
        fixed={
            "unbind_delay_s": 1.0,
            "stop_delay_s": 0.3,
            "extra_lifetime_s": 0.2,
            "interval_s": 0.5,
            "service_s": 0.05,
        },
    ),
    Scenario(
        "pool-meddling",
        "an operator unbinds and deletes queues; an intruder sends invalid messages",
        (FaultKind.MEDDLE, FaultKind.GARBAGE),
        fixed={"faults_per_s": 0.5},
    ),
    Scenario("pool-swarm", "a random subset of all faults", FAULTS, swarm=True),
)
POOL_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    "calls": between(20, 80),
    "faulty_s": between(10.0, 40.0),
    "keys": between(1, 6),
    "managers": between(1, 2),
    "callers": between(1, 3),
    # requests
    "service_s": one_of(0.001, 0.05, 0.4),
    "ttl_p": one_of(0.0, 0.2),
    "silent_p": one_of(0.0, 0.1),
    # RabbitMQ and the driver
    "latency_s": one_of(0.0005, 0.005, 0.05),
    "notice_s": one_of(0.0, 0.5, 3.0),
    "api_s": one_of(0.01, 0.1, 0.5),
    "sample_s": one_of(0.5, 5.0),
    "ack_timeout_s": one_of(3.0, 8.0),
    "driver_s": one_of(0.005, 0.1, 0.5),
    "start_s": one_of(0.01, 0.3, 1.0),
    "prefetch": one_of(1, 1, 3),
    # the settings of the pool
    "unbind_delay_s": one_of(2.0, 5.0, 12.0),
    "stop_delay_s": one_of(0.5, 2.0, 5.0),
    "interval_s": one_of(0.5, 2.0),
    "message_ttl_s": one_of(15.0, 60.0),
    "delivery_limit": one_of(1, 2, 4),
    "queue_length": one_of(0, 0, 0, 3),
    "orphans": one_of(3, 10, 30),
    # faults
    "faults_per_s": between(0.05, 0.3),
    "outage_max": one_of(2.0, 5.0, 10.0),
}


def draw(seed: int, scenario: Scenario) -> PoolKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "pool", scenario)
    drawn = luck.knobs(_KNOBS)
    tasks = luck.one("tasks", always(tuple(Task)))
    extra = one_of(0.0, 0.1, 0.5)
    return PoolKnobs(
        **drawn,
        extra_lifetime_s=luck.free("extra_lifetime_s", extra) * drawn["unbind_delay_s"],
        faults=luck.faults(),
        tasks=tasks,
        weights=luck.one("weights", always(luck.weights(tasks, _weight))),
    )


def _weight(task: Task) -> Choice:
    return one_of(5, 20) if task is Task.SERVE else one_of(0, 0, 1)
