"""What goes wrong in the demo, when, and what comes of it.

Each fault strikes when a given share of the requests has been handed out, waits until the broker
shows its consequence, mends it, and waits until all workers are there again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from requite.cli.show.pattern import Fault
from requite.cli.show.traffic import RequestSource
from requite.testing.processes import ProcessFailed

if TYPE_CHECKING:
    from requite.client import AsyncClient

_SERVICE: Final = b"nearest"
_ASK_EVERY_S: Final = 0.02
_SETTLED_WITHIN_S: Final = 30.0
_FIRST_AT: Final = 0.05  # shares of the requests between which the faults are spread
_LAST_AT: Final = 0.9
T = TypeVar("T")
_FLOWING: Final = 300  # requests handed out after a pause until all workers are busy again


class Observer:
    """Asks the broker how it is, as `requite services` does."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._earlier_brokers = 0
        self.known_redelivered = 0  # as of the last look

    async def stats(self) -> dict[str, Any]:
        """Return the broker's account of the service."""
        reply = await self._client.call(_SERVICE, timeout=_SETTLED_WITHIN_S)
        services = json.loads(reply.body)["services"]
        return services[0] if services else {"workers": 0, "redelivered": 0}

    async def redelivered(self) -> int:
        """Return how many requests brokers have given to another worker, as far as is known."""
        self.known_redelivered = self._earlier_brokers + int((await self.stats())["redelivered"])
        return self.known_redelivered

    async def note_end_of_broker(self) -> None:
        """Keep the account of a broker that is about to be killed."""
        self._earlier_brokers = await self.redelivered()

    async def settled_redelivered(self) -> int:
        """Return the same, once it no longer changes."""
        before, now = -1, await self.redelivered()
        while before != now:
            await asyncio.sleep(_ASK_EVERY_S)
            before, now = now, await self.redelivered()
        return now

    async def wait_for_workers(self, is_right: Callable[[int], bool]) -> None:
        """Wait until the number of registered workers is right."""
        give_up_at = time.monotonic() + _SETTLED_WITHIN_S
        while not is_right(workers := (await self.stats())["workers"]):
            if time.monotonic() > give_up_at:
                raise ProcessFailed(
                    f"the broker still counts {workers} workers, which is not right"
                )
            await asyncio.sleep(_ASK_EVERY_S)


class Mishaps(Protocol):
    """What can go wrong, one at a time."""

    async def kill_worker(self) -> None: ...
    async def kill_broker(self) -> None: ...
    async def stop_worker(self) -> None: ...


class Amounts(Protocol):
    """How many faults of each kind there are."""

    @property
    def worker_kills(self) -> int: ...
    @property
    def broker_kills(self) -> int: ...
    @property
    def stops(self) -> int: ...


def plan(faults: Mishaps, amounts: Amounts) -> list[Fault]:
    """Return the faults in the order in which they strike: each kind spread over the whole."""
    return spread(
        (faults.kill_worker, amounts.worker_kills),
        (faults.kill_broker, amounts.broker_kills),
        (faults.stop_worker, amounts.stops),
    )


def spread(*kinds: tuple[T, int]) -> list[T]:
    """Return faults in the order in which they strike, so many of each kind."""
    placed = [((turn + 0.5) / n, fault) for fault, n in kinds for turn in range(n)]
    return [fault for _, fault in sorted(placed, key=lambda place: place[0])]


async def strike(faults: list[Fault], source: RequestSource, requests: int) -> None:
    """Let each fault strike in its turn, while requests up to the next one's turn go on."""
    at = milestones(len(faults), requests)
    for fault, (this, following) in zip(faults, pairwise([*at, requests]), strict=True):
        source.release(this)
        await source.reached(this)
        source.release(following)
        await source.reached(this + min(_FLOWING, (following - this) // 2))
        await fault()
    source.release(requests)


def milestones(faults: int, requests: int) -> list[int]:
    """Return how many requests have been handed out when each fault strikes."""
    step = (_LAST_AT - _FIRST_AT) / max(faults - 1, 1)
    return [round(requests * (_FIRST_AT + step * turn)) for turn in range(faults)]


def since(began: float) -> str:
    """Say how long ago that was."""
    return f"{time.monotonic() - began:.1f} s"


def count(requests: int) -> str:
    """Say how many."""
    return "1 request" if requests == 1 else f"{requests} requests"
