"""The scenarios of the scalability protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from requite.sim.kernel.faults import FaultKind, faults_of
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario
from requite.sim.scalability.shapes import Shape

_LAYERED: Final = (Shape.DIRECT, Shape.CHAIN, Shape.MESH)


@dataclass(frozen=True, slots=True)
class SpScenario(Scenario):
    """A scenario. `shapes`: a run draws one. `ranked`: channels have priorities and weights.
    `resends`: whether clients resend; None: drawn."""

    shapes: tuple[Shape, ...] = tuple(Shape)
    ranked: bool = False
    resends: bool | None = None


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
        "requests and replies without faults: each call takes one attempt",
        shapes=_LAYERED,
        behaviours=ANSWERING,
        fixed=_QUIET | {"lossless": True, "at_once": True, "clients.resend_s": 100.0},
    ),
    SpScenario(
        "sp-loop",
        "devices forward to each other: the loop settles, and every call gets its reply",
        shapes=(Shape.LOOP,),
        behaviours=ANSWERING,
        fixed=_QUIET | {"lossless": True, "clients.resend_s": 1.0, "idempotent_p": 1.0},
    ),
    SpScenario(
        "sp-fair",
        "equal channels come and go: each gets the same number of requests",
        shapes=(Shape.DIRECT, Shape.MESH),
        faults=(FaultKind.DRAIN_WORKER, FaultKind.RESET, FaultKind.CRASH_DEVICE),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "bursts_p": 0.8, "cancel_p": 0.0},
    ),
    SpScenario(
        "sp-priorities",
        "channels with priorities and weights; some are blocked or lost for a while",
        shapes=_LAYERED,
        faults=(FaultKind.CLOG, FaultKind.SLOW_READER, FaultKind.RESET, FaultKind.CRASH_WORKER),
        ranked=True,
        behaviours=ANSWERING,
        fixed={"calls": 300, "bursts_p": 0.8},
    ),
    SpScenario(
        "sp-chain",
        "a chain of one to four devices, which crash and come back",
        shapes=(Shape.CHAIN,),
        faults=(FaultKind.CRASH_DEVICE, FaultKind.RESET, FaultKind.PARTITION),
    ),
    SpScenario(
        "sp-mesh",
        "layers of devices, each connected to all of the next layer; any of them may crash",
        shapes=(Shape.MESH,),
        faults=(
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
            FaultKind.BLACK_HOLE,
        ),
    ),
    SpScenario(
        "sp-restart-devices",
        "devices keep restarting: backtraces become invalid, and resending recovers the calls",
        shapes=(Shape.CHAIN, Shape.MESH, Shape.LOOP),
        faults=(FaultKind.CRASH_DEVICE,),
        resends=True,
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-crash",
        "clients, workers and devices crash and come back",
        faults=(
            FaultKind.CRASH_CLIENT,
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.POWER_LOSS,
        ),
    ),
    SpScenario(
        "sp-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        faults=(
            FaultKind.PARTITION,
            FaultKind.PARTITION_ONE_WAY,
            FaultKind.CLOG,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
        ),
    ),
    SpScenario(
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
    SpScenario(
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
    SpScenario(
        "sp-endless",
        "calls without a deadline, whose requests and replies are lost again and again",
        faults=(FaultKind.CRASH_WORKER, FaultKind.CRASH_DEVICE, FaultKind.BLACK_HOLE),
        resends=True,
        fixed={"calls": 300, "endless_p": 0.9, "faults_per_s": 3.0},
    ),
    SpScenario(
        "sp-no-resend",
        "clients never resend: nothing runs twice, and the caller gets an error",
        faults=(
            FaultKind.CRASH_DEVICE,
            FaultKind.CRASH_WORKER,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
            FaultKind.CLOG,
        ),
        resends=False,
    ),
    SpScenario(
        "sp-wrap",
        "request and channel ids begin a few below 2^31",
        faults=(FaultKind.RESET, FaultKind.CRASH_WORKER, FaultKind.CLOG),
        fixed={"wraps": True},
    ),
    SpScenario(
        "sp-garbage",
        "intruders send garbage, as clients and as workers",
        faults=(FaultKind.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-drain",
        "clients, workers and devices drain and come back",
        faults=(FaultKind.DRAIN_CLIENT, FaultKind.DRAIN_DEVICE, FaultKind.DRAIN_WORKER),
    ),
    SpScenario(
        "sp-swarm",
        "a random subset of all faults",
        faults=faults_of(
            "client", "device", "worker", more=(FaultKind.SLOW_READER, FaultKind.INTRUDER)
        ),
        swarm=True,
    ),
)
SP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}
