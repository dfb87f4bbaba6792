"""Feed the bodies of an asynchronous `map` from an iterable, asynchronous or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from itertools import islice
from typing import TypeAlias

from requite.client.call_arguments import CallBody, check_bodies
from requite.client.gate import Gate
from requite.client.window import Item, Window

Bodies: TypeAlias = Iterable[CallBody] | AsyncIterable[CallBody]


class Feed:
    """Makes a call of each body (by `ask`) while the window has room and the broker does not push
    back.

    A plain iterable is read in place. An asynchronous one may be slow while replies arrive, so one
    task reads all of it. `repeat` makes the call of an item that was deferred.
    """

    def __init__(
        self,
        bodies: Bodies,
        ask: Callable[[CallBody], None],
        repeat: Callable[[Item], None],
        gate: Gate,
    ) -> None:
        self._bodies = bodies
        if isinstance(bodies, AsyncIterable):
            self._plain = None
        else:
            check_bodies(bodies)
            self._plain = iter(bodies)
        self._ask = ask
        self._repeat = repeat
        self._gate = gate
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self.is_exhausted = False

    async def fill(self, window: Window, signal: asyncio.Event) -> None:
        """Make as many calls as the window has room for, or have the reading task make them."""
        for item in window.again():
            if not self._gate.is_open:
                await self._gate.passed()
            self._repeat(item)
        if self._plain is not None:
            await self._fill_from(self._plain, window)
        elif self._task is None:
            self._task = asyncio.create_task(self._follow(window, signal))
        elif self._task.done():
            self._task.result()  # raises what the iterable, or a body, raised
        elif window.room > 0:
            self._room.set()

    def stop(self) -> None:
        """Stop reading bodies."""
        if self._task is not None:
            self._task.cancel()

    async def _fill_from(self, bodies: Iterable[CallBody], window: Window) -> None:
        while (room := window.room) > 0 and not self.is_exhausted:
            made = 0
            for body in islice(bodies, room):
                if not self._gate.is_open:
                    await self._gate.passed()
                self._ask(body)
                made += 1
            self.is_exhausted = made < room

    async def _follow(self, window: Window, signal: asyncio.Event) -> None:
        assert isinstance(self._bodies, AsyncIterable)
        try:
            async for body in self._bodies:
                if not self._gate.is_open:
                    await self._gate.passed()
                self._ask(body)
                while window.room <= 0:
                    self._room.clear()
                    await self._room.wait()
            self.is_exhausted = True
        finally:
            signal.set()
