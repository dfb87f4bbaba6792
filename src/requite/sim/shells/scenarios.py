"""The scenarios of the real shells, and how the knobs of a run are drawn from its seed.

Each knob has a random generator of its own, so a new knob does not change the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from requite.sim.kernel.drawing import FAULTS, WORK, Choices, Draw, always, between, one_of, weight
from requite.sim.kernel.faults import LINKS, FaultKind, faults_of
from requite.sim.kernel.knobs import Behaviour, Scenario
from requite.sim.shells.knobs import (
    MIDDLE,
    Handler,
    ShellClientSpec,
    ShellKnobs,
    ShellWorkerSpec,
    Transport,
)

# Runs of a replicating broker and of a pool have scenarios of their own, with other ends.
_ALONE: Final = (Transport.REPLICA, Transport.POOL)
_USUAL: Final = tuple(each for each in Transport if each not in _ALONE)


@dataclass(frozen=True, slots=True)
class ShellScenario(Scenario):
    """A scenario. `transports`: a run draws one."""

    transports: tuple[Transport, ...] = _USUAL


_DEATHS: Final = (
    FaultKind.CRASH_CLIENT,
    FaultKind.CRASH_MIDDLE,
    FaultKind.CRASH_WORKER,
    FaultKind.POWER_LOSS,
)
_PAUSES: Final = (FaultKind.FREEZE_CLIENT, FaultKind.FREEZE_MIDDLE, FaultKind.FREEZE_WORKER)
_DRAINS: Final = (FaultKind.DRAIN_CLIENT, FaultKind.DRAIN_MIDDLE, FaultKind.DRAIN_WORKER)
_QUIET: Final = {
    "network.jitter_s": 0.0,
    "network.spike_p": 0.0,
    "network.buffer_size": 1 << 20,
    "big_p": 0.0,
    "cancel_p": 0.0,
    "timeout_s": 60.0,
    "service_s": 0.005,
    "interval_s": 1.0,
    "liveness": 3,
    "clients.slots": 1024,
    "clients.attempt_timeout_s": None,
    "lossless": True,
}
_LIST: Final = (
    ShellScenario(
        "shells-calm",
        "requests and replies without faults: each call is answered",
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed=_QUIET,
    ),
    ShellScenario("shells-deaths", "processes are killed, and machines lose power", faults=_DEATHS),
    ShellScenario("shells-standstill", "processes freeze for a while, and resume", faults=_PAUSES),
    ShellScenario(
        "shells-partitions",
        "the network is cut or congested; connections are reset or silently dropped",
        faults=LINKS,
    ),
    ShellScenario("shells-drain", "processes drain after SIGTERM, and come back", faults=_DRAINS),
    ShellScenario(
        "shells-pair",
        "two brokers, one of them active; it is killed, frozen or drained",
        transports=(Transport.PAIR,),
        faults=(FaultKind.CRASH_MIDDLE, FaultKind.FREEZE_MIDDLE, FaultKind.DRAIN_MIDDLE),
    ),
    ShellScenario(
        "shells-titanic",
        "durable requests, while brokers, Titanics and workers crash or freeze",
        transports=(Transport.TITANIC,),
        faults=(*_DEATHS, FaultKind.FREEZE_MIDDLE, FaultKind.DRAIN_MIDDLE),
    ),
    ShellScenario(
        "shells-replica",
        "durable requests; at the end the broker is lost for good, and its replica has them",
        transports=(Transport.REPLICA,),
        faults=(*_DEATHS, FaultKind.FREEZE_MIDDLE, FaultKind.PARTITION, FaultKind.RESET),
    ),
    ShellScenario(
        "shells-pool-calm",
        "managers start and stop groups of workers at a broker; each call is answered",
        transports=(Transport.POOL,),
        behaviours=(Behaviour.ECHO, Behaviour.STREAM),
        fixed=_QUIET,
    ),
    ShellScenario(
        "shells-pool",
        "a pool whose managers, workers and broker crash, freeze, drain and are cut off",
        transports=(Transport.POOL,),
        faults=(*_DEATHS, *_PAUSES, *_DRAINS, FaultKind.PARTITION, FaultKind.RESET),
    ),
    ShellScenario(
        "shells-swarm",
        "a random subset of all faults",
        faults=faults_of("client", "middle", "worker"),
        swarm=True,
    ),
)
SHELL_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    **WORK,
    **FAULTS,
    "calls": between(40, 120),
    "faulty_s": between(4.0, 15.0),
    "interval_s": one_of(0.3, 1.0, 2.5),
    "liveness": one_of(2, 3),
    "attempts_max": one_of(1, 3, 10),
    "service_grace_s": one_of(0.5, 5.0),
    "drain_timeout_s": one_of(0.5, 3.0),
    "unused_s": one_of(1.0, 3.0, 10.0),
    "lossless": always(False),
}
_CLIENT: Final[Choices] = {
    "slots": one_of(4, 1024, 1024),
    "tries": one_of(1, 3, 3, 5),
    "attempt_timeout_s": one_of(0.5, 2.5),
}
_WORKER: Final[Choices] = {
    "capacity": one_of(1, 2, 16),
    "handler": one_of(Handler.COROUTINE, Handler.FUNCTION),
}


def draw(seed: int, scenario: ShellScenario) -> ShellKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "shells", scenario)
    transport: Transport = luck.one("transport", one_of(*scenario.transports))
    is_live = transport in (Transport.BROKER, Transport.PAIR, Transport.POOL)
    behaviours = tuple(_behaviours(scenario, transport, is_live))
    drawn = luck.knobs(_KNOBS)
    if not is_live:
        drawn["endless_p"] = 0.0
    if transport is Transport.POOL:  # a request waits until its group has been started
        drawn["service_grace_s"] *= 10
    if not (is_live or transport is Transport.FREELANCE):
        drawn["idempotent_p"] = 1.0
    faults = luck.faults()
    if not MIDDLE[transport]:
        faults = tuple(fault for fault in faults if not fault.endswith("-middle"))
    clients = luck.specs("client", between(1, 3), _CLIENT)
    workers = luck.specs("worker", between(1, 3), _WORKER)
    return ShellKnobs(
        **drawn,
        transport=transport,
        faults=faults,
        behaviours=behaviours,
        weights=luck.weights(behaviours, weight),
        pace=luck.pace(),
        network=luck.network(),
        clients=tuple(ShellClientSpec(name, **knobs) for name, knobs in clients.items()),
        workers=tuple(ShellWorkerSpec(name, **knobs) for name, knobs in workers.items()),
    )


def _behaviours(
    scenario: ShellScenario, transport: Transport, is_live: bool
) -> Iterator[Behaviour]:
    """Yield the behaviours that a transport can have."""
    # A Titanic retries a request that fails or kills its worker without limit.
    never = (Behaviour.STREAM, Behaviour.FAIL, Behaviour.POISON)
    is_durable = transport in (Transport.TITANIC, Transport.REPLICA)
    left_out = never if is_durable else () if is_live else (Behaviour.STREAM,)
    return (each for each in scenario.behaviours if each not in left_out)
