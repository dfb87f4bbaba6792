"""What its URLs make of a client: which engine, on which wires, and what the protocol can do.

One module per protocol, one row in `_HOME`, and one in `requite.url` for its scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final, NamedTuple, Protocol

from requite.chronicle import Chronicle
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Engine
from requite.errors import CallError, ConfigurationError
from requite.reach import Reach
from requite.request import RetryPolicy
from requite.shell.wires import Wires


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a user may set on a client, as it was given; None: not given."""

    retry: RetryPolicy | None
    slots: int
    heartbeat: HeartbeatPolicy | float | None
    dialect: str | None
    connections: int
    message_size_max: int
    hold_back: float = 0.0


class Abilities(Protocol):
    """What a protocol can promise for a call; what it cannot is refused, never dropped."""

    def check(self, *, key: bytes, partials: bool, idempotent: bool) -> None:
        """Raise `ConfigurationError` for what is asked of a call and cannot be had."""

    def check_service(self, service: str) -> None:
        """Raise `ConfigurationError` for a name that no service can have ("": none is named)."""

    def check_frames(self, count: int) -> None:
        """Raise `ConfigurationError` for a body of so many frames that peers do not take it."""


class CallEngine(Engine, Protocol):
    """The engine of a client."""

    def forsake(self, error: CallError, now: float) -> None:
        """Tell the journal that all calls have ended with `error`, because this engine, which must
        not be used any more, was given up."""


class Stack(NamedTuple):
    """A protocol made ready for one client. Each has a fresh engine, and may be made again.

    `make_engine(origin, chronicle)`: `origin` is the first half of its call ids (8 bytes, random).
    `holds`: while all peers push back the engine keeps calls itself, and need not be spared them.
    """

    make_engine: Callable[[bytes, Chronicle | None], CallEngine]
    wires: Wires
    abilities: Abilities
    holds: bool = False


_HOME: Final = {
    "mdp": "requite.client.majordomo",
    "sp": "requite.client.scalability",
    "flp": "requite.client.freelance",
    "pirate": "requite.client.pirate",
    "amqp": "requite.client.amqp",
}


def stack_for(reach: Reach, settings: ClientSettings) -> Stack:
    """Make the stack that URLs stand for. Raises `ConfigurationError` for what cannot work."""
    if not isinstance(settings.retry, RetryPolicy | None):
        raise ConfigurationError(
            f"retry is a RetryPolicy, not {settings.retry!r}: RetryPolicy(attempts=...)"
        )
    if settings.hold_back and reach.protocol != "mdp":
        raise ConfigurationError(
            f"hold_back needs a broker that ends calls and says how: MDP 0.3 has one, not {reach}"
        )
    make: Callable[[Reach, ClientSettings], Stack] = import_module(_HOME[reach.protocol]).stack
    return make(reach, settings)
