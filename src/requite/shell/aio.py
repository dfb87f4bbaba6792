"""The asyncio shell: a host on an event loop, asyncio's or uvloop's.

It has one timer, one flush per loop iteration and one dialling task, and allocates nothing per
message. Each persistent connection that is down has one more dialling task.
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
from requite.shell.host import Host, Link
from requite.shell.uses import Uses
from requite.transport.address import Address
from requite.transport.aio import listen
from requite.transport.base import Listener, Stream

# uvloop's timers count whole milliseconds; one that fires early would have to be set again.
_TIMER_LATE_S: Final = 0.001
# Added to `linger_s`, after which all links should have closed.
_CLOSE_MARGIN_S: Final = 1.0
# Event loops need up to three iterations to make a stream of an accepted connection. Those accepted
# just before the listener closed are closed with the others.
_TURNS_TO_ACCEPT: Final = 4

T = TypeVar("T")

_NO_LOOP: Final = (
    "no asyncio event loop is running: await this in a coroutine that `asyncio.run` runs. Under "
    "trio, call the blocking `requite.Client` in a thread (`trio.to_thread.run_sync`)"
)
_OTHER_LOOP: Final = (
    "this object was started on another event loop, or before a fork of this process, and works "
    "only there: create a new one here"
)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop of asyncio. Raises `LocalViolation` if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise LocalViolation(_NO_LOOP) from None


class AioShell:
    """Runs one engine on an event loop: listens, dials, sets its timer.

    `start` binds it to the running loop. When the engine wants a connection, the shell dials one
    address of its `AddressList` at a time, with pauses by `backoff`. While `lets_in` returns False,
    accepted connections are closed before the handshake. `on_change` is called whenever a
    connection completes its handshake or ends.
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
        self._empty = asyncio.Event()  # set while closing, once no link is left

    # --- life -------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start on the running loop. Raises `LocalViolation` without one, or on another one."""
        loop = running_loop()
        if self._loop is None:
            self._loop = loop
            self.host.wake()
            self._keeper.begin()
        elif self._loop is not loop:
            raise LocalViolation(_OTHER_LOOP)

    async def listen(self, endpoint: Endpoint) -> Address:
        """Listen at an address; return it as bound, with the actual port.

        Raises `TransportError` if it cannot bind the address.
        """
        self.start()
        on_stream = partial(self._accepted, accepter(self.host, endpoint))
        listener = await listen(endpoint.address, on_stream, endpoint.tls)
        self._listeners.append(listener)
        return listener.address

    async def listen_all(self) -> None:
        """Listen at all configured endpoints, once; if one cannot be bound, at none."""
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
        """Whether the shell listens at all configured endpoints."""
        return len(self._listeners) >= len(self._connections.listen)

    def keep(self, endpoint: Endpoint) -> None:
        """Add a persistent connection."""
        self.start()
        self._keeper.keep(endpoint).go_on()

    @property
    def addresses(self) -> list[Address]:
        """The bound addresses at which the shell listens."""
        return [listener.address for listener in self._listeners]

    @property
    def trouble(self) -> str:
        """Why no peer is connected, for error messages; "" if one is."""
        return self._keeper.trouble(self.host.links, self.addresses)

    @property
    def troubles(self) -> list[tuple[Address, str]]:
        """For each address list, its current address and why there is no connection ("": there is
        one)."""
        return self._keeper.troubles()

    @property
    def dial_trouble(self) -> str:
        """Why persistent connections are down; "" if all are up."""
        return self._keeper.kept_trouble()

    def submit(self, event: Input) -> None:
        """Feed the engine an input of the user."""
        self.host.submit(event)

    def submit_soon(self, event: Input) -> None:
        """Feed the engine an input of the user by the end of the loop iteration."""
        self.host.submit_soon(event)

    async def drain(self) -> None:
        """Accept no new work, let the engine finish its current work, then close."""
        self.start()
        self.host.submit(Drain())
        await self._drained.wait()
        await self.close()

    async def until_refused(self) -> str:
        """Wait until every dialled address has refused the credentials, before any connection;
        return the reasons. Dialling continues."""
        while not self._keeper.dial_to.refusal:
            self._refused.clear()
            await self._refused.wait()
        return self._keeper.dial_to.refusal

    async def until_drained(self) -> None:
        """Wait until the engine has drained."""
        await self._drained.wait()

    async def close(self) -> None:
        """Close all connections; queued output is still sent, within the links' `linger_s`."""
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
        """Accept no more connections; existing ones stay open."""
        while self._listeners:
            self._listeners.pop().close()

    async def _until_empty(self) -> None:
        try:
            async with asyncio.timeout(self.host.limits.linger_s + _CLOSE_MARGIN_S):
                await self._empty.wait()
        except TimeoutError:
            self.host.abort()

    # --- callbacks of the host --------------------------------------------------------------------
    def _wake_at(self, at: float) -> None:
        if self._loop is None:
            return  # `start` wakes the host, which calls this again
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at - clock.now()) + _TIMER_LATE_S
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.host.wake()

    def _want_flush(self) -> None:
        """Flush at the end of the loop iteration, even for a single message.

        Measured with MDP echo, flushing at once (always, or after a pause) gains a single
        synchronous caller up to 10 % on uvloop and nothing on asyncio; 64 calls in flight lose 15
        to 35 % on uvloop.
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
        if self._closing:  # accepted just before the listener closed
            self.host.shut()
        elif not self._lets_in():
            self.host.turn_away(link)


def new_event_loop(use_uvloop: bool | None = None) -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's if installed (None), always (True), or asyncio's (False).

    Raises `ConfigurationError` if uvloop is required and not installed.
    """
    if use_uvloop is not False:
        try:
            import uvloop
        except ImportError:
            if use_uvloop:
                raise ConfigurationError(
                    "uvloop is not installed: pip install 'requite[fast]'"
                ) from None
        else:
            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T], use_uvloop: bool | None = None) -> T:
    """Run a coroutine to its end on a new event loop, as `asyncio.run` does.

    Each resource left open is closed and reported by a `ResourceWarning`. If the coroutine raises,
    its exception is raised instead, with a note for each such resource.
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
    """Close a runner and its loop; return the warnings about resources left open.

    With warnings as errors, uvloop would drop the handle it warns of without closing it, and then
    wait for that handle forever.
    """
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always", ResourceWarning)
        runner.close()
    return left_open
