"""Scenarios of a pair; draws the knobs of a run from its seed."""

from __future__ import annotations

from typing import Final

from requite.sim.kernel.drawing import Choices, Draw, always, between, chance, one_of
from requite.sim.kernel.faults import LINKS, FaultKind, faults_of
from requite.sim.kernel.knobs import Scenario
from requite.sim.kernel.medium import Shape
from requite.sim.pair.knobs import PairKnobs

_LIST: Final = (
    Scenario("pair-calm", "two servers without faults"),
    Scenario(
        "pair-crash",
        "either server is killed, or its machine loses power, and comes back",
        (FaultKind.CRASH_SERVER, FaultKind.POWER_LOSS),
    ),
    Scenario(
        "pair-freeze",
        "servers freeze for a while: one that was replaced does not answer when it resumes",
        (FaultKind.FREEZE_SERVER,),
        fixed={"faults_per_s": 1.0},
    ),
    Scenario(
        "pair-switch",
        "an operator switches, and servers drain",
        (FaultKind.SWITCH, FaultKind.DRAIN_SERVER),
        fixed={"faults_per_s": 1.0},
    ),
    Scenario(
        "pair-all-at-once",
        "servers crash, freeze, drain and are switched: the two never serve at the same time",
        (
            FaultKind.CRASH_SERVER,
            FaultKind.POWER_LOSS,
            FaultKind.FREEZE_SERVER,
            FaultKind.DRAIN_SERVER,
            FaultKind.SWITCH,
        ),
        fixed={"faults_per_s": 1.0},
    ),
    Scenario(
        "pair-cut",
        "the link between the two is cut, congested, reset or silently dropped: both may serve,"
        " each in its own epoch",
        LINKS,
        fixed={"timely": False},
    ),
    Scenario(
        "pair-islands",
        "the link is cut; half of the clients reach only one server, half only the other",
        (FaultKind.PARTITION, FaultKind.CRASH_SERVER, FaultKind.FREEZE_SERVER),
        fixed={"timely": False, "islands": True},
    ),
    Scenario(
        "pair-garbage",
        "strangers send garbage to the address where the servers listen for each other",
        (FaultKind.INTRUDER, FaultKind.CRASH_SERVER),
        fixed={"faults_per_s": 1.0},
    ),
    Scenario(
        "pair-swarm",
        "a random subset of all faults",
        faults_of("server", more=(FaultKind.SWITCH, FaultKind.INTRUDER)),
        swarm=True,
        fixed={"timely": False},
    ),
)
PAIR_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    "calls": between(30, 80),
    "askers": between(1, 5),
    "heartbeat_s": one_of(0.5, 1.0, 3.0),
    "outage_max": one_of(2.0, 5.0, 10.0),
    "timely": always(True),
}


def draw(seed: int, scenario: Scenario) -> PairKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "pair", scenario)
    drawn = luck.knobs(_KNOBS)
    heartbeat_s: float = drawn["heartbeat_s"]
    timely: bool = drawn["timely"]
    # In a timely run, the delays of messages differ by less than a quarter of a heartbeat.
    network = {"jitter_s": one_of(0.0, 1.0, 3.0), "buffer_size": always(Shape().buffer_size)}
    if timely:
        network["spike_p"] = always(0.0)
    return PairKnobs(
        **drawn,
        faulty_s=luck.free("faulty_s", between(15.0, 60.0)) * heartbeat_s,
        patience_s=luck.free("patience_s", one_of(0.3, 1.0, 2.0)) * heartbeat_s,
        islands=luck.one("islands", always(False) if timely else chance(0.2)),
        network=luck.network(others=network),
        pace=luck.pace(),
        faults=luck.faults(),
        faults_per_s=luck.one("faults_per_s", between(0.1, 0.5)) / heartbeat_s,
    )
