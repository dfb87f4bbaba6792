"""One run: `run(seed, scenario, options) -> Result`, a pure function of its arguments."""

from __future__ import annotations

import logging
from dataclasses import replace

from requite.sim import scenarios
from requite.sim.amqp.knobs import AmqpKnobs
from requite.sim.amqp.simulation import AmqpSimulation
from requite.sim.dedup.knobs import DedupKnobs
from requite.sim.dedup.simulation import DedupSimulation
from requite.sim.freelance.knobs import FreelanceKnobs
from requite.sim.freelance.simulation import FreelanceSimulation
from requite.sim.majordomo import MajordomoSimulation
from requite.sim.pair.knobs import PairKnobs
from requite.sim.pair.simulation import PairSimulation
from requite.sim.paired.knobs import PairedKnobs
from requite.sim.paired.simulation import PairedSimulation
from requite.sim.pirate.knobs import PirateKnobs
from requite.sim.pirate.simulation import PirateSimulation
from requite.sim.pool.knobs import PoolKnobs
from requite.sim.pool.simulation import PoolSimulation
from requite.sim.result import Options, Result, replay_command
from requite.sim.scalability.knobs import ScalabilityKnobs
from requite.sim.scalability.simulation import ScalabilitySimulation
from requite.sim.scenarios import AnyKnobs
from requite.sim.simulation import Simulation
from requite.sim.titanic.knobs import TitanicKnobs
from requite.sim.titanic.simulation import TitanicSimulation

__all__ = ["Options", "Result", "knobs_of", "replay_command", "run"]


def knobs_of(seed: int, scenario: str, options: Options | None = None) -> AnyKnobs:
    """Draw the knobs of a run. Raises `ConfigurationError` for a scenario that there is not."""
    knobs = scenarios.draw(seed, scenarios.find(scenario))
    return replace(knobs, **options.knobs) if options and options.knobs else knobs


def run(seed: int, scenario: str = "swarm", options: Options | None = None) -> Result:
    """Run one seed. Raises `ConfigurationError` for a scenario that there is not."""
    options = options or Options()
    knobs = knobs_of(seed, scenario, options)
    # What operators would read is not news here: intruders see to it that there is plenty.
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    simulation = _simulation(seed, knobs, options)
    simulation.run()
    return simulation.result(scenario)


def _simulation(seed: int, knobs: AnyKnobs, options: Options) -> Simulation:
    if isinstance(knobs, ScalabilityKnobs):
        return ScalabilitySimulation(seed, knobs, options)
    if isinstance(knobs, FreelanceKnobs):
        return FreelanceSimulation(seed, knobs, options)
    if isinstance(knobs, PirateKnobs):
        return PirateSimulation(seed, knobs, options)
    if isinstance(knobs, TitanicKnobs):
        return TitanicSimulation(seed, knobs, options)
    if isinstance(knobs, PairKnobs):
        return PairSimulation(seed, knobs, options)
    if isinstance(knobs, PairedKnobs):
        return PairedSimulation(seed, knobs, options)
    if isinstance(knobs, PoolKnobs):
        return PoolSimulation(seed, knobs, options)
    if isinstance(knobs, AmqpKnobs):
        return AmqpSimulation(seed, knobs, options)
    if isinstance(knobs, DedupKnobs):
        return DedupSimulation(seed, knobs, options)
    return MajordomoSimulation(seed, knobs, options)
