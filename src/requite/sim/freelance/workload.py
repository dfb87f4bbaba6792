"""The calls of a run, and when they start. Bodies are those of `requite.sim.workload`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from requite.sim.freelance.knobs import FlpClientSpec, FreelanceKnobs
from requite.sim.knobs import Behaviour
from requite.sim.plain_calls import ANSWERING, plan_plain_calls
from requite.sim.workload import CallPlan


def plan_calls(knobs: FreelanceKnobs, rng: Random) -> Iterator[CallPlan]:
    """Draw the calls of the first phase, in no particular order."""
    return plan_plain_calls(knobs, rng, _may_be_endless)


def _may_be_endless(_client: FlpClientSpec, behaviour: Behaviour, idempotent: bool) -> bool:
    return idempotent and behaviour in ANSWERING
