"""Every check of the pools' simulation finds what it is there for, in managers that are broken."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim import pool_mutants as mutants
from tests.sim.finding import Broken, assert_found, assert_whole, cases

from requite.sim import Options, run
from requite.sim.knobs import Printed
from requite.sim.pool.knobs import PoolFault, Task
from requite.sim.pool.stage import PoolSimParts
from requite.sim.run import knobs_of

# Groups that live briefly, and requests that expire soon, kill their workers, or are slow.
_POISON: dict[str, Any] = {"tasks": (Task.SERVE, Task.POISON), "weights": (3, 1)}
_EXPIRING: dict[str, Any] = {"ttl_p": 0.7, "faults_per_s": 0.5}
_HELD: dict[str, Any] = {"service_s": 0.4, "prefetch": 3}

# Where messages go round in circles: so few of them that the run comes to its end.
_SLOW: dict[str, Any] = {
    "latency_s": 0.05,
    "calls": 20,
    "message_ttl_s": 15.0,
    "delivery_limit": 1,
    "ack_timeout_s": 3.0,
}

# Workers that are killed with a request in hand, which nobody notices, and RabbitMQ counts late.
_COUNTED_LATE: dict[str, Any] = {
    "tasks": (Task.SERVE, Task.STALL),
    "weights": (1, 2),
    "sample_s": 5.0,
    "notice_s": 3.0,
    "ack_timeout_s": 8.0,
    "delivery_limit": 2,
    "prefetch": 1,
    "faults": (),
    "keys": 6,
    "calls": 30,
    "faulty_s": 60.0,
}

# Managers that are told to leave, and cannot see who stands by.
_LEAVING: dict[str, Any] = {
    "managers": 2,
    "faults": (PoolFault.DRAIN_MANAGER, PoolFault.CUT_MANAGER),
    "faults_per_s": 1.5,
    "faulty_s": 30.0,
    "driver_s": 0.5,
    "notice_s": 0.0,
}

_part = mutants.engine

_CASES: list[tuple[str, str, PoolSimParts, dict[str, Any]]] = [
    ("I14", "pool-calm", _part(orphans=mutants.D1WaitsTheWrongWayRound), _SLOW),
    ("I14", "pool-calm", _part(activity=mutants.D2PassesOnTheSecondReport), {}),
    ("I14", "pool-calm", _part(queues=mutants.D3HasNoDeadLetterExchange), _POISON),
    ("I14", "pool-calm", _part(dead_letters=mutants.D4ReadsAnotherHeader), _POISON),
    ("I14", "pool-calm", _part(dead_letters=mutants.D4NeverAcknowledges), _POISON),
    ("I2", "pool-calm", _part(dead_letters=mutants.D4ForgetsTheCorrelationId), _POISON),
    ("I14", "pool-calm", PoolSimParts(topology=mutants.D5OwnsTheOrphans), {}),
    ("I14", "pool-rabbit", _part(queues=mutants.D6EndsWhenRefused), {}),
    ("I14", "pool-calm", _part(orphans=mutants.D7WaitsInLine), {}),
    ("I7", "pool-calm", _part(queues=mutants.D8CountsNoDeliveries), _POISON),
    ("I14", "pool-calm", _part(groups=mutants.D13LeavesWorkersBehind), {}),
    ("I14", "pool-manager", _part(orphans=mutants.AcknowledgesAtOnce), {}),
    ("I14", "pool-calm", _part(orphans=mutants.NeverPutsBack), {}),
    ("I14", "pool-calm", _part(orphans=mutants.ForgetsExpirations), {}),
    ("I15", "pool-rabbit", _part(orphans=mutants.HastyWithExpirations), _EXPIRING),
    ("I14", "pool-brief", _part(queues=mutants.DeletesWhatIsNotEmpty), {}),
    ("I14", "pool-brief", _part(queues=mutants.DeletesUnderItsWorkers), _HELD),
    ("I14", "pool-brief", _part(queues=mutants.DeletesAfterOneLook), _COUNTED_LATE),
    ("I14", "pool-calm", _part(queues=mutants.NeverUnbinds), {}),
    ("I14", "pool-calm", _part(queues=mutants.NeverDeletes), {}),
    ("I14", "pool-meddling", _part(queues=mutants.TrustsWhatItRemembers), _SLOW),
    ("I14", "pool-calm", _part(groups=mutants.StopsBeforeItKnows), {}),
    ("I14", "pool-manager", _part(groups=mutants.StopsAgainAndAgain), _LEAVING),
    ("I14", "pool-brief", _part(groups=mutants.StopsTheUnbound), {}),
    ("I14", "pool-driver", _part(groups=mutants.GivesUpOnGroups), {}),
    ("I14", "pool-calm", _part(groups=mutants.ReplacesAllAtOnce), {}),
    ("I10", "pool-calm", _part(groups=mutants.NeverReplaces), {}),
    ("I14", "pool-brief", _part(tracker=mutants.RemovesWithoutLooking), {"start_s": 2.0}),
    ("I14", "pool-calm", _part(tracker=mutants.ShortensLives), {}),
    ("I7", "pool-calm", _part(dead_letters=mutants.KeepsNoPoison), _POISON),
    ("I13", "pool-meddling", _part(dead_letters=mutants.DiesOfHeaders), {}),
    ("I14", "pool-calm", _part(orphans=mutants.RemembersTickets), {}),
    ("I9", "pool-calm", _part(activity=mutants.RemembersReports), {}),
]


def _name(parts: PoolSimParts) -> str:
    kinds = [getattr(parts.engine, name) for name in parts.engine.__slots__]
    return next(k.__name__ for k in [*kinds, parts.topology] if k.__module__ == mutants.__name__)


BROKEN = [
    Broken(invariant, scenario, _name(parts), Options(pool_parts=parts, knobs=knobs))
    for invariant, scenario, parts, knobs in _CASES
]


@cases(BROKEN)
def test_a_broken_manager_is_found(broken: Broken) -> None:
    assert_found(broken)


@pytest.mark.parametrize("knobs", [{}, _POISON, _EXPIRING, _HELD, _COUNTED_LATE, _LEAVING])
def test_the_same_knobs_find_nothing_in_managers_that_are_whole(knobs: dict[str, Any]) -> None:
    for scenario in sorted({case[1] for case in _CASES}):
        result = run(1, scenario, Options(knobs=knobs))
        assert not result.violations, result.replay
        assert result.calls


def test_the_same_seeds_find_nothing_in_managers_that_are_whole() -> None:
    assert_whole((scenario for _, scenario, _, _ in _CASES), (2, 3))


@pytest.mark.parametrize("scenario", ["pool-swarm", "pool-manager"])
def test_a_run_is_a_function_of_its_seed(scenario: str) -> None:
    assert run(7, scenario).digest == run(7, scenario, Options(transcript=True)).digest
    assert run(7, scenario).digest != run(8, scenario).digest


def test_every_knob_is_printed() -> None:
    knobs = knobs_of(7, "pool-swarm")
    assert isinstance(knobs, Printed)
    printed = {line.split()[0] for line in knobs.lines()}
    assert {"managers", "unbind_delay_s", "delivery_limit", "faults"} <= printed
