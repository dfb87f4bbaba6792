"""What goes wrong with a pool in the demo, and what its manager makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any, Final

from requite.cli.show.faults import count, since
from requite.cli.show.groups import Group
from requite.cli.show.pattern import Flow
from requite.cli.show.pool_stage import PoolStage
from requite.cli.show.screen import Screen
from requite.errors import TransportError
from requite.testing.processes import ProcessFailed, State

_WITHIN_S: Final = 100.0
_LOOK_EVERY_S: Final = 0.02
_ENOUGH: Final = 50  # answers after which a pool is seen to go on without its manager
_WITHOUT_S: Final = 2.0  # how long they are waited for: groups may be missing that nobody starts
_STOPPED_S: Final = 1.0
_SETTLED_S: Final = 2.0  # twice as long as RabbitMQ 3.10 takes to write down a new queue


class Upsets:
    """Kills, stops and restarts what a pool consists of while the requests go on."""

    def __init__(self, pool: PoolStage, screen: Screen, flow: Flow) -> None:
        self._pool = pool
        self._screen = screen
        self._flow = flow
        self._victims = cycle(pool.steady)
        self._settled, self._settled_at = -1, 0.0  # the pool's state, and since when it is as it is

    async def kill_worker(self) -> None:
        """SIGKILL a worker with requests in its hands; the manager starts its successor."""
        group = await self._next_victim()
        before = group.worker
        group.kill()
        self._pool.worker_kills += 1
        self._screen.note(f"worker of {group.key} killed (SIGKILL): RabbitMQ keeps its requests")
        began = time.monotonic()
        await self._until(lambda: group.pid and group.worker != before, f"a worker of {group.key}")
        told = f"worker of {group.key} started anew by the manager {since(began)} later"
        answers = self._pool.answers[group.key]  # those of the former one have come by now
        await self._until(
            lambda: self._pool.answers[group.key] > answers or not self._flow.outstanding,
            f"an answer of {group.key}",
        )
        self._screen.note(f"{told}, answers after {since(began)}")

    async def stop_worker(self) -> None:
        """SIGSTOP one for a while: its connection stays up, yet it does nothing."""
        group = await self._next_victim()
        group.stop()
        began = time.monotonic()
        await asyncio.sleep(_STOPPED_S)
        group.resume()
        self._screen.note(
            f"worker of {group.key} stopped (SIGSTOP) for {since(began)}, resumed (SIGCONT)"
        )
        await self._flow.goes_on(1)

    async def kill_manager(self) -> None:
        """SIGKILL the manager: groups that are there serve on. Then start its successor."""
        self._pool.kill_manager()
        self._screen.note("manager killed (SIGKILL): workers and RabbitMQ go on")
        began, goal = time.monotonic(), self._flow.ended + _ENOUGH
        while time.monotonic() < began + _WITHOUT_S and self._flow.outstanding:
            if self._flow.ended >= goal:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        answers = self._flow.ended - goal + _ENOUGH
        self._screen.note(f"{answers} answers without it within {since(began)}")
        await self._pool.restart_manager()
        self._screen.note(f"manager started anew, it decides {since(began)} after the kill")
        await self._flow.goes_on(1)

    async def kill_rabbit(self) -> None:
        """SIGKILL RabbitMQ and start it again: everybody connects again, clients send again."""
        if self._settled != await self._generation():
            await self.settle()  # a group has come or gone meanwhile
        await self._pool.kill_rabbit()
        self._screen.note(f"RabbitMQ killed (SIGKILL), {count(self._flow.outstanding)} out")
        began = time.monotonic()
        await self._pool.restart_rabbit()
        self._screen.note(f"RabbitMQ started anew {since(began)} later")
        await self._eventually(self._is_managed, "an active manager")
        await self._flow.goes_on(1)
        self._screen.note(f"manager active, and answers again, {since(began)} after the kill")

    async def settle(self) -> None:
        """Wait until no queue was made for a while, so that RabbitMQ has all of them after a kill.

        RabbitMQ 3.10 writes the name of a new quorum queue down a second later (`RabbitServer`).
        """
        await self._eventually(self._is_settled, "a pool in which no group comes or goes")
        self._screen.note(f"no queue was made for {_SETTLED_S:g} s: RabbitMQ has all names")

    async def doze(self) -> None:
        """Wait until a group that nobody asks for has gone: its worker, and its queue."""
        group = self._pool.groups[self._pool.sleeper]
        await self._until(lambda: self._pool.answers[group.key], f"an answer of {group.key}")
        began = time.monotonic()
        await self._eventually(self._is_asleep, f"the end of the idle group of {group.key}")
        self._pool.woke_after_s = None
        self._screen.note(
            f"nobody asks for {group.key}: its worker was stopped, its queue deleted"
            f" ({since(began)} waited)"
        )

    async def wake(self) -> None:
        """Wait for the first answer of that group after its sleep."""
        pool, key = self._pool, self._pool.sleeper
        await self._until(
            lambda: pool.woke_after_s is not None or not self._flow.outstanding,
            f"an answer of {key}",
        )
        if pool.woke_after_s is not None:
            told = f"group of {key} started again by a request"
            self._screen.note(f"{told}, which was answered after {pool.woke_after_s:.1f} s")

    # --- inside -----------------------------------------------------------------------------------
    async def _next_victim(self) -> Group:
        """Return the next steady group, whose worker serves; one that has none is required."""
        group = self._pool.groups[next(self._victims)]
        await self._until(
            lambda: self._pool.answers[group.key] or not self._flow.outstanding,
            f"an answer of {group.key}",
        )
        if not group.pid:
            await self._pool.require_group(group.key)
        await self._until(lambda: group.pid and group.state is State.RUNNING, "a worker to kill")
        return group

    async def _generation(self) -> int:
        """Return what the pool's state is called now."""
        return int((await self._pool.status())["generation"])

    async def _is_settled(self) -> bool:
        """Tell whether each group that there is has its queue, and nothing has changed for a while
        before."""
        status, now = await self._pool.status(), time.monotonic()
        generation = int(status["generation"])
        is_whole = status["state"] == "active" and all(map(_has_queue, status["groups"]))
        if generation != self._settled or not is_whole:
            self._settled, self._settled_at = generation, now
        return now - self._settled_at >= _SETTLED_S

    async def _is_managed(self) -> bool:
        return bool((await self._pool.status())["state"] == "active")

    async def _is_asleep(self) -> bool:
        key = self._pool.sleeper
        rows = (await self._pool.status())["groups"]
        return all(row["key"] != key for row in rows) and not self._pool.groups[key].pid

    async def _until(self, look: Callable[[], object], what: str) -> None:
        async def ask() -> bool:
            return bool(look())

        await self._eventually(ask, what)

    async def _eventually(self, ask: Callable[[], Awaitable[bool]], what: str) -> None:
        give_up_at = time.monotonic() + _WITHIN_S
        while not await _answer(ask):
            if time.monotonic() > give_up_at:
                raise ProcessFailed(f"{what}: not within {_WITHIN_S:.0f} s")
            await asyncio.sleep(_LOOK_EVERY_S)


async def _answer(ask: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await ask()
    except TransportError:  # a manager that is about to be there
        return False


def _has_queue(row: dict[str, Any]) -> bool:
    """Whether a group's queue is there, and not about to be deleted."""
    return row["expected"] is not None and row["queue"] in ("bound", "unbound")
