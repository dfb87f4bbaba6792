"""Draw the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

from requite.sim.drawing import draw_fault_knobs, draw_network, draw_pace, draw_work, fixed_of
from requite.sim.scalability.knobs import (
    DeviceSpec,
    Loss,
    ScalabilityKnobs,
    SpClientSpec,
    SpWorkerSpec,
)
from requite.sim.scalability.scenarios import SpScenario
from requite.sim.scalability.shapes import Shape, Topology, draw_topology
from requite.sim.scalability.stack import IDS

_PATIENCE: Final = 15  # service times
_FAR_BELOW: Final = 20  # ids that wrap begin at most this far below their limit


def draw(seed: int, scenario: SpScenario) -> ScalabilityKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    rng = Random(f"{seed}/sp-knobs")
    drawn = _draw_all(rng, scenario)
    drawn |= fixed_of(scenario.fixed)
    drawn["network"] = draw_network(rng, fixed_of(scenario.fixed, "network"))
    _draw_cast(rng, scenario, drawn)
    return ScalabilityKnobs(**drawn)


def _draw_all(rng: Random, scenario: SpScenario) -> dict[str, Any]:
    return {
        "calls": rng.randint(60, 160),
        "faulty_s": rng.uniform(4, 15),
        "wraps": rng.random() < 0.2,
        "hold_s": rng.choice((1.0, 30.0, 30.0)),
        **draw_work(rng, scenario.behaviours),
        "pace": draw_pace(rng),
        "in_band": rng.random() < 0.3,
        "output_size_max": rng.choice((100_000, 1 << 20, 64 << 20)),
        "loss": Loss.SOME,
        **draw_fault_knobs(rng, scenario.faults, scenario.swarm),
    }


# --- the cast -------------------------------------------------------------------------------------
def _draw_cast(rng: Random, scenario: SpScenario, drawn: dict[str, Any]) -> None:
    """Draw the processes and their channels."""
    clients = [f"client-{i + 1}" for i in range(rng.randint(1, 4))]
    workers = [f"worker-{i + 1}" for i in range(rng.randint(1, 4))]
    shape = rng.choice(scenario.shapes)
    ranked = scenario.ranked or (scenario.swarm and rng.random() < 0.3)
    topology = draw_topology(rng, shape, clients, workers, ranked=ranked)
    wraps: bool = drawn["wraps"]
    drawn |= {
        "shape": shape,
        "clients": tuple(_draw_client(rng, name, scenario, drawn) for name in clients),
        "devices": tuple(_draw_devices(rng, topology, wraps)),
        "workers": tuple(_draw_worker(rng, name, scenario, wraps) for name in workers),
        "edges": tuple(topology.edges),
        "hops": _draw_hops(rng, shape, topology),
    }


def _draw_client(
    rng: Random, name: str, scenario: SpScenario, knobs: Mapping[str, Any]
) -> SpClientSpec:
    resends = rng.random() < 0.8 if scenario.resends is None else scenario.resends
    # A client that resends before a reply can arrive may keep workers busy for ever.
    patience_s = _PATIENCE * knobs["service_s"]
    drawn: dict[str, Any] = {
        "slots": rng.choice((4, 1024, 1024, 1024)),
        "resend_s": max(rng.choice((0.3, 1.0, 3.0)), patience_s) if resends else None,
        "tries": rng.choice((None, None, None, 2, 6)) if resends else rng.choice((None, 1)),
        "hold": rng.random() < 0.8,
        "soon": rng.random() < 0.5,
        "first_id": _draw_id(rng, knobs["wraps"]),
    }
    return SpClientSpec(name, **drawn | fixed_of(scenario.fixed, "clients"))


def _draw_devices(rng: Random, topology: Topology, wraps: bool) -> Iterator[DeviceSpec]:
    """Yield devices; only one of each layer has ids that wrap. With equal ids, two devices of a
    layer would give the first attempt and a resend the same backtrace."""
    for first, *others in topology.layers:
        yield DeviceSpec(first, _draw_id(rng, wraps))
        yield from map(DeviceSpec, others)


def _draw_worker(rng: Random, name: str, scenario: SpScenario, wraps: bool) -> SpWorkerSpec:
    drawn = {"capacity": rng.choice((1, 2, 16)), "queue_max": rng.choice((1, 8, 1024))}
    return SpWorkerSpec(
        name, first_id=_draw_id(rng, wraps), **drawn | fixed_of(scenario.fixed, "workers")
    )


def _draw_id(rng: Random, wraps: bool) -> int | None:
    """Draw the first id; None: each start of the process draws its own."""
    far_below = rng.randint(1, _FAR_BELOW)
    return IDS - far_below if wraps else None


def _draw_hops(rng: Random, shape: Shape, topology: Topology) -> int:
    """Draw how many tags a message may have: eight, or as many as the longest path needs."""
    if shape is Shape.LOOP:
        return rng.choice((8, 8, 5))
    return rng.choice((8, 8, len(topology.layers) + 1))
