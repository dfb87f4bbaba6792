"""The asyncio shell: a host on an event loop; asyncio's own, or uvloop's where it is installed.

One timer, one flush per turn of the loop, one task that dials. Nothing is made per message.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from requite.engine import Drain, Engine, Input
from requite.errors import ConfigurationError, LocalViolation, TransportError
from requite.framing.base import Framing
from requite.shell import clock
from requite.shell.host import Host, Link, Uses
from requite.shell.route import Route
from requite.transport.address import Address
from requite.transport.aio import dial, listen
from requite.transport.backoff import Backoff
from requite.transport.base import Listener, Stream

# uvloop's timers count in whole milliseconds, and one that fires early would only be set again.
_TIMER_LATE_S: Final = 0.001
# When the links' own lingering should have ended everything.
_CLOSE_MARGIN_S: Final = 1.0
# Event loops need up to three to make a stream of a connection that they have accepted. Those that
# were on their way when the listener closed are closed with the others.
_TURNS_TO_ACCEPT: Final = 4

T = TypeVar("T")


class AioShell:
    """Runs one engine: listens, dials, keeps its timer.

    Bound to the running loop by `start`. `dial_to` are the addresses an engine's `Connect` stands
    for; `backoff` spaces the attempts.
    """

    def __init__(
        self,
        engine: Engine,
        make_framing: Callable[[], Framing],
        *,
        dial_to: Sequence[Address] = (),
        backoff: Backoff | None = None,
        **uses: Unpack[Uses],
    ) -> None:
        self.route = Route(dial_to, backoff or Backoff(random.random), clock.now)
        self.host = Host(
            engine,
            clock.now,
            make_framing,
            wake_at=self._wake_at,
            want_flush=self._want_flush,
            connect=self._connect,
            ended=self.route.ended,
            released=self._released,
            stopped=self._stopped,
            **uses,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._dialler: asyncio.Task[None] | None = None
        self._wanted = 0  # connections to dial
        self._closing = False
        self._drained = asyncio.Event()
        self._empty = asyncio.Event()  # while closing: no link is left

    # --- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin, on the running loop. Raises `LocalViolation` on another loop than the first."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self.host.wake()
        elif self._loop is not loop:
            raise LocalViolation("a shell stays on the event loop on which it was started")

    async def listen(self, address: Address) -> Address:
        """Take connections at an address; return it as bound (port 0 is a number then).

        Raises `TransportError` where the address cannot be had.
        """
        self.start()
        listener = await listen(address, self._accepted)
        self._listeners.append(listener)
        return listener.address

    @property
    def addresses(self) -> list[Address]:
        """Where connections are taken."""
        return [listener.address for listener in self._listeners]

    def submit(self, event: Input) -> None:
        """Feed the engine an input of the user's."""
        self.host.submit(event)

    async def drain(self) -> None:
        """Let the engine finish what it has, taking nothing new; then close."""
        self.start()
        self.host.submit(Drain())
        await self._drained.wait()
        await self.close()

    async def close(self) -> None:
        """End everything; what has been sent still leaves, within the links' `linger_s`."""
        self.stop_listening()
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        self._closing = True
        if self._dialler is not None:
            self._dialler.cancel()
            await asyncio.wait([self._dialler])
        self.host.flush()
        self.host.shut()
        if self.host.links:
            await self._until_empty()
        if self._timer is not None:
            self._timer.cancel()

    def stop_listening(self) -> None:
        """Take no more connections; those that stand are left alone."""
        while self._listeners:
            self._listeners.pop().close()

    async def _until_empty(self) -> None:
        try:
            async with asyncio.timeout(self.host.limits.linger_s + _CLOSE_MARGIN_S):
                await self._empty.wait()
        except TimeoutError:
            self.host.abort()

    # --- what the host wants ----------------------------------------------------------------------
    def _wake_at(self, at: float) -> None:
        if self._loop is None:
            return  # `start` wakes the host, which asks again
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at - clock.now()) + _TIMER_LATE_S
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.host.wake()

    def _want_flush(self) -> None:
        """Flush at the end of the turn, also where a turn has but one message.

        Flushing at once instead, always or after a pause, was measured with MDP echo: a lone
        synchronous caller gains up to 10 % on uvloop and nothing on asyncio, 64 calls in flight
        lose 15 to 35 % on uvloop.
        """
        assert self._loop is not None
        self._loop.call_soon(self.host.flush)

    def _connect(self) -> None:
        if self._closing or self._drained.is_set():
            return
        assert self._loop is not None
        self._wanted += 1
        if self._dialler is None:
            self._dialler = self._loop.create_task(self._dial())

    def _released(self, _link: Link) -> None:
        if self._closing and not self.host.links:
            self._empty.set()

    def _stopped(self) -> None:
        self._drained.set()

    # --- connections ------------------------------------------------------------------------------
    def _accepted(self, stream: Stream) -> None:
        self.host.opened(stream, accepted=True)
        if self._closing:  # it stood in the listener's queue
            self.host.shut()

    async def _dial(self) -> None:
        """Dial as often as the engine wants connections; give up never."""
        while self._wanted:
            await asyncio.sleep(self.route.pause_s())
            address = self.route.current
            try:
                await dial(address, partial(self._dialled, address))
            except TransportError as error:
                self.route.failed(address, error)
        self._dialler = None

    def _dialled(self, address: Address, stream: Stream) -> None:
        self._wanted -= 1
        self.route.opened(address, self.host.opened(stream))
        if self._closing:
            self.host.shut()


def new_event_loop(use_uvloop: bool | None = None) -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's if installed (None), in any case (True), or asyncio's (False).

    Raises `ConfigurationError` where uvloop is asked for and not installed.
    """
    if use_uvloop is not False:
        try:
            import uvloop
        except ImportError:
            if use_uvloop:
                raise ConfigurationError(
                    "uvloop is not installed; pip install 'requite[fast]' brings it"
                ) from None
        else:
            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T], use_uvloop: bool | None = None) -> T:
    """Run a coroutine to its end on a new event loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=lambda: new_event_loop(use_uvloop)) as runner:
        return runner.run(main)
