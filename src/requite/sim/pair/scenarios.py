"""Scenarios of a pair; draws the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.medium import Chunking, Shape
from requite.sim.pair.knobs import PairFault, PairKnobs
from requite.sim.process import Pace


@dataclass(frozen=True, slots=True)
class PairScenario:
    """A scenario. `faults`: a run has all of these, with `swarm` a random subset.

    `timely`: the network between the servers is fast and without faults. `fixed`: knobs with fixed
    values.
    """

    name: str
    about: str
    faults: tuple[PairFault, ...] = ()
    swarm: bool = False
    timely: bool = True
    fixed: Mapping[str, Any] = field(default_factory=dict)


_LIST: Final = (
    PairScenario("pair-calm", "two servers without faults"),
    PairScenario(
        "pair-crash",
        "either server is killed, or its machine loses power, and comes back",
        (PairFault.CRASH, PairFault.POWER_LOSS),
    ),
    PairScenario(
        "pair-freeze",
        "servers freeze for a while: one that was replaced does not answer when it resumes",
        (PairFault.FREEZE,),
        fixed={"faults_per_s": 1.0},
    ),
    PairScenario(
        "pair-switch",
        "an operator switches, and servers drain",
        (PairFault.SWITCH, PairFault.DRAIN),
        fixed={"faults_per_s": 1.0},
    ),
    PairScenario(
        "pair-all-at-once",
        "servers crash, freeze, drain and are switched: the two never serve at the same time",
        (
            PairFault.CRASH,
            PairFault.POWER_LOSS,
            PairFault.FREEZE,
            PairFault.DRAIN,
            PairFault.SWITCH,
        ),
        fixed={"faults_per_s": 1.0},
    ),
    PairScenario(
        "pair-cut",
        "the link between the two is cut, congested, reset or silently dropped: both may serve,"
        " each in its own epoch",
        (
            PairFault.PARTITION,
            PairFault.PARTITION_ONE_WAY,
            PairFault.CLOG,
            PairFault.RESET,
            PairFault.BLACK_HOLE,
        ),
        timely=False,
    ),
    PairScenario(
        "pair-islands",
        "the link is cut; half of the clients reach only one server, half only the other",
        (PairFault.PARTITION, PairFault.CRASH, PairFault.FREEZE),
        timely=False,
        fixed={"islands": True},
    ),
    PairScenario(
        "pair-garbage",
        "intruders send garbage to the address where the servers listen for each other",
        (PairFault.INTRUDER, PairFault.CRASH),
        fixed={"faults_per_s": 1.0},
    ),
    PairScenario(
        "pair-swarm",
        "a random subset of all faults",
        tuple(PairFault),
        swarm=True,
        timely=False,
    ),
)
PAIR_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: PairScenario) -> PairKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/pair-knobs")
    heartbeat_s = rng.choice((0.5, 1.0, 3.0))
    drawn: dict[str, Any] = {
        "calls": rng.randint(30, 80),
        "faulty_s": rng.uniform(15, 60) * heartbeat_s,
        "askers": rng.randint(1, 5),
        "patience_s": rng.choice((0.3, 1.0, 2.0)) * heartbeat_s,
        "islands": not scenario.timely and rng.random() < 0.2,
        "heartbeat_s": heartbeat_s,
        "timely": scenario.timely,
        "network": _draw_network(rng, scenario.timely),
        "pace": Pace(rng.choice((0.0, 0.001, 0.02)), rng.choice((0.0, 0.0005, 0.005))),
        "faults": _draw_faults(rng, scenario),
        "faults_per_s": rng.uniform(0.1, 0.5),
        "outage_max": rng.choice((2.0, 5.0, 10.0)),
    }
    drawn |= scenario.fixed
    drawn["faults_per_s"] /= heartbeat_s
    return PairKnobs(**drawn)


def _draw_faults(rng: Random, scenario: PairScenario) -> tuple[PairFault, ...]:
    if not scenario.swarm:
        return scenario.faults
    share = rng.choice((0.15, 0.4, 0.7))
    return tuple(kind for kind in scenario.faults if rng.random() < share)


def _draw_network(rng: Random, timely: bool) -> Shape:
    """Draw a network. In a timely run, message delays differ by less than a quarter of a
    heartbeat."""
    latency_s = rng.choice((0.0001, 0.001, 0.01))
    return Shape(
        latency_s=latency_s,
        jitter_s=rng.choice((0.0, 1.0, 3.0)) * latency_s,
        spike_p=0.0 if timely else rng.choice((0.0, 0.01)),
        spike_s=rng.choice((0.1, 1.0)),
        chunking=rng.choice(tuple(Chunking)),
        retransmit_s=rng.choice((2.0, 6.0)),
        keepalive_s=rng.choice((3.0, 6.0)),
        connect_timeout_s=rng.choice((0.5, 2.0)),
    )
