"""The blocking shell: a host without a thread of its own, driven by the threads that call.

Sends go out at once, in the caller's thread. To receive, one of the waiting threads, the *leader*,
polls and hands on what comes to everybody; the others, its *followers*, sleep. When the leader has
what it waited for, it wakes a follower to lead. So a call of a lone thread costs one send, one poll
and one receive, and any number of threads share the connection.

Between calls nobody reads, and nothing is due: an idle client sleeps.
"""

from __future__ import annotations

import os
import random
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from threading import TIMEOUT_MAX, Lock
from typing import Final, Unpack

from requite.engine import Drain, Engine, Input
from requite.errors import TransportError
from requite.framing.base import Framing
from requite.shell import clock
from requite.shell.host import Host, Link, Uses
from requite.shell.route import Route
from requite.transport.address import Address
from requite.transport.backoff import Backoff
from requite.transport.blocking import READ, Attempt, BlockingStream, Pollable

_DIAL_TIMEOUT_S: Final = 10.0
# After this long without a look at the connections, look before sending: they may have ended.
_IDLE_S: Final = 0.1
_CLOSE_MARGIN_S: Final = 1.0
_POLL_S_MAX: Final = 3600.0  # poll counts milliseconds in an int
_AT_ONCE: Final = 0.0  # an instant that has passed on any monotonic clock


class Signal:
    """What a thread can wait for. Set by `SyncShell.set`; cleared by whoever waits, in place."""

    __slots__ = ("bells", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.bells: list[Lock] = []  # of the followers that wait for it


class SyncShell:
    """Runs one engine in the threads that use it; safe to use from many at once.

    `deliver` and `fail` are called in whatever thread leads, and must be quick: they may call `set`
    and nothing else of the shell.
    """

    def __init__(
        self,
        engine: Engine,
        make_framing: Callable[[], Framing],
        *,
        dial_to: Sequence[Address],
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
            **uses,
        )
        self._lock = Lock()  # held whenever anything below is touched, but not while polling
        self._leading = False
        self._awaited: Signal | None = None  # by the leader
        self._followers: dict[Lock, None] = {}
        self._poll = select.poll()
        self._watched: dict[int, Pollable] = {}
        self._polling_until = -inf  # -inf: nobody polls
        self._looked_at = -inf
        self._bell_out, self._bell_in = os.pipe()  # rouses the leader from its poll
        os.set_blocking(self._bell_in, False)
        self._poll.register(self._bell_out, READ)
        self._todo: deque[Callable[[], object]] = deque()
        self._flush_wanted = False
        self._wanted = 0  # connections to dial
        self._attempt: Attempt | None = None
        self._dial_at = inf  # when to begin an attempt, or to give the present one up
        self._closed = False
        self._foreign = False  # we are in a forked child, and belong to its parent
        self._empty = Signal()  # once closed: no link is left

    # --- for users: from any thread ---------------------------------------------------------------
    def submit(self, *events: Input) -> None:
        """Feed the engine inputs of the user's; what they make it send leaves as one piece."""
        self._check_process()
        with self._lock:
            if not self._leading and clock.now() - self._looked_at > _IDLE_S and not self._closed:
                self._look()
            try:
                for event in events:
                    self.host.submit(event)
            finally:
                self._settle()

    def submit_soon(self, *events: Input) -> None:
        """Feed the engine inputs from a place that must not wait for the lock: a generator's end.

        The garbage collector may run that in a thread that has the lock already.
        """
        if not events or self._foreign:
            return
        self._todo.extend(partial(self.host.submit, event) for event in events)
        if self._lock.acquire(blocking=False):  # else its holder does what is to be done
            try:
                self._settle()
            finally:
                self._lock.release()

    def set(self, signal: Signal) -> None:
        """Set a signal, and wake those who wait for it. Only from `deliver` and its like."""
        signal.is_set = True
        for bell in signal.bells:
            _ring(bell)
        signal.bells.clear()
        if signal is self._awaited:
            self._rouse_leader()

    def wait(self, signal: Signal, until: float = inf) -> bool:
        """Wait until a signal is set, or until an instant; return whether it is set."""
        self._check_process()
        with self._lock:
            try:
                while not signal.is_set and clock.now() < until:
                    if self._leading:
                        self._follow(signal, until)
                    else:
                        self._lead(signal, until)
            finally:
                self._leave()
        return signal.is_set

    def close(self) -> None:
        """Let the engine end everything; what was sent still leaves, within `linger_s`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.host.submit(Drain())
            self._settle()
            self._wanted = 0
            if self._attempt is not None:
                self._attempt.give_up("the client was closed")
            self.host.shut()
            if not self.host.links:
                self.set(self._empty)
            self._settle()
        self.wait(self._empty, clock.now() + self.host.limits.linger_s + _CLOSE_MARGIN_S)
        with self._lock:
            self.host.abort()
            self._settle()
            self._leave()

    def discard(self) -> None:
        """Close our copies of the file descriptors, in a forked child; the parent keeps its own."""
        self._foreign = True
        for watched in self._watched.values():
            watched.discard()
        self._close_bell()

    def __del__(self) -> None:
        self._close_bell()

    def _check_process(self) -> None:
        if self._foreign:
            raise TransportError("the call belongs to the process that made it, not to its fork")

    # --- leader and followers: the lock is held ---------------------------------------------------
    def _lead(self, signal: Signal, until: float) -> None:
        self._leading = True
        self._awaited = signal
        try:
            while not signal.is_set and clock.now() < until:
                self._turn(until)
        finally:
            self._leading = False
            self._awaited = None

    def _follow(self, signal: Signal, until: float) -> None:
        bell = Lock()
        bell.acquire()
        signal.bells.append(bell)
        self._followers[bell] = None
        self._lock.release()
        try:
            bell.acquire(timeout=min(max(0.0, until - clock.now()), TIMEOUT_MAX))
        finally:
            self._lock.acquire()
            self._followers.pop(bell, None)
            if bell in signal.bells:
                signal.bells.remove(bell)

    def _leave(self) -> None:
        """Pass the lead on, if nobody has it; the last one to leave a closed shell tidies up."""
        if self._leading:
            return
        for bell in self._followers:
            _ring(bell)
            return
        if self._closed and not self.host.links:
            self._close_bell()

    def _close_bell(self) -> None:
        if self._bell_in >= 0:
            self._poll.unregister(self._bell_out)
            os.close(self._bell_in)
            os.close(self._bell_out)
            self._bell_in = self._bell_out = -1

    def _look(self) -> None:
        """See what has come, without waiting."""
        self._leading = True
        try:
            self._turn(_AT_ONCE)
        finally:
            self._leading = False
            self._leave()

    def _turn(self, until: float) -> None:
        """Wait for something to come or to be due; handle it."""
        self._polling_until = min(self.host.next_at(), self._dial_at, until)
        wait_s = self._polling_until - clock.now()
        self._lock.release()
        try:
            ready = self._poll.poll(ceil(min(max(0.0, wait_s), _POLL_S_MAX) * 1000))
        finally:
            self._lock.acquire()
            self._polling_until = -inf
        try:
            for fd, events in ready:
                self._ready(fd, events)
            self._looked_at = now = clock.now()
            if now >= self.host.next_at():
                self.host.wake()
            if now >= self._dial_at:
                self._dial()
        finally:
            self._settle()

    def _ready(self, fd: int, events: int) -> None:
        if fd == self._bell_out:
            os.read(fd, 4096)
        elif fd in self._watched:  # else forgotten since the poll, by another thread
            self._watched[fd].ready(events)

    def _settle(self) -> None:
        """Do what was put off, and flush, until nothing of either is left."""
        while self._todo or self._flush_wanted:
            while self._todo:
                self._todo.popleft()()
            if self._flush_wanted:
                self._flush_wanted = False
                self.host.flush()

    def _rouse_leader(self, at: float = -inf) -> None:
        """Interrupt the leader's poll, if it would last beyond an instant."""
        if at < self._polling_until:
            self._polling_until = -inf
            os.write(self._bell_in, b"!")

    # --- what the host wants ----------------------------------------------------------------------
    def _wake_at(self, at: float) -> None:
        self._rouse_leader(at)

    def _want_flush(self) -> None:
        self._flush_wanted = True

    def _connect(self) -> None:
        if not self._closed:
            self._wanted += 1
            self._plan_dial()

    def _released(self, _link: Link) -> None:
        if self._closed and not self.host.links:
            self.set(self._empty)

    # --- what streams and attempts want: the contract of `Poll` -----------------------------------
    def watch(self, fd: int, what: Pollable, events: int) -> None:
        """Wait for these events at `fd` from now on."""
        self._watched[fd] = what
        self._poll.register(fd, events)
        self._rouse_leader()

    def forget(self, fd: int) -> None:
        """Wait for nothing at `fd` any more."""
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def later(self, act: Callable[[], object]) -> None:
        """Do something as soon as nothing else is being done."""
        self._todo.append(act)

    # --- dialling ---------------------------------------------------------------------------------
    def _plan_dial(self) -> None:
        """Dial when it is time, if a connection is wanted and none is on its way."""
        if self._wanted and self._attempt is None and self._dial_at == inf:
            self._dial_at = clock.now() + self.route.pause_s()
            self._rouse_leader(self._dial_at)

    def _dial(self) -> None:
        if self._attempt is not None:
            self._attempt.give_up(f"no answer within {_DIAL_TIMEOUT_S:g} s")
            return
        self._dial_at = clock.now() + _DIAL_TIMEOUT_S
        self._attempt = Attempt(self.route.current, self, self._dialled, self._failed)

    def _dialled(self, address: Address, sock: socket.socket) -> None:
        self._attempt = None
        self._dial_at = inf
        self._wanted -= 1
        self.route.opened(address, self.host.opened(BlockingStream(sock, str(address), self)))
        self._plan_dial()

    def _failed(self, address: Address, error: TransportError) -> None:
        self._attempt = None
        self._dial_at = inf
        self.route.failed(address, error)
        self._plan_dial()


def _ring(bell: Lock) -> None:
    """Wake the follower that sleeps on a bell; one that was woken already will come anyway."""
    if bell.locked():
        bell.release()
