"""The blocking shell: a host without a background thread, driven by the calling threads.

The caller's thread sends at once. To receive, one of the waiting threads, the *leader*, polls and
delivers messages for all threads; the others, its *followers*, sleep. When the leader has its
result, it wakes a follower to lead. A call of a single thread costs one send, one poll and one
receive, and any number of threads share the connection.

Between calls, nothing is read and no timer runs: an idle client sleeps.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil, inf
from threading import TIMEOUT_MAX, Lock, get_ident
from typing import Any, Final, Unpack

from requite.backoff import Backoff
from requite.engine import Drain, Engine, Input
from requite.errors import TransportError
from requite.shell import clock
from requite.shell.connections import ConnectionKeeper, Connections, Endpoint, accepter
from requite.shell.host import Host, Link
from requite.shell.sync_dialler import Dialler
from requite.shell.uses import Uses
from requite.transport.address import Address
from requite.transport.blocking import READ, BlockingListener, Pollable

# After this long without polling, poll before sending: connections may have ended.
_IDLE_S: Final = 0.1
_CLOSE_MARGIN_S: Final = 1.0
_POLL_S_MAX: Final = 3600.0  # poll counts milliseconds in an int


class Signal:
    """An event that threads wait for. Set by `SyncShell.set`; cleared in place by the waiter."""

    __slots__ = ("bells", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.bells: list[Lock] = []  # of the followers that wait for the signal


class _Turn:
    """One thread's wait for a signal; a follower has a bell."""

    __slots__ = ("at", "bell", "is_over", "ready", "signal", "thread", "until")

    def __init__(self, signal: Signal, until: float) -> None:
        self.signal = signal
        self.until = until
        self.thread = get_ident()
        self.bell: Lock | None = None
        self.ready: Iterable[tuple[int, int]] = ()
        self.at = until  # when to stop sleeping at the latest
        self.is_over = False

    def rest_s(self) -> float:
        """Return the seconds to sleep, at most `_POLL_S_MAX`."""
        return min(max(0.0, self.at - clock.now()), _POLL_S_MAX)


class SyncShell:
    """Runs one engine in the threads that use it; thread-safe.

    `deliver` and `fail` are called in the leader's thread and must be fast; of the shell they may
    call only `set`.

    If a signal handler raises an exception into a thread that holds the shell's lock, the shell is
    `lost`: its connections are closed, every waiting thread gets a `TransportError`, and the owner
    makes a new shell. An exception raised while the thread sleeps does not affect other threads.
    """

    _bell_in = _bell_out = -1  # for `__del__`, if `__init__` is interrupted

    def __init__(
        self,
        engine: Engine,
        connections: Connections,
        *,
        backoff: Backoff | None = None,
        **uses: Unpack[Uses],
    ) -> None:
        self.host = Host(
            engine,
            clock.now,
            connections.make_framing,
            wake_at=self._wake_at,
            want_flush=self._want_flush,
            connect=self._connect,
            ended=self._ended,
            released=self._released,
            limits=connections.limits,
            **uses,
        )
        self._lock = Lock()  # guards everything below; not held while polling
        self._changing = False  # True while the lock is free: interrupted, so the shell is lost
        self.lost = ""  # why the shell is lost; "": it is not
        self._leader: _Turn | None = None
        self._followers: dict[Lock, None] = {}
        self._poll = select.poll()
        self._watched: dict[int, Pollable] = {}
        self._polling_until = -inf  # -inf: no thread polls
        self._looked_at = -inf
        self._look_after_s = 0.0 if connections.read_first else _IDLE_S
        self._bell_out, self._bell_in = os.pipe()  # interrupts the leader's poll
        os.set_blocking(self._bell_in, False)
        self._poll.register(self._bell_out, READ)
        self._todo: deque[Callable[[], object]] = deque()
        self._flush_wanted = False
        self._closed = False
        self._empty = Signal()  # set once the shell is closed and no link is left
        self._dial_at = inf  # when a dialler acts next
        self._listeners: list[BlockingListener] = []
        make_dialler = partial(Dialler, self, self._plan_dial)
        self._keeper: ConnectionKeeper[Dialler] = ConnectionKeeper(
            connections, self.host.opened, make_dialler, backoff
        )
        self._keeper.begin()

    # --- for users: from any thread ---------------------------------------------------------------
    def listen(self, endpoint: Endpoint) -> Address:
        """Listen at an address; return it as bound.

        While no thread waits, new connections stay in the system's backlog. Raises `TransportError`
        if it cannot bind the address; then the shell is lost.
        """
        self._change(self._listen, endpoint)
        return self._listeners[-1].address

    @property
    def addresses(self) -> list[Address]:
        """The bound addresses at which the shell listens."""
        return [listener.address for listener in self._listeners]

    @property
    def trouble(self) -> str:
        """Why no peer is connected, for error messages; "" if one is."""
        return self._keeper.trouble(self.host.links, self.addresses)

    def submit(self, *events: Input) -> bool:
        """Feed the engine inputs of the user; their output is sent in one piece.

        Returns False if the shell is lost; then no input was fed. If no thread waits, connecting
        proceeds as far as possible without blocking.
        """
        return self._change(self._submit, events)

    def submit_soon(self, *events: Input) -> None:
        """Feed the engine inputs without waiting for the lock; for the end of a generator.

        The garbage collector may run that in a thread that already holds the lock.
        """
        if not events or self.lost:
            return
        self._todo.extend(partial(self.host.submit, event) for event in events)
        if not self._lock.locked():  # else the holder of the lock, perhaps this thread, does it
            self._change(self._settle)

    def set(self, signal: Signal) -> None:
        """Set a signal and wake its waiters. Call it only from `deliver` and other callbacks."""
        signal.is_set = True
        for bell in signal.bells:
            _ring(bell)
        signal.bells.clear()
        if self._leader is not None and signal is self._leader.signal:
            self._rouse_leader()

    def wait(self, signal: Signal, until: float = inf) -> bool:
        """Wait until a signal is set, or until an instant; return whether it is set.

        Raises `TransportError` if the shell is lost before the signal is set.
        """
        if signal.is_set:
            return True
        turn = _Turn(signal, until)
        try:
            while self._change(self._step, turn):
                if turn.is_over:
                    return signal.is_set
                if turn.bell is None:
                    turn.ready = self._poll.poll(ceil(turn.rest_s() * 1000))
                else:
                    turn.bell.acquire(timeout=min(turn.rest_s(), TIMEOUT_MAX))
        except BaseException:
            self._change(self._quit, turn)
            raise
        if self.lost and not signal.is_set:
            raise TransportError(self.lost)
        return signal.is_set

    def close(self) -> None:
        """Drain the engine and close all connections; queued output is sent within `linger_s`."""
        if self._closed or not self._change(self._shut):
            return
        try:
            self.wait(self._empty, clock.now() + self.host.limits.linger_s + _CLOSE_MARGIN_S)
        except TransportError:  # another thread was interrupted, which closed everything
            return
        self._change(self._abort)

    def discard(self) -> None:
        """In a forked child, close its copies of the file descriptors; the parent's stay open."""
        self.lost = "the call belongs to the parent process, which made it before the fork"
        self._tidy()

    def __del__(self) -> None:
        self._close_bell()

    # --- under the lock ---------------------------------------------------------------------------
    def _change(self, act: Callable[..., object], *arguments: Any) -> bool:
        """Call `act` while holding the lock; return False if the shell is lost.

        A signal handler may raise between any two instructions of the main thread, when bytes have
        been read but not parsed, or effects are half performed. If that happens here, the state is
        unreliable and the shell is lost. The next thread sees that from `_changing`, even if this
        one is interrupted again on its way out.
        """
        if self.lost and self._bell_in < 0:  # after a fork, the lock may be held forever
            return False
        with self._lock:
            if self._is_lost():  # a call, so that a pending signal is handled before any change
                self._lose()
                return False
            self._changing = True
            try:
                act(*arguments)
                self._changing = False
            except BaseException:
                self._lose()
                raise
        return True

    def _is_lost(self) -> bool:
        return self._changing or bool(self.lost)

    def _lose(self) -> None:
        """Mark the shell as lost and wake all waiting threads."""
        self.lost = "an exception from a signal handler interrupted the client"
        while self._followers:
            _ring(self._followers.popitem()[0])
        leader = self._leader
        if leader is not None and leader.thread != get_ident():
            self._rouse()  # it polls, and tidies up when it returns
        else:
            self._tidy()

    def _tidy(self) -> None:
        """Close all file descriptors without calling the host or the engine."""
        while self._watched:
            self._watched.popitem()[1].discard()
        for link in self.host.links:
            link.stream.discard()  # type: ignore[attr-defined]  # all are blocking streams
        self._close_bell()

    def _submit(self, events: Sequence[Input]) -> None:
        is_alone = self._leader is None and not self._closed
        if is_alone and clock.now() - self._looked_at > self._look_after_s:
            self._look()
        self.host.submit(*events)
        self._settle()
        if is_alone and self._is_connecting():
            self._look()

    def _look(self) -> None:
        """Perform due work and handle readable connections, without waiting."""
        self._handle(())
        self._handle(self._poll.poll(0))

    def _shut(self) -> None:
        self._closed = True
        while self._listeners:
            self._listeners.pop().close()
        self.host.submit(Drain())
        self._settle()
        for dialler in self._keeper:
            dialler.close("the client was closed")
        self.host.shut()
        if not self.host.links:
            self.set(self._empty)
        self._settle()

    def _abort(self) -> None:
        self.host.abort()
        self._settle()
        self._leave()

    # --- leader and followers: the lock is held ---------------------------------------------------
    def _step(self, turn: _Turn) -> None:
        """Handle the results of a poll, and decide whether this thread ends, leads or follows."""
        if self._leader is turn:
            self._polling_until = -inf
            self._handle(turn.ready)
        else:
            self._unfollow(turn)
        if turn.signal.is_set or clock.now() >= turn.until:
            self._quit(turn)
        # A leader of this same thread was interrupted so often that it could not step down.
        elif self._leader is None or self._leader.thread == turn.thread:
            self._leader = turn
            self._polling_until = turn.at = min(self.host.next_at(), self._dial_at, turn.until)
        else:
            turn.at = turn.until
            self._follow(turn)

    def _quit(self, turn: _Turn) -> None:
        """End this thread's wait; if it led, let another thread lead."""
        turn.is_over = True
        if self._leader is turn:
            self._leader = None
            self._polling_until = -inf
        self._unfollow(turn)
        self._leave()

    def _follow(self, turn: _Turn) -> None:
        turn.bell = bell = Lock()
        bell.acquire()
        turn.signal.bells.append(bell)
        self._followers[bell] = None

    def _unfollow(self, turn: _Turn) -> None:
        bell, turn.bell = turn.bell, None
        if bell is not None:
            self._followers.pop(bell, None)
            if bell in turn.signal.bells:
                turn.signal.bells.remove(bell)

    def _leave(self) -> None:
        """Wake a follower to lead if there is no leader; the last thread of a closed shell closes
        the bell."""
        if self._leader is not None:
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

    def _handle(self, ready: Iterable[tuple[int, int]]) -> None:
        """Handle ready file descriptors and due timers."""
        for fd, events in ready:
            self._ready(fd, events)
        self._looked_at = now = clock.now()
        if now >= self.host.next_at():
            self.host.wake()
        if now >= self._dial_at:
            self._dial(now)
        self._settle()

    def _ready(self, fd: int, events: int) -> None:
        if fd == self._bell_out:
            os.read(fd, 4096)
        elif fd in self._watched:  # else another thread removed it since the poll
            self._watched[fd].ready(events)

    def _settle(self) -> None:
        """Perform deferred work and flush until both are done."""
        while self._todo or self._flush_wanted:
            while self._todo:
                self._todo.popleft()()
            if self._flush_wanted:
                self._flush_wanted = False
                self.host.flush()

    def _rouse_leader(self, at: float = -inf) -> None:
        """Interrupt the leader's poll if it would last beyond `at`."""
        if at < self._polling_until:
            self._polling_until = -inf
            self._rouse()

    def _rouse(self) -> None:
        if self._bell_in >= 0:
            with suppress(BlockingIOError):  # the pipe is full, so the leader wakes anyway
                os.write(self._bell_in, b"!")

    # --- callbacks of the host --------------------------------------------------------------------
    def _is_connecting(self) -> bool:
        if self._dial_at < inf:
            return True
        newest = next(reversed(self.host.links), None)
        return newest is not None and not newest.joined

    def _wake_at(self, at: float) -> None:
        self._rouse_leader(at)

    def _want_flush(self) -> None:
        self._flush_wanted = True

    def _connect(self) -> None:
        self._keeper.connect()

    def _ended(self, link: Link, reason: str) -> None:
        self._keeper.ended(link, reason)

    def _released(self, _link: Link) -> None:
        if self._closed and not self.host.links:
            self.set(self._empty)

    # --- for streams and attempts: the contract of `Poll` -----------------------------------------
    def watch(self, fd: int, what: Pollable, events: int) -> None:
        """Poll `fd` for these events from now on."""
        self._watched[fd] = what
        self._poll.register(fd, events)
        self._rouse_leader()

    def forget(self, fd: int) -> None:
        """Stop polling `fd`."""
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def later(self, act: Callable[[], object]) -> None:
        """Call `act` once the current work is done."""
        self._todo.append(act)

    # --- dialling and listening -------------------------------------------------------------------
    def _plan_dial(self) -> None:
        self._dial_at = min(dialler.at for dialler in self._keeper)
        self._rouse_leader(self._dial_at)

    def _dial(self, now: float) -> None:
        for dialler in self._keeper:
            if now >= dialler.at:
                dialler.act()

    def _listen(self, endpoint: Endpoint) -> None:
        on_stream = accepter(self.host, endpoint)
        listener = BlockingListener(endpoint.address, self, on_stream, endpoint.tls)
        self._listeners.append(listener)


def _ring(bell: Lock) -> None:
    """Wake the follower that sleeps on a bell, unless it was woken already."""
    if bell.locked():
        bell.release()
