"""The scenarios of the scalability protocols."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from requite.sim.kernel.drawing import (
    CALM,
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
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario, partitions, usual
from requite.sim.scalability.knobs import DeviceSpec, ScalabilityKnobs, SpClientSpec, SpWorkerSpec
from requite.sim.scalability.stack import IDS
from requite.sim.scalability.topology import Shape, Topology, draw_topology

_LAYERED: Final = one_of(Shape.DIRECT, Shape.CHAIN, Shape.MESH)


_QUIET: Final = CALM | {
    "network.buffer_size": 1 << 20,
    "hold_s": 30.0,
    "clients.hold": True,
    "clients.slots": 1024,
    "clients.tries": None,
}

_LIST: Final = (
    Scenario(
        "sp-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed=_QUIET | {"lossless": True, "at_once": True, "clients.resend_s": 100.0},
        choices={"shape": _LAYERED},
    ),
    Scenario(
        "sp-loop",
        "devices forward to each other: the loop settles, and every call gets its reply",
        behaviours=ANSWERING,
        fixed=_QUIET
        | {"shape": Shape.LOOP, "lossless": True, "clients.resend_s": 1.0, "idempotent_p": 1.0},
    ),
    Scenario(
        "sp-fair",
        "equal channels come and go: each gets the same number of requests",
        choices={"shape": one_of(Shape.DIRECT, Shape.MESH)},
        faults=(FaultKind.DRAIN_WORKER, FaultKind.RESET, FaultKind.CRASH_DEVICE),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "bursts_p": 0.8, "cancel_p": 0.0},
    ),
    Scenario(
        "sp-priorities",
        "channels with priorities and weights; some are blocked or lost for a while",
        choices={"shape": _LAYERED, "ranked": always(True)},
        faults=(FaultKind.CLOG, FaultKind.SLOW_READER, FaultKind.RESET, FaultKind.CRASH_WORKER),
        behaviours=ANSWERING,
        fixed={"calls": 300, "bursts_p": 0.8},
    ),
    Scenario(
        "sp-chain",
        "a chain of one to four devices, which crash and come back",
        fixed={"shape": Shape.CHAIN},
        faults=(FaultKind.CRASH_DEVICE, FaultKind.RESET, FaultKind.PARTITION),
    ),
    Scenario(
        "sp-mesh",
        "layers of devices, each connected to all of the next layer; any of them may crash",
        fixed={"shape": Shape.MESH},
        faults=(
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
            FaultKind.BLACK_HOLE,
        ),
    ),
    Scenario(
        "sp-restart-devices",
        "devices keep restarting: backtraces become invalid, and resending recovers the calls",
        faults=(FaultKind.CRASH_DEVICE,),
        fixed={"faults_per_s": 1.0},
        choices={
            "shape": one_of(Shape.CHAIN, Shape.MESH, Shape.LOOP),
            "resends": always(True),
        },
    ),
    Scenario(
        "sp-crash",
        "clients, workers and devices crash and come back",
        faults=(
            FaultKind.CRASH_CLIENT,
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
        ),
    ),
    partitions("sp"),
    Scenario(
        "sp-slow-readers",
        "slow readers cause back-pressure",
        faults=(
            FaultKind.SLOW_READER,
            FaultKind.CLOG,
            FaultKind.FREEZE_CLIENT,
            FaultKind.FREEZE_DEVICE,
            FaultKind.FREEZE_WORKER,
        ),
        fixed={"big_p": 0.3, "bursts_p": 0.8, "network.buffer_size": 2 << 10},
    ),
    Scenario(
        "sp-overload",
        "more requests than the workers can answer in time",
        faults=(FaultKind.SLOW_READER, FaultKind.RESET),
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
    Scenario(
        "sp-endless",
        "calls without a deadline, whose requests and replies are lost again and again",
        faults=(FaultKind.CRASH_WORKER, FaultKind.CRASH_DEVICE, FaultKind.BLACK_HOLE),
        choices={"resends": always(True)},
        fixed={"calls": 300, "endless_p": 0.9, "faults_per_s": 3.0},
    ),
    Scenario(
        "sp-no-resend",
        "clients never resend: nothing runs twice, and the caller gets an error",
        faults=(
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
            FaultKind.CLOG,
        ),
        choices={"resends": always(False)},
    ),
    Scenario(
        "sp-wrap",
        "request and channel ids begin a few below 2^31",
        faults=(FaultKind.RESET, FaultKind.CRASH_WORKER, FaultKind.CLOG),
        fixed={"wraps": True},
    ),
    *usual(
        "sp",
        "client",
        "device",
        "worker",
        more=(FaultKind.SLOW_READER,),
        choices={"ranked": chance(0.3)},
    ),
)
SP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
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


def draw(seed: int, scenario: Scenario) -> ScalabilityKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "sp", scenario)
    drawn = luck.knobs(_KNOBS)
    first_id = _first_id(drawn["wraps"])
    resends = luck.one("resends", always(None))
    client = _client(resends, drawn["service_s"], first_id)
    clients = luck.cast(SpClientSpec, "client", between(1, 4), client)
    workers = luck.cast(SpWorkerSpec, "worker", between(1, 4), {**_WORKER, "first_id": first_id})
    shape: Shape = luck.one("shape", one_of(*Shape))
    topology = draw_topology(
        luck.stream("edges"),
        shape,
        [spec.name for spec in clients],
        [spec.name for spec in workers],
        ranked=luck.one("ranked", always(False)),
    )
    return ScalabilityKnobs(
        **drawn,
        **luck.calls(),
        shape=shape,
        clients=tuple(map(_once, clients)),
        devices=tuple(_devices(luck, topology, first_id)),
        workers=workers,
        edges=tuple(topology.edges),
        hops=luck.one("hops", _hops(shape, topology)),
    )


def _once(client: SpClientSpec) -> SpClientSpec:
    """Return a client with one attempt per call, if it never resends."""
    return replace(client, tries=1) if client.resend_s is None and client.tries else client


# --- the cast -------------------------------------------------------------------------------------
def _client(resends: bool | None, service_s: float, first_id: Choice) -> Choices:
    """Return the choices of a client; `resends`: whether it resends, None: drawn."""
    # A client that resends before a reply can arrive may keep workers busy for ever.
    intervals = [max(each, _PATIENCE * service_s) for each in (0.3, 1.0, 3.0)]
    resend_s: dict[bool | None, list[float | None]] = {
        True: [*intervals],
        False: [None],
        None: [*intervals * 4, *[None] * 3],
    }
    return {
        "slots": one_of(4, 1024, 1024, 1024),
        "resend_s": one_of(*resend_s[resends]),
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
