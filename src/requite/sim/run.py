"""One run: `run(seed, scenario, options) -> Result`, a pure function of its arguments."""

from __future__ import annotations

import logging
from dataclasses import replace

from requite.sim import scenarios
from requite.sim.knobs import Knobs
from requite.sim.majordomo import MajordomoSimulation
from requite.sim.result import Options, Result, replay_command

__all__ = ["Options", "Result", "knobs_of", "replay_command", "run"]


def knobs_of(seed: int, scenario: str, options: Options | None = None) -> Knobs:
    """Draw the knobs of a run. Raises `ConfigurationError` for a scenario that there is not."""
    knobs = scenarios.draw(seed, scenarios.find(scenario))
    return replace(knobs, **options.knobs) if options and options.knobs else knobs


def run(seed: int, scenario: str = "swarm", options: Options | None = None) -> Result:
    """Run one seed. Raises `ConfigurationError` for a scenario that there is not."""
    options = options or Options()
    knobs = knobs_of(seed, scenario, options)
    # What operators would read is not news here: intruders see to it that there is plenty.
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    simulation = MajordomoSimulation(seed, knobs, options)
    simulation.run()
    return simulation.result(scenario)
