"""The scenarios of the scalability protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from requite.sim.drawing import ANSWERING, BEHAVIOURS
from requite.sim.knobs import Behaviour
from requite.sim.scalability.knobs import Loss, SpFault
from requite.sim.scalability.shapes import Shape

_ALL_SHAPES: Final = tuple(Shape)
_LAYERED: Final = (Shape.DIRECT, Shape.CHAIN, Shape.MESH)


@dataclass(frozen=True, slots=True)
class SpScenario:
    """A scenario. `shapes`: a run draws one. `faults`: a run has all, with `swarm` a random subset.

    `ranked`: channels have priorities and weights. `resends`: whether clients resend; None: drawn.
    `fixed`: knobs with fixed values, by name: `network.NAME` of the network, `clients.NAME` and
    `workers.NAME` of each client and worker.
    """

    name: str
    about: str
    shapes: tuple[Shape, ...] = _ALL_SHAPES
    faults: tuple[SpFault, ...] = ()
    swarm: bool = False
    ranked: bool = False
    resends: bool | None = None
    behaviours: tuple[Behaviour, ...] = BEHAVIOURS
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
        "requests and replies without faults: each call takes one attempt",
        _LAYERED,
        behaviours=ANSWERING,
        fixed=_QUIET | {"loss": Loss.NONE_AT_ONCE, "clients.resend_s": 100.0},
    ),
    SpScenario(
        "sp-loop",
        "devices forward to each other: the loop settles, and every call gets its reply",
        (Shape.LOOP,),
        behaviours=ANSWERING,
        fixed=_QUIET | {"loss": Loss.NONE, "clients.resend_s": 1.0, "idempotent_p": 1.0},
    ),
    SpScenario(
        "sp-fair",
        "equal channels come and go: each gets the same number of requests",
        (Shape.DIRECT, Shape.MESH),
        (SpFault.DRAIN_WORKER, SpFault.RESET, SpFault.CRASH_DEVICE),
        behaviours=(Behaviour.ECHO,),
        fixed={"calls": 300, "bursts_p": 0.8, "cancel_p": 0.0},
    ),
    SpScenario(
        "sp-priorities",
        "channels with priorities and weights; some are blocked or lost for a while",
        _LAYERED,
        faults=(SpFault.CLOG, SpFault.SLOW_READER, SpFault.RESET, SpFault.CRASH_WORKER),
        ranked=True,
        behaviours=ANSWERING,
        fixed={"calls": 300, "bursts_p": 0.8},
    ),
    SpScenario(
        "sp-chain",
        "a chain of one to four devices, which crash and come back",
        (Shape.CHAIN,),
        (SpFault.CRASH_DEVICE, SpFault.RESET, SpFault.PARTITION),
    ),
    SpScenario(
        "sp-mesh",
        "layers of devices, each connected to all of the next layer; any of them may crash",
        (Shape.MESH,),
        (SpFault.CRASH_DEVICE, SpFault.CRASH_WORKER, SpFault.POWER_LOSS, SpFault.BLACK_HOLE),
    ),
    SpScenario(
        "sp-restart-devices",
        "devices keep restarting: backtraces become invalid, and resending recovers the calls",
        (Shape.CHAIN, Shape.MESH, Shape.LOOP),
        (SpFault.CRASH_DEVICE,),
        resends=True,
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-crash",
        "clients, workers and devices crash and come back",
        faults=(
            SpFault.CRASH_CLIENT,
            SpFault.CRASH_DEVICE,
            SpFault.CRASH_WORKER,
            SpFault.POWER_LOSS,
        ),
    ),
    SpScenario(
        "sp-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
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
        "slow readers cause back-pressure",
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
        "more requests than the workers can answer in time",
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
        "clients never resend: nothing runs twice, and the caller gets an error",
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
        "intruders send garbage, as clients and as workers",
        faults=(SpFault.INTRUDER,),
        fixed={"faults_per_s": 1.0},
    ),
    SpScenario(
        "sp-drain",
        "clients, workers and devices drain and come back",
        faults=(SpFault.DRAIN_CLIENT, SpFault.DRAIN_DEVICE, SpFault.DRAIN_WORKER),
    ),
    SpScenario("sp-swarm", "a random subset of all faults", faults=tuple(SpFault), swarm=True),
)
SP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}
