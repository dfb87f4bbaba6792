"""The scenarios of the scalability protocols, and how the knobs of their runs are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from requite.sim.knobs import Behaviour
from requite.sim.network import Chunking
from requite.sim.network import Shape as NetworkShape
from requite.sim.process import Pace
from requite.sim.scalability.knobs import (
    DeviceSpec,
    Loss,
    ScalabilityKnobs,
    SpClientSpec,
    SpFault,
    SpWorkerSpec,
)
from requite.sim.scalability.shapes import Shape, Topology, draw_topology
from requite.sim.scalability.stack import IDS

_ALL_SHAPES: Final = tuple(Shape)
_LAYERED: Final = (Shape.DIRECT, Shape.CHAIN, Shape.MESH)
_BEHAVIOURS: Final = (
    Behaviour.ECHO,
    Behaviour.STREAM,
    Behaviour.FAIL,
    Behaviour.HANG,
    Behaviour.POISON,
)
_ANSWERING: Final = (Behaviour.ECHO, Behaviour.STREAM)
_PATIENCE: Final = 15  # service times
_FAR_BELOW: Final = 20  # ids that wrap begin at most so far below their end


@dataclass(frozen=True, slots=True)
class SpScenario:
    """What distinguishes a run. `faults`: all of these; with `swarm` a random part of them.

    `ranked`: channels have priorities and weights. `resends`: clients send again by themselves,
    else never; None: either. `fixed`: knobs that are not drawn, by name; those of the network as
    `network.NAME`, those of each client and worker as `clients.NAME` and `workers.NAME`.
    """

    name: str
    about: str
    shapes: tuple[Shape, ...] = _ALL_SHAPES
    faults: tuple[SpFault, ...] = ()
    swarm: bool = False
    ranked: bool = False
    resends: bool | None = None
    behaviours: tuple[Behaviour, ...] = _BEHAVIOURS
    fixed: Mapping[str, Any] = field(default_factory=dict)


_QUIET: Final = {
    "network.jitter_s": 0.0,
    "network.spike_p": 0.0,
    "network.buffer_size": 1 << 20,
    "big_p": 0.0,
    "cancel_p": 0.0,
    "timeout_s": 60.0,
    "service_s": 0.005,
    "hold_s": 30.0,
    "output_size_max": 64 << 20,
    "clients.hold": True,
    "clients.slots": 1024,
    "clients.tries": None,
}

_LIST: Final = (
    SpScenario(
        "sp-calm",
        "requests and replies, nothing goes wrong: each call takes one try",
        _LAYERED,
        behaviours=_ANSWERING,
        fixed=_QUIET | {"loss": Loss.NONE_AT_ONCE, "clients.resend_s": 100.0},
    ),
    SpScenario(
        "sp-loop",
        "devices that forward to each other: the loop settles, and every call gets its reply",
        (Shape.LOOP,),
        behaviours=_ANSWERING,
        fixed=_QUIET | {"loss": Loss.NONE, "clients.resend_s": 1.0, "idempotent_p": 1.0},
    ),
    SpScenario(
        "sp-fair",
        "equal channels that come and go: the same number of requests for each",
        (Shape.DIRECT, Shape.MESH),
        (SpFault.DRAIN_WORKER, SpFault.RESET, SpFault.CRASH_DEVICE),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "bursts_p": 0.8, "cancel_p": 0.0},
    ),
    SpScenario(
        "sp-priorities",
        "channels with priorities and weights, some of them blocked or lost for a while",
        _LAYERED,
        faults=(SpFault.CLOG, SpFault.SLOW_READER, SpFault.RESET, SpFault.CRASH_WORKER),
        ranked=True,
        behaviours=_ANSWERING,
        fixed={"calls": 300, "bursts_p": 0.8},
    ),
    SpScenario(
        "sp-chain",
        "one to four devices one behind the other, which crash and come back",
        (Shape.CHAIN,),
        (SpFault.CRASH_DEVICE, SpFault.RESET, SpFault.PARTITION),
    ),
    SpScenario(
        "sp-mesh",
        "layers of devices, everybody connected to all of the next: any of them may die",
        (Shape.MESH,),
        (SpFault.CRASH_DEVICE, SpFault.CRASH_WORKER, SpFault.POWER_LOSS, SpFault.BLACK_HOLE),
    ),
    SpScenario(
        "sp-restart-devices",
        "devices restart all the time: backtraces point nowhere, and resending repairs it",
        (Shape.CHAIN, Shape.MESH, Shape.LOOP),
        (SpFault.CRASH_DEVICE,),
        resends=True,
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-crash",
        "clients, workers and devices die, and come back",
        faults=(
            SpFault.CRASH_CLIENT,
            SpFault.CRASH_DEVICE,
            SpFault.CRASH_WORKER,
            SpFault.POWER_LOSS,
        ),
    ),
    SpScenario(
        "sp-partitions",
        "the network is cut, clogged, reset; connections are forgotten",
        faults=(
            SpFault.PARTITION,
            SpFault.PARTITION_ONE_WAY,
            SpFault.CLOG,
            SpFault.RESET,
            SpFault.BLACK_HOLE,
        ),
    ),
    SpScenario(
        "sp-slow-readers",
        "some read little or nothing for a while, and push back",
        faults=(
            SpFault.SLOW_READER,
            SpFault.CLOG,
            SpFault.FREEZE_CLIENT,
            SpFault.FREEZE_DEVICE,
            SpFault.FREEZE_WORKER,
        ),
        fixed={"big_p": 0.3, "bursts_p": 0.8, "network.buffer_size": 2 << 10},
    ),
    SpScenario(
        "sp-overload",
        "far more is asked than can be done in time",
        faults=(SpFault.SLOW_READER, SpFault.RESET),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 300,
            "service_s": 0.3,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "workers.capacity": 1,
            "workers.queue_max": 4,
            "network.buffer_size": 2 << 10,
        },
    ),
    SpScenario(
        "sp-no-resend",
        "clients never send again by themselves: nothing runs twice, and the caller is told",
        faults=(
            SpFault.CRASH_DEVICE,
            SpFault.CRASH_WORKER,
            SpFault.RESET,
            SpFault.BLACK_HOLE,
            SpFault.CLOG,
        ),
        resends=False,
    ),
    SpScenario(
        "sp-wrap",
        "request and channel ids begin a few below 2^31",
        faults=(SpFault.RESET, SpFault.CRASH_WORKER, SpFault.CLOG),
        fixed={"wraps": True},
    ),
    SpScenario(
        "sp-garbage",
        "strangers send what they should not, as clients and as workers",
        faults=(SpFault.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-drain",
        "clients, workers and devices leave and return in good order",
        faults=(SpFault.DRAIN_CLIENT, SpFault.DRAIN_DEVICE, SpFault.DRAIN_WORKER),
    ),
    SpScenario("sp-swarm", "a random part of everything", faults=tuple(SpFault), swarm=True),
)
SP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


def draw(seed: int, scenario: SpScenario) -> ScalabilityKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same."""
    rng = Random(f"{seed}/sp-knobs")
    drawn = _draw_all(rng, scenario)
    fixed = {name: value for name, value in scenario.fixed.items() if "." not in name}
    drawn |= fixed
    drawn["network"] = _draw_network(rng, _of(scenario, "network"))
    _draw_cast(rng, scenario, drawn)
    return ScalabilityKnobs(**drawn)


def _of(scenario: SpScenario, thing: str) -> dict[str, Any]:
    """Return the knobs that are fixed for one kind of thing."""
    prefix = f"{thing}."
    fixed = scenario.fixed.items()
    return {name.removeprefix(prefix): v for name, v in fixed if name.startswith(prefix)}


def _draw_all(rng: Random, scenario: SpScenario) -> dict[str, Any]:
    return {
        "calls": rng.randint(60, 160),
        "faulty_s": rng.uniform(4, 15),
        "wraps": rng.random() < 0.2,
        "hold_s": rng.choice((1.0, 30.0, 30.0)),
        "behaviours": scenario.behaviours,
        "weights": tuple(_weight(rng, behaviour) for behaviour in scenario.behaviours),
        "service_s": rng.choice((0.0, 0.005, 0.05, 0.2)),
        "timeout_s": rng.choice((0.5, 2.0, 5.0, 10.0)),
        "endless_p": rng.choice((0.0, 0.2)),
        "idempotent_p": rng.choice((0.5, 0.9, 1.0)),
        "cancel_p": rng.choice((0.0, 0.05, 0.2)),
        "big_p": rng.choice((0.0, 0.02, 0.1)),
        "bursts_p": rng.choice((0.0, 0.3, 0.6)),
        "follow_p": rng.choice((0.0, 0.2)),
        "pace": Pace(rng.choice((0.0, 0.001, 0.02)), rng.choice((0.0, 0.0005, 0.005))),
        "in_band": rng.random() < 0.3,
        "output_size_max": rng.choice((100_000, 1 << 20, 64 << 20)),
        "loss": Loss.SOME,
        "faults": _draw_faults(rng, scenario),
        "faults_per_s": rng.uniform(0.05, 0.4),
        "outage_max": rng.choice((2.0, 5.0, 10.0)),
    }


def _weight(rng: Random, behaviour: Behaviour) -> int:
    match behaviour:
        case Behaviour.ECHO:
            return rng.choice((10, 30))
        case Behaviour.STREAM:
            return rng.choice((1, 8))
    return rng.choice((0, 0, 1, 2))


def _draw_faults(rng: Random, scenario: SpScenario) -> tuple[SpFault, ...]:
    if not scenario.swarm:
        return scenario.faults
    share = rng.choice((0.15, 0.4, 0.7))
    return tuple(kind for kind in scenario.faults if rng.random() < share)


def _draw_network(rng: Random, fixed: dict[str, Any]) -> NetworkShape:
    latency_s = rng.choice((0.0001, 0.001, 0.01))
    drawn: dict[str, Any] = {
        "latency_s": latency_s,
        "jitter_s": rng.choice((0.0, 1.0, 5.0)) * latency_s,
        "spike_p": rng.choice((0.0, 0.01)),
        "spike_s": rng.choice((0.1, 1.0)),
        "chunking": rng.choice(tuple(Chunking)),
        "retransmit_s": rng.choice((2.0, 6.0)),
        "keepalive_s": rng.choice((3.0, 6.0)),
        "connect_timeout_s": rng.choice((0.5, 2.0)),
        "buffer_size": rng.choice((2 << 10, 16 << 10, 256 << 10)),
    }
    return NetworkShape(**drawn | fixed)


# --- the cast -------------------------------------------------------------------------------------
def _draw_cast(rng: Random, scenario: SpScenario, drawn: dict[str, Any]) -> None:
    """Draw everybody, and how they are connected."""
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
    # Who asks again before an answer can be there may keep workers busy with answers for ever.
    patience_s = _PATIENCE * knobs["service_s"]
    drawn: dict[str, Any] = {
        "slots": rng.choice((4, 1024, 1024, 1024)),
        "resend_s": max(rng.choice((0.3, 1.0, 3.0)), patience_s) if resends else None,
        "tries": rng.choice((None, None, None, 2, 6)) if resends else rng.choice((None, 1)),
        "hold": rng.random() < 0.8,
        "soon": rng.random() < 0.5,
        "first_id": _draw_id(rng, knobs["wraps"]),
    }
    return SpClientSpec(name, **drawn | _of(scenario, "clients"))


def _draw_devices(rng: Random, topology: Topology, wraps: bool) -> Iterator[DeviceSpec]:
    """Let one of each layer have ids that wrap: with the same ids, two that stand side by side
    would give a request that is sent again over the other one the same backtrace."""
    for first, *others in topology.layers:
        yield DeviceSpec(first, _draw_id(rng, wraps))
        yield from map(DeviceSpec, others)


def _draw_worker(rng: Random, name: str, scenario: SpScenario, wraps: bool) -> SpWorkerSpec:
    drawn = {"capacity": rng.choice((1, 2, 16)), "queue_max": rng.choice((1, 8, 1024))}
    return SpWorkerSpec(name, first_id=_draw_id(rng, wraps), **drawn | _of(scenario, "workers"))


def _draw_id(rng: Random, wraps: bool) -> int | None:
    """Draw where ids begin, if that is not to be left to each life."""
    far_below = rng.randint(1, _FAR_BELOW)
    return IDS - far_below if wraps else None


def _draw_hops(rng: Random, shape: Shape, topology: Topology) -> int:
    """Draw how many tags a message may have: eight, or no more than the longest way needs."""
    if shape is Shape.LOOP:
        return rng.choice((8, 8, 5))
    return rng.choice((8, 8, len(topology.layers) + 1))
