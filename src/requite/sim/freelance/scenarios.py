"""Scenarios of the Freelance pattern; draws the knobs of a run from its seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from requite.protocols.freelance.wire import Model
from requite.sim.freelance.knobs import FlpClientSpec, FlpServerSpec, FreelanceKnobs
from requite.sim.kernel.drawing import CALM, FAULTS, WORK, Choices, Draw, always, between, one_of
from requite.sim.kernel.faults import FaultKind
from requite.sim.kernel.knobs import ANSWERING, Behaviour, Scenario, partitions, usual

_DEATHS: Final = (FaultKind.CRASH_CLIENT, FaultKind.CRASH_SERVER, FaultKind.POWER_LOSS)


_LIST: Final = (
    Scenario(
        "flp-calm",
        "requests and replies without faults: each call takes one attempt",
        behaviours=ANSWERING,
        fixed=CALM
        | {
            "network.buffer_size": 1 << 20,
            "ping_s": 2.0,
            "liveness": 3,
            "clients.slots": 1024,
            "clients.attempt_s": 50.0,
            "lossless": True,
        },
    ),
    Scenario(
        "flp-failover",
        "model one; clients and servers crash",
        _DEATHS,
        fixed={"model": Model.FAILOVER},
    ),
    Scenario(
        "flp-shotgun",
        "model two; clients and servers crash",
        _DEATHS,
        fixed={"model": Model.SHOTGUN},
    ),
    Scenario(
        "flp-late",
        "model two; deadlines pass while clients and servers crash",
        _DEATHS,
        fixed={
            "model": Model.SHOTGUN,
            "calls": 200,
            "faults_per_s": 1.0,
            "service_s": 0.1,
            "timeout_s": 0.2,
        },
    ),
    Scenario(
        "flp-agent", "model three; clients and servers crash", _DEATHS, fixed={"model": Model.AGENT}
    ),
    Scenario(
        "flp-standstill",
        "clients and servers freeze for a while, and resume",
        faults=(FaultKind.FREEZE_CLIENT, FaultKind.FREEZE_SERVER),
    ),
    partitions("flp"),
    Scenario(
        "flp-overload",
        "more requests than the servers can answer in time",
        faults=(FaultKind.CLOG, FaultKind.RESET),
        behaviours=(Behaviour.ECHO,),
        fixed={
            "calls": 250,
            "service_s": 0.3,
            "timeout_s": 3.0,
            "bursts_p": 0.9,
            "servers.capacity": 1,
            "servers.queue_max": 4,
            "network.buffer_size": 2 << 10,
        },
    ),
    Scenario(
        "flp-once",
        "requests that are not idempotent: none is sent twice, and the caller gets an error",
        choices={"model": one_of(Model.FAILOVER, Model.AGENT)},
        faults=(
            FaultKind.CRASH_SERVER,
            FaultKind.RESET,
            FaultKind.BLACK_HOLE,
            FaultKind.FREEZE_SERVER,
        ),
        fixed={"idempotent_p": 0.1},
    ),
    *usual("flp", "client", "server"),
)
FLP_SCENARIOS: Final = {scenario.name: scenario for scenario in _LIST}


# --- drawing --------------------------------------------------------------------------------------
_KNOBS: Final[Choices] = {
    **WORK,
    **FAULTS,
    "calls": between(60, 160),
    "faulty_s": between(6.0, 20.0),
    "ping_s": one_of(0.3, 1.0, 2.0),
    "liveness": one_of(2, 3),
    "output_size_max": one_of(100_000, 1 << 20, 64 << 20),
    "lossless": always(False),
}
_SERVER: Final[Choices] = {"capacity": one_of(1, 2, 16), "queue_max": one_of(1, 8, 1024)}


def draw(seed: int, scenario: Scenario) -> FreelanceKnobs:
    """Draw the knobs of a run. The same seed and scenario always give the same knobs."""
    luck = Draw(seed, "flp", scenario)
    model: Model = luck.one("model", one_of(*Model))
    servers = luck.cast(FlpServerSpec, "server", between(1, 4), _SERVER)
    choices = _client(model, [server.name for server in servers])
    drawn = luck.knobs(_KNOBS)
    if model is Model.SHOTGUN:  # it refuses requests that are not idempotent
        drawn["idempotent_p"] = 1.0
    return FreelanceKnobs(
        **drawn,
        **luck.calls(),
        model=model,
        servers=servers,
        clients=luck.cast(FlpClientSpec, "client", between(1, 3), choices),
    )


def _client(model: Model, servers: Sequence[str]) -> Choices:
    """Return the choices of a client; in model one, connections and time limits are its own."""
    is_failover = model is Model.FAILOVER
    limits = (0.3, 1.0, 3.0)
    return {
        "servers": lambda rng: tuple(rng.sample(servers, len(servers))),
        "lanes": one_of(1, 2, 4) if is_failover else always(1),
        "slots": one_of(4, 1024, 1024),
        "attempt_s": one_of(*limits) if is_failover else one_of(*limits, *[None] * 7),
        "attempts": one_of(1, 3, 3, len(servers) + 2),
    }
