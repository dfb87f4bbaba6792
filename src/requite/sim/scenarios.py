"""All scenarios, by their names; those of the scalability protocols begin with `sp-`."""

from __future__ import annotations

from typing import Final

from requite.errors import ConfigurationError
from requite.sim import majordomo_scenarios
from requite.sim.knobs import Knobs
from requite.sim.majordomo_scenarios import MDP_SCENARIOS, Scenario
from requite.sim.scalability import drawing
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.scenarios import SP_SCENARIOS, SpScenario

AnyScenario = Scenario | SpScenario
AnyKnobs = Knobs | ScalabilityKnobs

SCENARIOS: Final[dict[str, AnyScenario]] = {**MDP_SCENARIOS, **SP_SCENARIOS}
GROUPS: Final = {"all": [*SCENARIOS], "mdp": [*MDP_SCENARIOS], "sp": [*SP_SCENARIOS]}
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
    return majordomo_scenarios.draw(seed, scenario)
