"""Scripts about Majordomo: see `requite.sim.kernel.script`.

    broker interval_s=1 attempts_max=2       knobs by name
    worker w1 echo version=0.2               a name, its service, and fields of `WorkerSpec`
    client c tries=1                         a name, and fields of `ClientSpec`
    stranger s version=0.3
    0.1 c calls echo slow service_s=0.5      a service, a behaviour, and fields of `CallPlan`
    0.4 s says ready(b"echo", 1, 1000, 0)    a command of its dialect

With a line `heartbeats`, the transcript includes heartbeats.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.framing import SocketType, Zmtp
from requite.protocols.majordomo import wire
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.policy import PartialsFor01
from requite.sim.kernel.script import QUIET, SEED, Form, Words, of_kind, read_call, settings
from requite.sim.kernel.stranger import Stranger
from requite.sim.majordomo import scenarios
from requite.sim.majordomo.knobs import ClientSpec, Knobs, WorkerSpec
from requite.sim.majordomo.parties import BROKER
from requite.sim.majordomo.simulation import MajordomoSimulation

_QUIET: Final[dict[str, Any]] = QUIET | {
    "interval_s": 1.0,
    "liveness": 3,
    "attempts_max": 3,
    "service_grace_s": 2.0,
    "service_ttl_s": 10.0,
    "services_max": 100,
    "queue_max": 100,
    "client_pending_max": 100,
    "tell_old_clients": False,
    "partials_for_0_1": PartialsFor01.JOIN,
    "drain_timeout_s": 5.0,
    "handover": True,
}

_COMMANDS: Final[dict[str, Any]] = {
    "client_request": wire.ClientRequest,
    "client_cancel": wire.ClientCancel,
    "client_heartbeat": wire.ClientHeartbeat,
    "client_partial": wire.ClientPartial,
    "client_final": wire.ClientFinal,
    "ready": wire.Ready,
    "worker_request": wire.WorkerRequest,
    "worker_partial": wire.WorkerPartial,
    "worker_final": wire.WorkerFinal,
    "worker_heartbeat": wire.WorkerHeartbeat,
    "disconnect": wire.Disconnect,
    "progress": wire.Progress,
    "drain": wire.DrainNotice,
    "worker_cancel": wire.WorkerCancel,
}


def _knobs(cast: Sequence[Words]) -> Knobs:
    workers = []
    for name, service, *rest in of_kind(cast, "worker"):
        workers.append(WorkerSpec(name, service, **_with_version(rest)))
    clients = []
    for name, *rest in of_kind(cast, "client"):
        clients.append(ClientSpec(name, first_sequence=0, **_with_version(rest)))
    knobs = replace(
        scenarios.draw(SEED, scenarios.MDP_SCENARIOS["calm"]),
        clients=tuple(clients),
        workers=tuple(workers),
        **_QUIET,
    )
    return replace(knobs, **settings(word for line in of_kind(cast, "broker") for word in line))


def _with_version(words: Iterable[str]) -> dict[str, Any]:
    """Read settings; a version looks like a number, but is text."""
    given = {"version": "0.3"} | settings(words)
    return given | {"version": str(given["version"])}


def _read_call(words: Words) -> dict[str, Any]:
    service, *rest = words
    return {"service": service, **read_call(rest)}


def _strangers(cast: Sequence[Words], stage: Any) -> list[Stranger]:
    framing = partial(Zmtp, SocketType.DEALER)
    return [
        Stranger(name, BROKER, stage, framing, partial(_read_command, **_with_version(rest)))
        for name, *rest in of_kind(cast, "stranger")
    ]


def _read_command(command: str, version: str) -> list[bytes]:
    """Read a command, such as `disconnect()`: its name in `_COMMANDS`, and its fields."""
    call = ast.parse(command, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ConfigurationError(f"{command!r} is not a command of a dialect")
    kind = _COMMANDS.get(call.func.id)
    if kind is None:
        raise ConfigurationError(
            f"{call.func.id!r} is not a command; the commands are {', '.join(_COMMANDS)}"
        )
    message: list[bytes] = by_version(version).encode(kind(*map(ast.literal_eval, call.args)))
    return message


SCRIPT: Final = Form(MajordomoSimulation, _knobs, _read_call, _strangers)
