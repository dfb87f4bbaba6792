"""The scenarios of a pair of brokers, and how their knobs are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from requite.sim import majordomo_scenarios
from requite.sim.knobs import FaultKind
from requite.sim.majordomo_scenarios import Scenario
from requite.sim.paired.knobs import PairedKnobs

# A heartbeat that is long beside how late a process may be.
_HEARTBEAT_S_MIN: Final = 0.2
_ALL: Final = tuple(kind for kind in FaultKind if kind is not FaultKind.INTRUDER)


@dataclass(frozen=True, slots=True)
class PairedScenario(Scenario):
    """What distinguishes a run. `switches`: how often an operator switches, at most."""

    switches: int = 0


_LIST: Final = (
    PairedScenario("pair-broker-calm", "a pair of brokers, and nothing goes wrong"),
    PairedScenario(
        "pair-broker-kill",
        "one broker of the pair or the other is killed, or its machine",
        (FaultKind.CRASH_BROKER, FaultKind.POWER_LOSS),
    ),
    PairedScenario(
        "pair-broker-freeze",
        "brokers, workers and clients stand still, and go on as if nothing had been",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_WORKER, FaultKind.FREEZE_CLIENT),
        fixed={"outage_max": 30.0},
    ),
    PairedScenario(
        "pair-broker-cut",
        "the network is cut, also between the two brokers; connections are forgotten",
        (FaultKind.PARTITION, FaultKind.PARTITION_ONE_WAY, FaultKind.CLOG, FaultKind.BLACK_HOLE),
    ),
    PairedScenario(
        "pair-broker-switch",
        "an operator switches, and brokers leave in good order",
        (FaultKind.DRAIN_BROKER,),
        switches=10,
    ),
    PairedScenario(
        "pair-broker-swarm",
        "a pair of brokers, and a random part of everything",
        _ALL,
        swarm=True,
        switches=5,
    ),
)
PAIRED_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: PairedScenario) -> PairedKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same."""
    knobs = majordomo_scenarios.draw(seed, scenario)
    rng = Random(f"{seed}/pair")
    drawn = {name: getattr(knobs, name) for name in type(knobs).__dataclass_fields__}
    # A peer that comes back by another connection is refused under its old name until the broker
    # has noticed; who changes brokers has no use for names.
    drawn["clients"] = tuple(replace(client, identity=False) for client in knobs.clients)
    drawn["workers"] = tuple(replace(worker, identity=False) for worker in knobs.workers)
    heartbeat_s = rng.choice((0.5, 1.0, 2.0)) * knobs.interval_s
    return PairedKnobs(
        **drawn,
        pair_heartbeat_s=max(_HEARTBEAT_S_MIN, heartbeat_s),
        switches=rng.randint(0, scenario.switches),
    )
