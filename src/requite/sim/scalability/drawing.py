"""Draw the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from requite.sim.kernel.drawing import (
    FAULTS,
    WORK,
    Choice,
    Choices,
    Draw,
    always,
    between,
    chance,
    one_of,
)
from requite.sim.scalability.knobs import DeviceSpec, ScalabilityKnobs, SpClientSpec, SpWorkerSpec
from requite.sim.scalability.scenarios import SpScenario
from requite.sim.scalability.shapes import Shape, Topology, draw_topology
from requite.sim.scalability.stack import IDS

_PATIENCE: Final = 15  # service times
_FAR_BELOW: Final = 20  # ids that wrap begin at most this far below their limit

_KNOBS: Final[Choices] = {
    **WORK,
    **FAULTS,
    "calls": between(60, 160),
    "faulty_s": between(4.0, 15.0),
    "wraps": chance(0.2),
    "hold_s": one_of(1.0, 30.0, 30.0),
    "in_band": chance(0.3),
    "output_size_max": one_of(100_000, 1 << 20, 64 << 20),
    "lossless": always(False),
    "at_once": always(False),
}
_WORKER: Final[Choices] = {"capacity": one_of(1, 2, 16), "queue_max": one_of(1, 8, 1024)}


def draw(seed: int, scenario: SpScenario) -> ScalabilityKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "sp", scenario)
    drawn = luck.knobs(_KNOBS)
    first_id = _first_id(drawn["wraps"])
    clients = luck.specs("client", between(1, 4), _client(scenario, drawn["service_s"], first_id))
    for client in clients.values():
        if client["resend_s"] is None and client["tries"]:
            client["tries"] = 1
    workers = luck.specs("worker", between(1, 4), {**_WORKER, "first_id": first_id})
    shape: Shape = luck.one("shape", one_of(*scenario.shapes))
    ranked = scenario.ranked or (scenario.swarm and luck.free("ranked", chance(0.3)))
    edges = luck.stream("edges")
    topology = draw_topology(edges, shape, [*clients], [*workers], ranked=ranked)
    return ScalabilityKnobs(
        **drawn,
        **luck.calls(),
        shape=shape,
        clients=tuple(SpClientSpec(name, **knobs) for name, knobs in clients.items()),
        devices=tuple(_devices(luck, topology, first_id)),
        workers=tuple(SpWorkerSpec(name, **knobs) for name, knobs in workers.items()),
        edges=tuple(topology.edges),
        hops=luck.one("hops", _hops(shape, topology)),
    )


# --- the cast -------------------------------------------------------------------------------------
def _client(scenario: SpScenario, service_s: float, first_id: Choice) -> Choices:
    # A client that resends before a reply can arrive may keep workers busy for ever.
    intervals = [max(each, _PATIENCE * service_s) for each in (0.3, 1.0, 3.0)]
    resend_s: dict[bool | None, list[float | None]] = {
        True: [*intervals],
        False: [None],
        None: [*intervals * 4, *[None] * 3],
    }
    return {
        "slots": one_of(4, 1024, 1024, 1024),
        "resend_s": one_of(*resend_s[scenario.resends]),
        "tries": one_of(None, None, None, 2, 6),
        "hold": chance(0.8),
        "soon": chance(0.5),
        "first_id": first_id,
    }


def _devices(luck: Draw, topology: Topology, first_id: Choice) -> Iterator[DeviceSpec]:
    """Yield devices; only one of each layer has ids that wrap. With equal ids, two devices of a
    layer would give the first attempt and a resend the same backtrace."""
    for first, *others in topology.layers:
        yield DeviceSpec(first, luck.free(f"{first}/first_id", first_id))
        yield from map(DeviceSpec, others)


def _first_id(wraps: bool) -> Choice:
    """Return the choice of a first id; None: each start of the process draws its own."""
    return between(IDS - _FAR_BELOW, IDS - 1) if wraps else always(None)


def _hops(shape: Shape, topology: Topology) -> Choice:
    """Return the choice of the maximum number of tags: eight, or those of the longest path."""
    return one_of(8, 8, 5 if shape is Shape.LOOP else len(topology.layers) + 1)
