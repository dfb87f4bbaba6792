"""The calls of a Pirate run."""

from __future__ import annotations

from typing import Final

from requite.sim.kernel.workload import CallPlan, plain_call
from requite.sim.pirate.knobs import PirateKnobs

SERVICE: Final = "work"  # its name for handlers; the wire protocol has no service names


def plan_call(
    knobs: PirateKnobs, client: str, number: int, timeout_s: float, at_s: float
) -> CallPlan:
    """Return a plain call."""
    service_s = min(0.001, knobs.service_s)
    plan = plain_call(client, number, timeout_s, service_s=service_s, at_s=at_s)
    return plan._replace(service=SERVICE)
