"""Scenarios of Titanic; draws the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.titanic.knobs import Fate, TitanicFault, TitanicKnobs

_SERVICES: Final = ("alpha", "beta", "gamma")


@dataclass(frozen=True, slots=True)
class TitanicScenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset.

    `fixed`: knobs with fixed values.
    """

    name: str
    about: str
    faults: tuple[TitanicFault, ...] = ()
    swarm: bool = False
    fates: tuple[Fate, ...] = tuple(Fate)
    fixed: Mapping[str, Any] = field(default_factory=dict)


_LIST: Final = (
    TitanicScenario(
        "titanic-calm",
        "requests are stored, answered, collected and closed, without faults",
        fates=(Fate.ANSWER,),
        fixed={"loss_p": 0.0, "late_p": 0.0, "poison_p": 0.0},
    ),
    TitanicScenario(
        "titanic-kill",
        "the process is killed at any moment, and comes back",
        (TitanicFault.KILL,),
        fixed={"faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-power",
        "the power fails: unsynced tails are lost, writes are torn",
        (TitanicFault.POWER_LOSS,),
        fixed={"faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-services",
        "services come and go, fail, and lose replies; brokers do not reply",
        (TitanicFault.SERVICE_DOWN, TitanicFault.BROKER_DOWN),
        fixed={"faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-poison",
        "requests that always fail, with a limit on attempts",
        (TitanicFault.KILL,),
        fixed={"attempts_max": 3, "poison_p": 0.3},
    ),
    TitanicScenario(
        "titanic-keys",
        "replies to submissions are lost; keys prevent storing a request twice",
        (TitanicFault.KILL, TitanicFault.POWER_LOSS),
        fixed={"loss_p": 0.3, "late_p": 0.2, "keyed_p": 1.0},
    ),
    TitanicScenario(
        "titanic-compaction",
        "small segments and old requests: compaction moves records again and again",
        (TitanicFault.KILL, TitanicFault.POWER_LOSS),
        fixed={
            "segment_size_bytes": 4096,
            "compact_below": 0.9,
            "close_p": 0.9,
            "cache_bytes_max": 0,
        },
    ),
    TitanicScenario(
        "titanic-full",
        "the size limit is reached, and the disk is full",
        (TitanicFault.DISK_FULL, TitanicFault.KILL),
        fixed={
            "segment_size_bytes": 4096,
            "disk_segments_max": 7,
            "calls": 80,
            "body_size_max": 400,
            "loss_p": 0.0,
            "late_p": 0.0,
            "close_p": 1.0,
        },
    ),
    TitanicScenario(
        "titanic-bitrot",
        "bits on the disk flip: the damage is reported, all else is served",
        (TitanicFault.FLIP, TitanicFault.KILL),
        fixed={"cache_bytes_max": 0, "faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-expire",
        "replies that nobody collects expire",
        (TitanicFault.KILL,),
        fixed={"expire_s": 3.0, "close_p": 0.2},
    ),
    TitanicScenario(
        "titanic-garbage",
        "intruders send garbage",
        (TitanicFault.GARBAGE,),
        fixed={"faults_per_s": 5.0},
    ),
    TitanicScenario(
        "titanic-swarm", "a random subset of all faults", faults=tuple(TitanicFault), swarm=True
    ),
)
TITANIC_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: TitanicScenario) -> TitanicKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/titanic-knobs")
    drawn: dict[str, Any] = {
        "calls": rng.randint(20, 60),
        "faulty_s": rng.uniform(3, 8),
        **_users(rng),
        **_services(rng, scenario),
        **_policy(rng),
        **_disk(rng),
        "faults": _faults(rng, scenario),
        "faults_per_s": rng.choice((0.2, 0.5, 1.0)),
        "outage_max_s": rng.choice((0.5, 2.0)),
    }
    return TitanicKnobs(**(drawn | dict(scenario.fixed)))


def _users(rng: Random) -> dict[str, Any]:
    return {
        "keyed_p": rng.choice((0.0, 0.5, 1.0)),
        "close_p": rng.choice((0.3, 0.7, 1.0)),
        "close_early_p": rng.choice((0.0, 0.1)),
        "again_p": rng.choice((0.0, 0.5)),
        "poison_p": rng.choice((0.0, 0.1)),
        "body_size_max": rng.choice((20, 200, 2000)),
        "loss_p": rng.choice((0.0, 0.05, 0.2)),
        "late_p": rng.choice((0.0, 0.1)),
        "latency_s": rng.choice((0.001, 0.02)),
    }


def _services(rng: Random, scenario: TitanicScenario) -> dict[str, Any]:
    return {
        "services": _SERVICES[: rng.randint(1, len(_SERVICES))],
        "fates": scenario.fates,
        "weights": tuple(
            rng.choice((5, 20)) if fate is Fate.ANSWER else rng.choice((0, 1, 3))
            for fate in scenario.fates
        ),
        "service_s": rng.choice((0.0, 0.01, 0.2)),
    }


def _policy(rng: Random) -> dict[str, Any]:
    return {
        "attempts_max": rng.choice((None, None, 2, 5)),
        "attempt_timeout_s": rng.choice((0.5, 2.0)),
        "backoff_s": rng.choice((0.05, 0.5)),
        "check_service": rng.random() < 0.8,
        "check_every_s": rng.choice((0.1, 1.0)),
        "window": rng.choice((4, 64)),
        "service_window": rng.choice((2, 64)),
        "key_window_s": 60.0,
        "expire_s": None,
        "cache_bytes_max": rng.choice((0, 2000, 1 << 20)),
    }


def _disk(rng: Random) -> dict[str, Any]:
    return {
        "disk_s": rng.choice((0.0, 0.002, 0.05)),
        "segment_size_bytes": rng.choice((4096, 16384, 65536)),
        "disk_segments_max": None,
        "compact_below": rng.choice((0.3, 0.5, 0.9)),
    }


def _faults(rng: Random, scenario: TitanicScenario) -> tuple[TitanicFault, ...]:
    if not scenario.swarm:
        return scenario.faults
    return tuple(fault for fault in scenario.faults if rng.random() < 0.4)
