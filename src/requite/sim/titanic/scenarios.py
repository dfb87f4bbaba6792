"""Scenarios of Titanic; draws the knobs of a run from its seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.sim.kernel.drawing import Choice, Choices, Draw, always, between, chance, one_of
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import Scenario
from requite.sim.titanic.knobs import Fate, TitanicKnobs

_SERVICES: Final = ("alpha", "beta", "gamma")
_ALL: Final = (
    FaultKind.KILL,
    FaultKind.POWER_LOSS,
    FaultKind.SERVICE_DOWN,
    FaultKind.BROKER_DOWN,
    FaultKind.DISK_FULL,
    FaultKind.DISK_FAILS,
    FaultKind.FLIP,
    FaultKind.GARBAGE,
)


@dataclass(frozen=True, slots=True)
class TitanicScenario(Scenario):
    """A scenario. `fates`: services draw from these."""

    fates: tuple[Fate, ...] = tuple(Fate)


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
        (FaultKind.KILL,),
        fixed={"faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-power",
        "the power fails: unsynced tails are lost, writes are torn",
        (FaultKind.POWER_LOSS,),
        fixed={"faults_per_s": 2.0},
    ),
    TitanicScenario(
        "titanic-services",
        "services come and go, fail, and lose replies; brokers do not reply",
        (FaultKind.SERVICE_DOWN, FaultKind.BROKER_DOWN),
        fixed={"faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-poison",
        "requests that always fail, with a limit on attempts",
        (FaultKind.KILL,),
        fixed={"attempts_max": 3, "poison_p": 0.5},
    ),
    TitanicScenario(
        "titanic-keys",
        "replies to submissions are lost; keys prevent storing a request twice",
        (FaultKind.KILL, FaultKind.POWER_LOSS),
        fixed={"loss_p": 0.3, "late_p": 0.2, "keyed_p": 1.0},
    ),
    TitanicScenario(
        "titanic-compaction",
        "small segments and old requests: compaction moves records again and again",
        (FaultKind.KILL, FaultKind.POWER_LOSS),
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
        (FaultKind.DISK_FULL, FaultKind.KILL),
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
        (FaultKind.FLIP, FaultKind.KILL),
        fixed={"cache_bytes_max": 0, "faults_per_s": 1.0},
    ),
    TitanicScenario(
        "titanic-expire",
        "replies that no client collects expire",
        (FaultKind.KILL,),
        fixed={"expire_s": 3.0, "close_p": 0.2},
    ),
    TitanicScenario(
        "titanic-garbage",
        "intruders send garbage",
        (FaultKind.GARBAGE,),
        fixed={"faults_per_s": 5.0},
    ),
    TitanicScenario(
        "titanic-owners",
        "users of several principals with equal keys, and a stranger that tries their tickets",
        (FaultKind.KILL, FaultKind.POWER_LOSS),
        fixed={"owners": 3, "keyed_p": 1.0, "segment_size_bytes": 4096},
    ),
    TitanicScenario("titanic-swarm", "a random subset of all faults", faults=_ALL, swarm=True),
)
TITANIC_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    "calls": between(20, 60),
    "faulty_s": between(3.0, 8.0),
    # users
    "keyed_p": one_of(0.0, 0.5, 1.0),
    "close_p": one_of(0.3, 0.7, 1.0),
    "close_early_p": one_of(0.0, 0.1),
    "again_p": one_of(0.0, 0.5),
    "poison_p": one_of(0.0, 0.1),
    "body_size_max": one_of(20, 200, 2000),
    "loss_p": one_of(0.0, 0.05, 0.2),
    "late_p": one_of(0.0, 0.1),
    "latency_s": one_of(0.001, 0.02),
    # services
    "services": lambda rng: _SERVICES[: rng.randint(1, len(_SERVICES))],
    "service_s": one_of(0.0, 0.01, 0.2),
    # the policy
    "attempts_max": one_of(None, None, 2, 5),
    "attempt_timeout_s": one_of(0.5, 2.0),
    "backoff_s": one_of(0.05, 0.5),
    "check_service": chance(0.8),
    "check_every_s": one_of(0.1, 1.0),
    "window": one_of(4, 64),
    "service_window": one_of(2, 64),
    "key_window_s": always(60.0),
    "expire_s": always(None),
    "cache_bytes_max": one_of(0, 2000, 1 << 20),
    # the disk
    "disk_s": one_of(0.0, 0.002, 0.05),
    "segment_size_bytes": one_of(4096, 16384, 65536),
    "disk_segments_max": always(None),
    "compact_below": one_of(0.3, 0.5, 0.9),
    "owners": always(0),
    # faults
    "faults_per_s": one_of(0.2, 0.5, 1.0),
    "outage_max": one_of(0.5, 2.0),
}


def draw(seed: int, scenario: TitanicScenario) -> TitanicKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "titanic", scenario)
    return TitanicKnobs(
        **luck.knobs(_KNOBS),
        faults=luck.faults(),
        fates=scenario.fates,
        weights=luck.weights(scenario.fates, _weight),
    )


def _weight(fate: Fate) -> Choice:
    return one_of(5, 20) if fate is Fate.ANSWER else one_of(0, 1, 3)
