"""Tests of services, and real processes for tests, demos and benchmarks.

simulation.py `simulate`: run a test on virtual time, under random faults of a seed
processes.py  `Child`: one child process; `Children`: those of one run
rabbitmq.py   `RabbitServer`: a private RabbitMQ
lifetime.py   ends a process together with its parent, or with the holder of a lock
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from requite.testing.simulated_world import SimulatedWorld, SimulationFailed
    from requite.testing.simulation import simulate

__all__ = ["SimulatedWorld", "SimulationFailed", "simulate"]


def __getattr__(name: str) -> Any:
    """Import the simulator on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from requite.testing import simulated_world, simulation

    return getattr(simulation if name == "simulate" else simulated_world, name)
