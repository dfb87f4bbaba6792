"""When faults are injected: each kind is spread over the whole run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from requite.cli.show.description import Action, Fault
from requite.cli.show.requests import RequestSource

_FIRST_AT: Final = 0.05  # shares of the requests between which the faults are spread
_LAST_AT: Final = 0.9
_SETTLING: Final = 300  # requests handed out after a pause until all workers are busy again


def order(faults: Sequence[Fault], options: Any) -> list[Action]:
    """Return all actions in order. `options` has the amount of each kind of fault."""
    amounts = [(fault, getattr(options, fault.amount)) for fault in faults if fault.amount]
    placed = [((turn + 0.5) / n, fault.actions) for fault, n in amounts for turn in range(n)]
    spread = [actions for _, actions in sorted(placed, key=lambda place: place[0])]
    middle = len(spread) // 2
    once = [fault.actions for fault in faults if fault.amount is None]
    return [*chain(*spread[:middle], *once, *spread[middle:])]


def milestones(faults: int, requests: int) -> list[int]:
    """Return how many requests are handed out when each fault is injected."""
    step = (_LAST_AT - _FIRST_AT) / max(faults - 1, 1)
    return [round(requests * (_FIRST_AT + step * turn)) for turn in range(faults)]


async def inject(faults: Sequence[Callable[[], Awaitable[None]]], source: RequestSource) -> None:
    """Inject each fault at its milestone; release requests up to the next one meanwhile."""
    at = milestones(len(faults), source.count)
    for fault, (this, following) in zip(faults, pairwise([*at, source.count]), strict=True):
        source.release(this)
        await source.reached(this)
        source.release(following)
        await source.reached(this + min(_SETTLING, (following - this) // 2))
        await fault()
    source.release(source.count)
