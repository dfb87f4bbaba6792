"""What its URLs make of a worker: which engines, on which wires.

One module per protocol, one row in `_HOME`, and one in `requite.url` for its scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from requite.chronicle import Chronicle
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Engine
from requite.errors import ConfigurationError
from requite.reach import Reach
from requite.shell.wires import Wires
from requite.transport.address import Address
from requite.worker.handler import Service
from requite.worker.standing import PATIENCE_S

# Enough for the next request to be here when one is answered, on any network where that matters.
CAPACITY_DEFAULT: Final = 16


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a user may set on a worker, as it was given; None: not given.

    `name` is what journals call the worker, and `chronicle` where its engines write for them.
    """

    capacity: int | None
    heartbeat: HeartbeatPolicy | float | None
    handler_timeout: float | None
    threads: int | None
    dialect: str | None
    hops: int | None
    message_size_max: int
    name: bytes
    chronicle: Chronicle | None


class WorkEngine(Engine, Protocol):
    """The engine of a worker."""

    @property
    def is_answered(self) -> bool:
        """Whether the far end has answered since the connection stands, or need not."""

    def tell_beginnings(self, now: float) -> None:
        """Let the journal, if one is kept, have the beginnings of what is under way."""


def _take_note(_addresses: Sequence[Address]) -> None:
    """Do nothing: most do not care by which address they are known."""


def _no_call_id(_token: Any) -> bytes:
    """Know of no call ids."""
    return b""


class Unanswered(NamedTuple):
    """What to say of a far end that does not answer, and how long it may take to.

    `text` follows the address that is connected: "has not answered READY".
    """

    text: str = ""
    patience_s: float = PATIENCE_S


class Part(NamedTuple):
    """One service of a worker, ready to be served: the engine and the wires it has for itself.

    At most `capacity` of its requests are in hand at a time, and `threads` calls of a handler that
    is a plain function run. A reply has at most `frames_max` frames. `holds`: the engine keeps
    partial replies itself, and need not be spared them while a peer pushes back. `bound` is told
    where it listens, with the ports it really got. `call_id` tells by the token of a request which
    call of its client it is, the same for all its tries (empty: nobody knows). `unanswered` is for
    engines whose far end has to answer before requests come.
    """

    service: Service
    engine: WorkEngine
    wires: Wires
    capacity: int
    threads: int
    frames_max: int
    holds: bool = False
    bound: Callable[[Sequence[Address]], object] = _take_note
    call_id: Callable[[Any], bytes] = _no_call_id
    unanswered: Unanswered = Unanswered()


_HOME: Final = {
    "mdp": "requite.worker.majordomo",
    "sp": "requite.worker.scalability",
    "flp": "requite.worker.freelance",
    "pirate": "requite.worker.pirate",
    "amqp": "requite.worker.amqp",
}


def parts_for(reach: Reach, services: Sequence[Service], settings: WorkerSettings) -> list[Part]:
    """Make the parts of a worker. Raises `ConfigurationError` for what cannot work."""
    make: Callable[[Reach, Sequence[Service], WorkerSettings], list[Part]]
    make = import_module(_HOME[reach.protocol]).parts
    parts = make(reach, _check(services), settings)
    for part in parts:
        _check_keys(part, reach.protocol)
    return parts


def _check_keys(part: Part, protocol: str) -> None:
    """Refuse a service all of whose requests would be refused."""
    dedup = part.service.idempotent
    if dedup is not None and dedup.refuses_unkeyed and part.call_id is _no_call_id:
        raise ConfigurationError(
            f"{part.service.name!r} runs each request once, and nothing tells requests apart in"
            f" {protocol.upper()} (MDP 0.3 has what it takes); or let them run each time:"
            ' Dedup(unkeyed="run")'
        )


def _check(services: Sequence[Service]) -> Sequence[Service]:
    if not services:
        raise ConfigurationError("a worker needs at least one service")
    for each in services:
        if not isinstance(each, Service):
            raise ConfigurationError(f"{each!r} is no service: decorate it with @service('name')")
    names = [each.name for each in services]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"each service of a worker needs a name of its own: {names}")
    return services
