"""The blocking shell: a host without a thread of its own, driven by the threads that call.

Sends go out at once, in the caller's thread. To receive, one of the waiting threads, the *leader*,
polls and hands on what comes to everybody; the others, its *followers*, sleep. When the leader has
what it waited for, it wakes a follower to lead. So a call of a lone thread costs one send, one poll
and one receive, and any number of threads share the connection.

Between calls nobody reads, and nothing is due: an idle client sleeps.
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
from requite.shell.host import Host, Link, Uses
from requite.shell.sync_dialler import Dialler
from requite.transport.address import Address
from requite.transport.blocking import READ, BlockingListener, Pollable

# After this long without a look at the connections, look before sending: they may have ended.
_IDLE_S: Final = 0.1
_CLOSE_MARGIN_S: Final = 1.0
_POLL_S_MAX: Final = 3600.0  # poll counts milliseconds in an int


class Signal:
    """What a thread can wait for. Set by `SyncShell.set`; cleared by whoever waits, in place."""

    __slots__ = ("bells", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self.bells: list[Lock] = []  # of the followers that wait for it


class _Turn:
    """One thread's wait for a signal; with a bell, as a follower."""

    __slots__ = ("at", "bell", "is_over", "ready", "signal", "thread", "until")

    def __init__(self, signal: Signal, until: float) -> None:
        self.signal = signal
        self.until = until
        self.thread = get_ident()
        self.bell: Lock | None = None
        self.ready: Iterable[tuple[int, int]] = ()
        self.at = until  # when to look at things again, whatever happens
        self.is_over = False

    def rest_s(self) -> float:
        """Return how long to sleep, within what poll can take."""
        return min(max(0.0, self.at - clock.now()), _POLL_S_MAX)


class SyncShell:
    """Runs one engine in the threads that use it; safe to use from many at once.

    `deliver` and `fail` are called in whatever thread leads, and must be quick: they may call `set`
    and nothing else of the shell.

    An exception that a signal's handler raises into a thread at work in here leaves a shell that is
    `lost`: its connections are closed, and every thread that waits gets a `TransportError`. Whoever
    owns it makes another. One that is raised while the thread sleeps does no harm to others.
    """

    _bell_in = _bell_out = -1  # for `__del__`, should the making of a shell be interrupted

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
        self._lock = Lock()  # held whenever anything below is touched, but not while polling
        self._changing = False  # True without the lock being held: interrupted, and lost
        self.lost = ""  # why nothing can be done with this shell any more
        self._leader: _Turn | None = None
        self._followers: dict[Lock, None] = {}
        self._poll = select.poll()
        self._watched: dict[int, Pollable] = {}
        self._polling_until = -inf  # -inf: nobody polls
        self._looked_at = -inf
        self._look_after_s = 0.0 if connections.read_first else _IDLE_S
        self._bell_out, self._bell_in = os.pipe()  # rouses the leader from its poll
        os.set_blocking(self._bell_in, False)
        self._poll.register(self._bell_out, READ)
        self._todo: deque[Callable[[], object]] = deque()
        self._flush_wanted = False
        self._closed = False
        self._empty = Signal()  # once closed: no link is left
        self._dial_at = inf  # when a dialler has something to do
        self._listeners: list[BlockingListener] = []
        make_dialler = partial(Dialler, self, self._plan_dial)
        self._keeper: ConnectionKeeper[Dialler] = ConnectionKeeper(
            connections, self.host.opened, make_dialler, backoff
        )
        self._keeper.begin()

    # --- for users: from any thread ---------------------------------------------------------------
    def listen(self, endpoint: Endpoint) -> Address:
        """Take connections at an address from now on; return it as bound.

        While no thread waits, they wait in the system's queue. Raises `TransportError` where the
        address cannot be had; the shell is lost then.
        """
        self._change(self._listen, endpoint)
        return self._listeners[-1].address

    @property
    def addresses(self) -> list[Address]:
        """Where connections are taken."""
        return [listener.address for listener in self._listeners]

    @property
    def trouble(self) -> str:
        """Why there is nobody to talk to, for the message of an error; "" if there is."""
        return self._keeper.trouble(self.host.links, self.addresses)

    def submit(self, *events: Input) -> bool:
        """Feed the engine inputs of the user's; what they make it send leaves as one piece.

        False if the shell is lost: then none was fed. While no thread waits, what can be done
        about a connection without blocking is done, too.
        """
        return self._change(self._submit, events)

    def submit_soon(self, *events: Input) -> None:
        """Feed the engine inputs from a place that must not wait for the lock: a generator's end.

        The garbage collector may run that in a thread that has the lock already.
        """
        if not events or self.lost:
            return
        self._todo.extend(partial(self.host.submit, event) for event in events)
        if not self._lock.locked():  # by this thread least of all; else its holder does the work
            self._change(self._settle)

    def set(self, signal: Signal) -> None:
        """Set a signal, and wake those who wait for it. Only from `deliver` and its like."""
        signal.is_set = True
        for bell in signal.bells:
            _ring(bell)
        signal.bells.clear()
        if self._leader is not None and signal is self._leader.signal:
            self._rouse_leader()

    def wait(self, signal: Signal, until: float = inf) -> bool:
        """Wait until a signal is set, or until an instant; return whether it is set.

        Raises `TransportError` when the shell is lost, for then it will not be set.
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
        """Let the engine end everything; what was sent still leaves, within `linger_s`."""
        if self._closed or not self._change(self._shut):
            return
        try:
            self.wait(self._empty, clock.now() + self.host.limits.linger_s + _CLOSE_MARGIN_S)
        except TransportError:  # another thread was interrupted: there is nothing left to close
            return
        self._change(self._abort)

    def discard(self) -> None:
        """Close our copies of the file descriptors, in a forked child; the parent keeps its own."""
        self.lost = "the call belongs to the process that made it, not to its fork"
        self._tidy()

    def __del__(self) -> None:
        self._close_bell()

    # --- all that happens under the lock ----------------------------------------------------------
    def _change(self, act: Callable[..., object], *arguments: Any) -> bool:
        """Do something while holding the lock; False if the shell is lost.

        A signal's handler may raise between any two instructions of the main thread. Bytes may have
        been read by then and not understood, or an engine's effects be half performed: if that
        happens in here nothing can be relied on any more, and the shell is lost. Whoever comes next
        sees that from `_changing`, even if the thread is interrupted once more on its way out.
        """
        if self.lost and self._bell_in < 0:  # in a fork, a thread may hold the lock for ever
            return False
        with self._lock:
            if self._is_lost():  # in this call a signal that came meanwhile does no harm yet
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
        """Give everything up: wake all who wait, who see that the shell is lost."""
        self.lost = "an exception out of a signal handler interrupted the client at work"
        while self._followers:
            _ring(self._followers.popitem()[0])
        leader = self._leader
        if leader is not None and leader.thread != get_ident():
            self._rouse()  # it polls; and tidies up, when it is back
        else:
            self._tidy()

    def _tidy(self) -> None:
        """Close all file descriptors, without a word to anybody."""
        while self._watched:
            self._watched.popitem()[1].discard()
        for link in self.host.links:
            link.stream.discard()  # type: ignore[attr-defined]  # all are ours
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
        """Do what is due, and see what has come, without waiting."""
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
        """Handle what a poll has brought, and see what this thread has to do next."""
        if self._leader is turn:
            self._polling_until = -inf
            self._handle(turn.ready)
        else:
            self._unfollow(turn)
        if turn.signal.is_set or clock.now() >= turn.until:
            self._quit(turn)
        # A leader of our own thread was interrupted so often that it could not step down.
        elif self._leader is None or self._leader.thread == turn.thread:
            self._leader = turn
            self._polling_until = turn.at = min(self.host.next_at(), self._dial_at, turn.until)
        else:
            turn.at = turn.until
            self._follow(turn)

    def _quit(self, turn: _Turn) -> None:
        """Wait no more, and let another thread lead if this one did."""
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
        """Pass the lead on, if nobody has it; the last one to leave a closed shell tidies up."""
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
        """Handle what is ready, and what is due."""
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
            self._rouse()

    def _rouse(self) -> None:
        if self._bell_in >= 0:
            with suppress(BlockingIOError):  # full of calls already
                os.write(self._bell_in, b"!")

    # --- what the host wants ----------------------------------------------------------------------
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
    """Wake the follower that sleeps on a bell; one that was woken already will come anyway."""
    if bell.locked():
        bell.release()
