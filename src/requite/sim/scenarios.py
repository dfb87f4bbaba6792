"""The plug-in of each protocol, and the scenarios of all protocols.

A new protocol needs one entry in `PLUGINS`, and no other change outside its package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from requite.errors import ConfigurationError
from requite.sim.amqp import scenarios as amqp_scenarios
from requite.sim.amqp.simulation import AmqpSimulation
from requite.sim.dedup import scenarios as dedup_scenarios
from requite.sim.dedup.simulation import DedupSimulation
from requite.sim.freelance import scenarios as freelance_scenarios
from requite.sim.freelance import simulation as freelance_simulation
from requite.sim.freelance.simulation import FreelanceSimulation
from requite.sim.kernel.script import Form
from requite.sim.kernel.simulation import Simulation
from requite.sim.majordomo import scenarios as majordomo_scenarios
from requite.sim.majordomo import script as majordomo_script
from requite.sim.majordomo.simulation import MajordomoSimulation
from requite.sim.pair import scenarios as pair_scenarios
from requite.sim.pair.simulation import PairSimulation
from requite.sim.paired import scenarios as paired_scenarios
from requite.sim.paired.simulation import PairedSimulation
from requite.sim.pirate import scenarios as pirate_scenarios
from requite.sim.pirate import simulation as pirate_simulation
from requite.sim.pirate.simulation import PirateSimulation
from requite.sim.pool import scenarios as pool_scenarios
from requite.sim.pool.simulation import PoolSimulation
from requite.sim.rights import scenarios as rights_scenarios
from requite.sim.rights.simulation import RightsSimulation
from requite.sim.scalability import scenarios as scalability_scenarios
from requite.sim.scalability import simulation as scalability_simulation
from requite.sim.scalability.simulation import ScalabilitySimulation
from requite.sim.shells import scenarios as shell_scenarios
from requite.sim.shells.simulation import ShellSimulation
from requite.sim.titanic import scenarios as titanic_scenarios
from requite.sim.titanic.simulation import TitanicSimulation


class Scenario(Protocol):
    """The attributes that all scenarios have; the others are known only to the plug-in."""

    @property
    def name(self) -> str:
        """The name, unique among all scenarios."""

    @property
    def about(self) -> str:
        """A short description of its faults."""


class Plugin(NamedTuple):
    """What the simulator needs to know of a protocol.

    `draw(seed, scenario)` draws the knobs of a run. `simulation` has the types of knobs and calls,
    draws calls and faults, and is the run itself. `script` reads scripts, if the protocol has any.
    """

    scenarios: Mapping[str, Scenario]
    draw: Callable[[int, Any], Any]
    simulation: type[Simulation]
    script: Form | None = None


PLUGINS: Final = {
    "mdp": Plugin(
        majordomo_scenarios.MDP_SCENARIOS,
        majordomo_scenarios.draw,
        MajordomoSimulation,
        majordomo_script.SCRIPT,
    ),
    "dedup": Plugin(dedup_scenarios.DEDUP_SCENARIOS, dedup_scenarios.draw, DedupSimulation),
    "sp": Plugin(
        scalability_scenarios.SP_SCENARIOS,
        scalability_scenarios.draw,
        ScalabilitySimulation,
        scalability_simulation.SCRIPT,
    ),
    "flp": Plugin(
        freelance_scenarios.FLP_SCENARIOS,
        freelance_scenarios.draw,
        FreelanceSimulation,
        freelance_simulation.SCRIPT,
    ),
    "pirate": Plugin(
        pirate_scenarios.PIRATE_SCENARIOS,
        pirate_scenarios.draw,
        PirateSimulation,
        pirate_simulation.SCRIPT,
    ),
    "titanic": Plugin(
        titanic_scenarios.TITANIC_SCENARIOS, titanic_scenarios.draw, TitanicSimulation
    ),
    "pair": Plugin(pair_scenarios.PAIR_SCENARIOS, pair_scenarios.draw, PairSimulation),
    "pair-broker": Plugin(
        paired_scenarios.PAIRED_SCENARIOS, paired_scenarios.draw, PairedSimulation
    ),
    "rights": Plugin(rights_scenarios.RIGHTS_SCENARIOS, rights_scenarios.draw, RightsSimulation),
    "pool": Plugin(pool_scenarios.POOL_SCENARIOS, pool_scenarios.draw, PoolSimulation),
    "amqp": Plugin(amqp_scenarios.AMQP_SCENARIOS, amqp_scenarios.draw, AmqpSimulation),
    "shells": Plugin(shell_scenarios.SHELL_SCENARIOS, shell_scenarios.draw, ShellSimulation),
}
"""The plug-ins, by the names of the groups of their scenarios."""

SCENARIOS: Final[Mapping[str, Scenario]] = {
    name: scenario for plugin in PLUGINS.values() for name, scenario in plugin.scenarios.items()
}
GROUPS: Final = {
    "all": [*SCENARIOS],
    **{name: [*plugin.scenarios] for name, plugin in PLUGINS.items()},
}
"""Scenarios that take turns, under one name."""

_PLUGIN_OF: Final = {
    scenario: plugin for plugin in PLUGINS.values() for scenario in plugin.scenarios
}


def find(name: str) -> Scenario:
    """Return the scenario of that name. Raises `ConfigurationError`, which lists all names."""
    scenario = SCENARIOS.get(name)
    if scenario is None:
        names = ", ".join(SCENARIOS)
        raise ConfigurationError(f"there is no scenario {name!r}; the scenarios are {names}")
    return scenario


def plugin_of(name: str) -> Plugin:
    """Return the plug-in of a scenario. Raises `ConfigurationError`, which lists all names."""
    return _PLUGIN_OF[find(name).name]


def draw(seed: int, name: str) -> Any:
    """Draw the knobs of a run: equal for the same seed and scenario.

    Raises `ConfigurationError` for an unknown scenario.
    """
    return plugin_of(name).draw(seed, find(name))
