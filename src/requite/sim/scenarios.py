"""All scenarios, by their names; those of the scalability protocols begin with `sp-`."""

from __future__ import annotations

from typing import Final

from requite.errors import ConfigurationError
from requite.sim import majordomo_scenarios
from requite.sim.amqp import scenarios as amqp_scenarios
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.scenarios import AMQP_SCENARIOS, AmqpScenario
from requite.sim.dedup import scenarios as dedup_scenarios
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.dedup.scenarios import DEDUP_SCENARIOS, DedupScenario
from requite.sim.freelance import scenarios as freelance_scenarios
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.freelance.scenarios import FLP_SCENARIOS, FlpScenario
from requite.sim.knobs import Knobs
from requite.sim.majordomo_scenarios import MDP_SCENARIOS, Scenario
from requite.sim.pair import scenarios as pair_scenarios
from requite.sim.pair.knobs import PairKnobs
from requite.sim.pair.scenarios import PAIR_SCENARIOS, PairScenario
from requite.sim.paired import scenarios as paired_scenarios
from requite.sim.paired.scenarios import PAIRED_SCENARIOS, PairedScenario
from requite.sim.pirate import scenarios as pirate_scenarios
from requite.sim.pirate.knobs import PirateKnobs
from requite.sim.pirate.scenarios import PIRATE_SCENARIOS, PirateScenario
from requite.sim.pool import scenarios as pool_scenarios
from requite.sim.pool.knobs import PoolKnobs
from requite.sim.pool.scenarios import POOL_SCENARIOS, PoolScenario
from requite.sim.scalability import drawing
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.scenarios import SP_SCENARIOS, SpScenario
from requite.sim.shells import scenarios as shell_scenarios
from requite.sim.shells.knobs import ShellKnobs
from requite.sim.shells.scenarios import SHELL_SCENARIOS, ShellScenario
from requite.sim.titanic import scenarios as titanic_scenarios
from requite.sim.titanic.knobs import TitanicKnobs
from requite.sim.titanic.scenarios import TITANIC_SCENARIOS, TitanicScenario

AnyScenario = (
    Scenario
    | SpScenario
    | FlpScenario
    | PirateScenario
    | TitanicScenario
    | PairScenario
    | PoolScenario
    | AmqpScenario
    | ShellScenario
)
AnyKnobs = (
    Knobs
    | DedupKnobs
    | ScalabilityKnobs
    | FreelanceKnobs
    | PirateKnobs
    | TitanicKnobs
    | PairKnobs
    | PoolKnobs
    | AmqpKnobs
    | ShellKnobs
)

SCENARIOS: Final[dict[str, AnyScenario]] = {
    **MDP_SCENARIOS,
    **DEDUP_SCENARIOS,
    **SP_SCENARIOS,
    **FLP_SCENARIOS,
    **PIRATE_SCENARIOS,
    **TITANIC_SCENARIOS,
    **PAIR_SCENARIOS,
    **PAIRED_SCENARIOS,
    **POOL_SCENARIOS,
    **AMQP_SCENARIOS,
    **SHELL_SCENARIOS,
}
GROUPS: Final = {
    "all": [*SCENARIOS],
    "mdp": [*MDP_SCENARIOS],
    "dedup": [*DEDUP_SCENARIOS],
    "sp": [*SP_SCENARIOS],
    "flp": [*FLP_SCENARIOS],
    "pirate": [*PIRATE_SCENARIOS],
    "titanic": [*TITANIC_SCENARIOS],
    "pair": [*PAIR_SCENARIOS],
    "pair-broker": [*PAIRED_SCENARIOS],
    "pool": [*POOL_SCENARIOS],
    "amqp": [*AMQP_SCENARIOS],
    "shells": [*SHELL_SCENARIOS],
}
"""Scenarios that take turns, under one name."""


def find(name: str) -> AnyScenario:
    """Return the scenario of that name. Raises `ConfigurationError`, which names all."""
    scenario = SCENARIOS.get(name)
    if scenario is None:
        names = ", ".join(SCENARIOS)
        raise ConfigurationError(f"there is no scenario {name!r}; the scenarios are {names}")
    return scenario


def draw(seed: int, scenario: AnyScenario) -> AnyKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same."""
    if isinstance(scenario, SpScenario):
        return drawing.draw(seed, scenario)
    if isinstance(scenario, FlpScenario):
        return freelance_scenarios.draw(seed, scenario)
    if isinstance(scenario, PirateScenario):
        return pirate_scenarios.draw(seed, scenario)
    if isinstance(scenario, TitanicScenario):
        return titanic_scenarios.draw(seed, scenario)
    if isinstance(scenario, PairScenario):
        return pair_scenarios.draw(seed, scenario)
    if isinstance(scenario, PairedScenario):
        return paired_scenarios.draw(seed, scenario)
    if isinstance(scenario, PoolScenario):
        return pool_scenarios.draw(seed, scenario)
    if isinstance(scenario, AmqpScenario):
        return amqp_scenarios.draw(seed, scenario)
    if isinstance(scenario, ShellScenario):
        return shell_scenarios.draw(seed, scenario)
    if isinstance(scenario, DedupScenario):
        return dedup_scenarios.draw(seed, scenario)
    return majordomo_scenarios.draw(seed, scenario)
