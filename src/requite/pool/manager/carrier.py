"""`Carrier`: the interface of a pool manager to RabbitMQ, or to a broker of MDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from requite.pool.drivers.base import Driver
from requite.pool.manager.poison import PoisonQueue


class State(StrEnum):
    """The state of a manager at RabbitMQ or at the broker."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    ACTIVE = "active"
    CLOSED = "closed"


class Carrier(Protocol):
    """Keeps a manager connected, and performs the effects of its engine."""

    @property
    def state(self) -> State:
        """The state of the manager."""
        ...

    @property
    def messages(self) -> Mapping[str, int]:
        """The number of waiting requests at the last listing, by key."""
        ...

    @property
    def flaws(self) -> Mapping[str, Sequence[str]]:
        """Faults of the request queues at the last listing, by key."""
        ...

    async def start(self) -> None:
        """Connect, and keep trying. Raises `ConfigurationError` for settings that cannot work."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...

    def guarded(self, driver: Driver) -> Driver:
        """Return a driver that acts only while this manager is active."""
        ...

    def perform(self, effect: Any) -> None:
        """Start to perform an effect; its result is fed to the engine."""
        ...

    async def tell_to_drain(self, key: str) -> None:
        """Ask the workers of a group to drain; failures are ignored."""
        ...

    async def drain_workers(self, key: str | None, worker_id: str | None) -> bool:
        """Ask workers to drain; return whether any received it.

        Raises the errors of the connection, and `ConfigurationError` at a broker of MDP, which
        cannot pass it on.
        """
        ...

    async def check(self) -> dict[str, str]:
        """Test the connection now; return faults by component."""
        ...

    def poison(self) -> PoisonQueue:
        """Return the queue of poisoned requests.

        Raises `ConnectionError`, and `ConfigurationError` at a broker of MDP, which keeps none.
        """
        ...
