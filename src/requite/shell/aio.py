"""The asyncio shell: a host on an event loop; asyncio's own, or uvloop's where it is installed.

One timer, one flush per turn of the loop, one task that dials. Nothing is made per message. A shell
that keeps its connections itself has one more such task for each that is not there.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar, Unpack

from requite.backoff import Backoff
from requite.engine import Drain, Engine, Input
from requite.errors import ConfigurationError, LocalViolation
from requite.shell import clock
from requite.shell.aio_dialler import Dialler
from requite.shell.connections import ConnectionKeeper, Connections, Endpoint, Opened, accepter
from requite.shell.host import Host, Link, Uses
from requite.transport.address import Address
from requite.transport.aio import listen
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

    Bound to the running loop by `start`. One of the addresses of its `AddressList` is used at a
    time, whenever the engine asks for a connection; `backoff` spaces the attempts. Who dials us is
    hung up on, before anything is said, while `lets_in` says no. `on_change` is called whenever a
    connection has done its handshake, or has ended.
    """

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        *,
        backoff: Backoff | None = None,
        lets_in: Callable[[], bool] = lambda: True,
        on_change: Callable[[], object] = lambda: None,
        **uses: Unpack[Uses],
    ) -> None:
        self._connections = connections
        self._lets_in = lets_in
        self._on_change = on_change
        self.host = Host(
            engine,
            clock.now,
            connections.make_framing,
            wake_at=self._wake_at,
            want_flush=self._want_flush,
            connect=self._connect,
            joined=self._joined,
            ended=self._ended,
            released=self._released,
            stopped=self._stopped,
            limits=connections.limits,
            **uses,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Listener] = []
        self._timer: asyncio.TimerHandle | None = None
        self._keeper = ConnectionKeeper(connections, self.host.opened, Dialler, backoff)
        self._closing = False
        self._drained = asyncio.Event()
        self._refused = asyncio.Event()
        self._empty = asyncio.Event()  # while closing: no link is left

    # --- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin, on the running loop. Raises `LocalViolation` on another loop than the first."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self.host.wake()
            self._keeper.begin()
        elif self._loop is not loop:
            raise LocalViolation("a shell stays on the event loop on which it was started")

    async def listen(self, endpoint: Endpoint) -> Address:
        """Take connections at an address; return it as bound (port 0 is a number then).

        Raises `TransportError` where the address cannot be had.
        """
        self.start()
        on_stream = partial(self._accepted, accepter(self.host, endpoint))
        listener = await listen(endpoint.address, on_stream, endpoint.tls)
        self._listeners.append(listener)
        return listener.address

    async def listen_all(self) -> None:
        """Listen at all endpoints of the connections, once; where one cannot be had, at none."""
        if self.is_listening:
            return
        try:
            for endpoint in self._connections.listen:
                await self.listen(endpoint)
        except BaseException:
            self.stop_listening()
            raise

    @property
    def is_listening(self) -> bool:
        """Whether it listens wherever its connections say."""
        return len(self._listeners) >= len(self._connections.listen)

    def keep(self, endpoint: Endpoint) -> None:
        """Stay connected to one more address from now on."""
        self.start()
        self._keeper.keep(endpoint).go_on()

    @property
    def addresses(self) -> list[Address]:
        """Where connections are taken."""
        return [listener.address for listener in self._listeners]

    @property
    def trouble(self) -> str:
        """Why there is nobody to talk to, for the message of an error; "" if there is."""
        return self._keeper.trouble(self.host.links, self.addresses)

    @property
    def troubles(self) -> list[tuple[Address, str]]:
        """For each of its address lists the address, and why there is no connection; "" where
        there is."""
        return self._keeper.troubles()

    @property
    def dial_trouble(self) -> str:
        """Why it has no connection to what it keeps dialling; "" if it has."""
        return self._keeper.kept_trouble()

    def submit(self, event: Input) -> None:
        """Feed the engine an input of the user's."""
        self.host.submit(event)

    def submit_soon(self, event: Input) -> None:
        """Feed the engine an input of the user's by the end of the turn of the loop."""
        self.host.submit_soon(event)

    async def drain(self) -> None:
        """Let the engine finish what it has, taking nothing new; then close."""
        self.start()
        self.host.submit(Drain())
        await self._drained.wait()
        await self.close()

    async def until_refused(self) -> str:
        """Wait until each address that it dials has refused our credentials, before there was any
        connection, and return what was said. It dials on all the same."""
        while not self._keeper.dial_to.refusal:
            self._refused.clear()
            await self._refused.wait()
        return self._keeper.dial_to.refusal

    async def until_drained(self) -> None:
        """Wait until the engine has drained, whoever told it to."""
        await self._drained.wait()

    async def close(self) -> None:
        """End everything; what has been sent still leaves, within the links' `linger_s`."""
        self.stop_listening()
        for _ in range(_TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        self._closing = True
        for dialler in self._keeper:
            await dialler.close()
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
        self._keeper.connect()

    def _joined(self, _link: Link) -> None:
        self._on_change()

    def _ended(self, link: Link, reason: str) -> None:
        self._keeper.ended(link, reason)
        if self._keeper.dial_to.refusal:
            self._refused.set()
        self._on_change()

    def _released(self, _link: Link) -> None:
        if self._closing and not self.host.links:
            self._empty.set()

    def _stopped(self) -> None:
        self._drained.set()
        for dialler in self._keeper:
            dialler.stop()

    def _accepted(self, opened: Opened, stream: Stream) -> None:
        link = opened(stream)
        if self._closing:  # it stood in the listener's queue
            self.host.shut()
        elif not self._lets_in():
            self.host.turn_away(link)


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
    """Run a coroutine to its end on a new event loop, as `asyncio.run` does.

    What it leaves open is closed, and reported by a `ResourceWarning` each; where the coroutine
    raises, its exception is the one that leaves, with a note for each of them.
    """
    runner = asyncio.Runner(loop_factory=lambda: new_event_loop(use_uvloop))
    try:
        result = runner.run(main)
    except BaseException as error:
        for left in _close(runner):
            error.add_note(f"left open: {left.message}")
        raise
    for left in _close(runner):
        warnings.warn_explicit(left.message, left.category, left.filename, left.lineno)
    return result


def _close(runner: asyncio.Runner) -> list[warnings.WarningMessage]:
    """Close a runner and its loop; return the warnings of what was still open.

    Where warnings are errors, uvloop would drop the handle that it warns of instead of closing it,
    and then wait for that handle for ever.
    """
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        runner.close()
    return left_open
