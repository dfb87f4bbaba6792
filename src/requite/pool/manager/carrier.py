"""What a manager has of wherever the requests of its pool are: RabbitMQ, or a broker of MDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from requite.pool.drivers.base import Driver
from requite.pool.manager.poison import PoisonQueue


class State(StrEnum):
    """How a manager stands there."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    ACTIVE = "active"
    CLOSED = "closed"


class Carrier(Protocol):
    """Keeps a manager where its pool is, and performs what the engine asks of it."""

    @property
    def state(self) -> State:
        """How the manager stands there."""
        ...

    @property
    def messages(self) -> Mapping[str, int]:
        """How many requests waited when that was last looked at, by key."""
        ...

    @property
    def flaws(self) -> Mapping[str, Sequence[str]]:
        """What was wrong with the queues when they were last looked at, by key."""
        ...

    async def start(self) -> None:
        """Begin. Raises `ConfigurationError` for what can never work."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    def guarded(self, driver: Driver) -> Driver:
        """Return the driver, for a manager that may not be the one that decides."""
        ...

    def perform(self, effect: Any) -> None:
        """Begin to do what the engine asks for."""
        ...

    async def tell_to_drain(self, key: str) -> None:
        """Tell the workers of a group to drain, if that can be."""
        ...

    async def drain_workers(self, key: str | None, worker_id: str | None) -> bool:
        """Tell workers to drain; tell whether any is there. Raises what the connection fails with,
        and `ConfigurationError` where nobody can tell them."""
        ...

    async def check(self) -> dict[str, str]:
        """Really look: return what is wrong, by what it is wrong with."""
        ...

    def poison(self) -> PoisonQueue:
        """Return the queue of requests that killed their workers. Raises `ConnectionError`, and
        `ConfigurationError` where none is kept."""
        ...
