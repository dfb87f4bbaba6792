"""Run one seed or plan. Drawing, reading and playing a plan are pure functions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.sim import scenarios
from requite.sim.kernel.plan import Kinds, Plan, from_tables, read_knob, read_tables
from requite.sim.kernel.result import Options, Result, replay_command
from requite.sim.kernel.simulation import Simulation
from requite.sim.kernel.world import luck

__all__ = [
    "Options",
    "Plan",
    "Result",
    "draw",
    "knobs_of",
    "play",
    "read_knobs",
    "read_plan",
    "replay_command",
    "run",
    "violates",
]

_PLANNED_MAX: Final = 100_000


def knobs_of(seed: int, scenario: str, options: Options | None = None) -> Any:
    """Draw the knobs of a run. Raises `ConfigurationError` for an unknown scenario."""
    knobs = scenarios.draw(seed, scenario)
    return replace(knobs, **options.knobs) if options and options.knobs else knobs


def draw(seed: int, scenario: str, options: Options | None = None) -> Plan:
    """Draw the plan of a run. Raises `ConfigurationError` for an unknown scenario."""
    knobs = knobs_of(seed, scenario, options)
    kind, of_seed = _kind_of(scenario), partial(luck, seed)
    if knobs.calls > _PLANNED_MAX:
        raise ConfigurationError(f"a run has at most {_PLANNED_MAX:,} calls, not {knobs.calls:,}")
    try:
        calls = tuple(kind.draw_calls(knobs, of_seed))
        faults = tuple(islice(kind.draw_faults(knobs, of_seed), _PLANNED_MAX + 1))
    except Exception as error:
        if not options or not options.knobs:
            raise
        names = ", ".join(options.knobs)
        raise ConfigurationError(
            f"seed {seed} of {scenario} cannot be drawn with other knobs ({names}): {_of(error)}"
        ) from error
    if len(faults) > _PLANNED_MAX:
        raise ConfigurationError(f"the knobs ask for more than {_PLANNED_MAX:,} faults in one run")
    return Plan(scenario, seed, knobs, calls, faults)


def read_knobs(scenario: str, settings: Iterable[str]) -> dict[str, Any]:
    """Parse the knobs (`NAME=VALUE`) of a scenario. Raises `ConfigurationError`."""
    return dict(read_knob(_kind_of(scenario).knobs_type, setting) for setting in settings)


def violates(invariant: str, plan: Plan, options: Options | None = None) -> bool:
    """Return whether a plan violates an invariant; False if it cannot be played."""
    try:
        result = play(plan, replace(options or Options(), stop_at=invariant))
    except Exception:  # such as for a call of a client that was removed
        return False
    return any(violation.invariant == invariant for violation in result.violations)


def read_plan(text: str, where: str = "plan") -> Plan:
    """Parse the text of a plan (see `plan.write`). Raises `ConfigurationError`; `where` names the
    text in the message."""
    tables = read_tables(text, where)
    kind = _kind_of(tables["scenario"])
    return from_tables(tables, Kinds(kind.knobs_type, kind.call_type), where)


def play(plan: Plan, options: Options | None = None) -> Result:
    """Run a plan. The same plan, options and engines always give the same result."""
    # Intruders cause many warnings, which are of no use in a simulation.
    logging.getLogger("requite.sim").setLevel(logging.CRITICAL)
    simulation = prepare(plan, options)
    simulation.run()
    return simulation.result(plan.scenario)


def prepare(plan: Plan, options: Options | None = None) -> Simulation:
    """Return a run that has not begun, for tests that look at more than its result.

    Raises `ConfigurationError` for a plan that does not fit together, or that has a fault that this
    run cannot have.
    """
    kind = _kind_of(plan.scenario)
    try:
        simulation = kind(plan, options or Options())  # type: ignore[call-arg]
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the plan of seed {plan.seed} of {plan.scenario} does not fit together: {_of(error)}"
        ) from error
    simulation.refuse_other_faults()
    return simulation


def run(seed: int, scenario: str = "swarm", options: Options | None = None) -> Result:
    """Run one seed. Raises `ConfigurationError` for an unknown scenario."""
    return play(draw(seed, scenario, options), options)


def _of(error: Exception) -> str:
    """Return the kind of an exception, its text, and where it was raised."""
    last = extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def _kind_of(scenario: str) -> type[Simulation]:
    return scenarios.plugin_of(scenario).simulation
