"""Broken shells around intact engines.

Each breaks what only a shell has: timers, tasks, time-outs, cancellation, signals or threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from tests.sim.parts import with_part

from requite.broker import Broker
from requite.client.aio import AsyncClient
from requite.engine import Cancel
from requite.errors import CallError, CallTimeout, NoService, TransportError
from requite.pool.effects import StartGroup, StopGroup
from requite.pool.inputs import ServicesListed
from requite.pool.manager.manager import PoolManager
from requite.queue.queue import Queue
from requite.request import Partial, Reply
from requite.shell.aio import AioShell
from requite.shell.aio_dialler import Dialler
from requite.titanic.settings import TitanicSettings
from requite.titanic.titanic import Titanic
from requite.transport.aio import dial
from requite.worker.runner import Runner
from requite.worker.worker import Worker


# --- clients --------------------------------------------------------------------------------------
class _Deaf(AioShell):
    def _wake(self) -> None:
        self._timer = None


IgnoresItsTimer = with_part(AsyncClient, "_shell", _Deaf)
IgnoresItsTimer.__name__ = "IgnoresItsTimer"


class _GivesUp(Dialler):
    """Dials only once."""

    async def _dial(self) -> None:
        address = self._addresses.current
        try:
            timeout_s = self._addresses.timeout_s()
            await dial(address, lambda stream: self._dialled(address, stream), timeout_s)
        except TransportError as error:
            self._addresses.failed(address, error)


def _with_dialler(kind: type[Dialler]) -> Callable[..., AsyncClient]:
    class Broken(AsyncClient):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            for dialler in self._shell._keeper:
                dialler.__class__ = kind

    Broken.__name__ = kind.__name__.strip("_")
    return Broken


GivesUp = _with_dialler(_GivesUp)


class KeepsItsTimer(AsyncClient):
    """Leaves the engine's timer running."""

    async def close(self) -> None:
        """Close, then set the timer again."""
        shell = self._shell
        await super().close()
        if self._loop is not None:
            self._loop.call_later(60.0, shell.host.wake)


class HandsOutTheLast(AsyncClient):
    """Gives each caller the previous reply."""

    last: Reply | None = None

    async def call(self, *args: Any, **given: Any) -> Reply:
        """Return the reply to the previous call."""
        reply = await super().call(*args, **given)
        given_out, self.last = self.last or reply, reply
        return given_out


class EndsLate(AsyncClient):
    """Reports a timeout 5 s late."""

    async def call(self, *args: Any, **given: Any) -> Reply:
        """Call; delay `CallTimeout` by 5 s."""
        try:
            return await super().call(*args, **given)
        except CallTimeout:
            await asyncio.sleep(5.0)
            raise


class RepeatsAnything(AsyncClient):
    """Repeats a failed call, even if it may have run."""

    async def call(self, *args: Any, **given: Any) -> Reply:
        """Call; on an error, call again."""
        try:
            return await super().call(*args, **given)
        except CallError:
            return await super().call(*args, **given)


class SkipsPartials(AsyncClient):
    """Drops the first partial reply."""

    async def stream(self, *args: Any, **given: Any) -> AsyncIterator[Partial | Reply]:  # type: ignore[override]
        """Yield all replies but the first partial one."""
        async for reply in super().stream(*args, **given):
            if isinstance(reply, Reply) or reply.index:
                yield reply


class SaysItHasNotRun(AsyncClient):
    """Reports a timed-out call as not executed."""

    async def call(self, *args: Any, **given: Any) -> Reply:
        """Call; replace `CallTimeout` by `NoService`."""
        try:
            return await super().call(*args, **given)
        except CallTimeout as error:
            raise NoService(str(error), may_have_executed=False) from error


class SaysItWasNotStored(AsyncClient):
    """Reports a failed submission of a durable request as not executed."""

    async def submit(self, *args: Any, **given: Any) -> str:
        """Submit; an error says that the request has not run."""
        try:
            return await super().submit(*args, **given)
        except CallError as error:
            error.may_have_executed = False
            raise


class NeverCancels(AsyncClient):
    """Ignores cancellation by the user."""

    async def call(self, *args: Any, **given: Any) -> Reply:
        """Call without passing a cancellation on."""
        task = asyncio.ensure_future(super().call(*args, **given))
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                await asyncio.get_running_loop().create_future()
        return task.result()


class FailsWhenCancelled(AsyncClient):
    """Raises in a callback when a call is cancelled."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        submit = self._submit

        def failing(event: Any) -> None:
            if isinstance(event, Cancel):
                asyncio.get_running_loop().call_soon(_fail)
            submit(event)

        self._submit = failing


def _fail() -> None:
    raise RuntimeError("a callback fails")


# --- workers --------------------------------------------------------------------------------------
def _with_runner(kind: type[Runner]) -> Callable[..., Worker]:
    class Broken(Worker):
        def _make_runtimes(self) -> Any:
            runtimes = super()._make_runtimes()
            for runtime in runtimes:
                runtime.runner.__class__ = kind
            return runtimes

    Broken.__name__ = kind.__name__.strip("_")
    return Broken


class _DropsFailures(Runner):
    def _failed(self, token: Any, error: BaseException) -> None:
        """Report nothing."""


DropsFailures = _with_runner(_DropsFailures)


class IgnoresSigterm(Worker):
    """Never drains."""

    async def drain(self) -> None:
        """Wait forever."""
        await asyncio.get_running_loop().create_future()


class LeavesATask(Worker):
    """Leaves one of its tasks running."""

    async def start(self) -> None:
        """Start, with an extra task that nothing ends."""
        await super().start()
        self.forgotten = asyncio.ensure_future(asyncio.sleep(10_000))


# --- brokers and queues ---------------------------------------------------------------------------
class SyncsNothing(Titanic):
    """Acknowledges before the data is on disk."""

    def __init__(self, url: str, keep_in: TitanicSettings, **given: Any) -> None:
        store = replace(keep_in.store, sync=False)
        super().__init__(url, replace(keep_in, store=store), **given)


class LeavesItsReplicaBehind(Broker):
    """Acknowledges before its replica has the data."""

    def __init__(self, *args: Any, titanic: TitanicSettings | None = None, **given: Any) -> None:
        if titanic is not None and titanic.sync:
            titanic = replace(titanic, sync=False)
        super().__init__(*args, titanic=titanic, **given)


class ListensOnce(Queue):
    """Stops listening 2 s after its start."""

    async def start(self) -> None:
        """Start, and stop listening after 2 s."""
        await super().start()
        asyncio.get_running_loop().call_later(2.0, self._shell.stop_listening)


# --- pool managers --------------------------------------------------------------------------------
class StopsNoGroup(PoolManager):
    """Leaves unused groups running."""

    def _perform(self, effect: Any) -> None:
        if not isinstance(effect, StopGroup):
            super()._perform(effect)


class StartsAGroupOnce(PoolManager):
    """Never starts a group twice."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._started: set[str] = set()

    def _perform(self, effect: Any) -> None:
        if isinstance(effect, StartGroup):
            if effect.key in self._started:
                return
            self._started.add(effect.key)
        super()._perform(effect)


class SeesNoRequests(PoolManager):
    """Does not see queued requests."""

    def feed(self, event: Any) -> None:
        """Feed an input to the engine, with all request counts set to 0."""
        if isinstance(event, ServicesListed):
            services = {
                key: counts._replace(queued=0, in_progress=0, accepted=0)
                for key, counts in event.services.items()
            }
            event = event._replace(services=services)
        super().feed(event)
