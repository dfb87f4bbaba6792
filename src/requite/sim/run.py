"""One run: a plan is drawn from a seed, or read, and played; each is a pure function."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Final

from requite.sim import scenarios
from requite.sim.amqp.scenarios import AmqpScenario
from requite.sim.amqp.simulation import AmqpSimulation
from requite.sim.dedup.scenarios import DedupScenario
from requite.sim.dedup.simulation import DedupSimulation
from requite.sim.freelance.scenarios import FlpScenario
from requite.sim.freelance.simulation import FreelanceSimulation
from requite.sim.majordomo import MajordomoSimulation
from requite.sim.majordomo_scenarios import Scenario
from requite.sim.pair.scenarios import PairScenario
from requite.sim.pair.simulation import PairSimulation
from requite.sim.paired.scenarios import PairedScenario
from requite.sim.paired.simulation import PairedSimulation
from requite.sim.pirate.scenarios import PirateScenario
from requite.sim.pirate.simulation import PirateSimulation
from requite.sim.plan import Kinds, Plan, from_tables, read_tables
from requite.sim.pool.scenarios import PoolScenario
from requite.sim.pool.simulation import PoolSimulation
from requite.sim.result import Options, Result, replay_command
from requite.sim.scalability.scenarios import SpScenario
from requite.sim.scalability.simulation import ScalabilitySimulation
from requite.sim.scenarios import AnyKnobs
from requite.sim.simulation import Simulation
from requite.sim.titanic.scenarios import TitanicScenario
from requite.sim.titanic.simulation import TitanicSimulation
from requite.sim.world import luck

__all__ = [
    "Options",
    "Plan",
    "Result",
    "draw",
    "knobs_of",
    "play",
    "read_plan",
    "replay_command",
    "run",
]


# By what kind of scenario it is; each knows its knobs, and what its calls are.
_SIMULATIONS: Final[dict[type, type[Simulation]]] = {
    Scenario: MajordomoSimulation,
    DedupScenario: DedupSimulation,
    PairedScenario: PairedSimulation,
    SpScenario: ScalabilitySimulation,
    FlpScenario: FreelanceSimulation,
    PirateScenario: PirateSimulation,
    TitanicScenario: TitanicSimulation,
    PairScenario: PairSimulation,
    PoolScenario: PoolSimulation,
    AmqpScenario: AmqpSimulation,
}


def knobs_of(seed: int, scenario: str, options: Options | None = None) -> AnyKnobs:
    """Draw the knobs of a run. Raises `ConfigurationError` for a scenario that there is not."""
    knobs = scenarios.draw(seed, scenarios.find(scenario))
    return replace(knobs, **options.knobs) if options and options.knobs else knobs


def draw(seed: int, scenario: str, options: Options | None = None) -> Plan:
    """Draw a run. Raises `ConfigurationError` for a scenario that there is not."""
    knobs = knobs_of(seed, scenario, options)
    kind, of_seed = _kind_of(scenario), partial(luck, seed)
    calls, faults = kind.draw_calls(knobs, of_seed), kind.draw_faults(knobs, of_seed)
    return Plan(scenario, seed, knobs, tuple(calls), tuple(faults))


def read_plan(text: str, where: str = "plan") -> Plan:
    """Read what `plan.write` has written; `where` names it in errors (`ConfigurationError`)."""
    tables = read_tables(text, where)
    kind = _kind_of(tables["scenario"])
    return from_tables(tables, Kinds(kind.knobs_type, kind.call_type), where)


def play(plan: Plan, options: Options | None = None) -> Result:
    """Run a plan. The same plan, options and engines always give the same result."""
    # Intruders cause plenty of warnings for operators; in a simulation nobody reads them.
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    simulation = prepare(plan, options)
    simulation.run()
    return simulation.result(plan.scenario)


def prepare(plan: Plan, options: Options | None = None) -> Simulation:
    """Return a run that is yet to begin, for who wants to look at more than its result."""
    return _kind_of(plan.scenario)(plan, options or Options())  # type: ignore[call-arg]


def run(seed: int, scenario: str = "swarm", options: Options | None = None) -> Result:
    """Run one seed. Raises `ConfigurationError` for a scenario that there is not."""
    return play(draw(seed, scenario, options), options)


def _kind_of(scenario: str) -> type[Simulation]:
    return _SIMULATIONS[type(scenarios.find(scenario))]
