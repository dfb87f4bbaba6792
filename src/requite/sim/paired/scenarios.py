"""Scenarios of a pair of brokers; draws their knobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from requite.sim.kernel.drawing import Draw, always, between, one_of
from requite.sim.kernel.faults import FaultKind, faults_of
from requite.sim.kernel.knobs import values_of
from requite.sim.majordomo import scenarios as majordomo_scenarios
from requite.sim.majordomo.scenarios import MajordomoScenario
from requite.sim.paired.knobs import PairedKnobs

# Heartbeats that are long compared with the lateness of processes.
_HEARTBEAT_S_MIN: Final = 0.2
_ALL: Final = faults_of("broker", "worker", "client")


_LIST: Final = (
    MajordomoScenario("pair-broker-calm", "a pair of brokers without faults"),
    MajordomoScenario(
        "pair-broker-kill",
        "either broker of the pair is killed, or its machine loses power",
        (FaultKind.CRASH_BROKER, FaultKind.POWER_LOSS),
    ),
    MajordomoScenario(
        "pair-broker-freeze",
        "brokers, workers and clients freeze for a while, and resume",
        (FaultKind.FREEZE_BROKER, FaultKind.FREEZE_WORKER, FaultKind.FREEZE_CLIENT),
        fixed={"outage_max": 30.0},
    ),
    MajordomoScenario(
        "pair-broker-cut",
        "the network is cut, also between the two brokers; connections are silently dropped",
        (FaultKind.PARTITION, FaultKind.PARTITION_ONE_WAY, FaultKind.CLOG, FaultKind.BLACK_HOLE),
    ),
    MajordomoScenario(
        "pair-broker-switch",
        "an operator switches, and brokers drain",
        (FaultKind.DRAIN_BROKER,),
        choices={"switches": between(0, 10)},
    ),
    MajordomoScenario(
        "pair-broker-swarm",
        "a pair of brokers, and a random subset of all faults",
        _ALL,
        swarm=True,
        choices={"switches": between(0, 5)},
    ),
)
PAIRED_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
# A broker refuses the name of a peer that reconnects until it detects the dead connection, so
# peers that change brokers have no names.
_NAMELESS: Final = {"clients.identity": False, "workers.identity": False}


def draw(seed: int, scenario: MajordomoScenario) -> PairedKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    nameless = replace(scenario, fixed={**scenario.fixed, **_NAMELESS})
    knobs = majordomo_scenarios.draw(seed, nameless)
    luck = Draw(seed, "pair-broker", scenario)
    heartbeat_s = luck.free("pair_heartbeat_s", one_of(0.5, 1.0, 2.0)) * knobs.interval_s
    return PairedKnobs(
        **values_of(knobs),
        pair_heartbeat_s=max(_HEARTBEAT_S_MIN, heartbeat_s),
        switches=luck.one("switches", always(0)),
    )
