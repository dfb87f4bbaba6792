"""A simulated process: an engine in its `Host`, on a node of its own, that can die and freeze.

It is the fourth shell, beside asyncio's, the blocking one and the tests': a few wires around a
`Host`. One event is one turn: whatever it causes is written at its end, each connection once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from requite.engine import Drain
from requite.shell.host import Host

if TYPE_CHECKING:
    from requite.engine import Engine
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.world import Act, World

# A timer that fires before its instant, by a rounding of the clock's offset, would be armed again
# for the same instant without end.
_ROUNDING_S: Final = 1e-6
_CLOCK_START_MAX_S: Final = 100_000.0
_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Pace:
    """How late a process does things, in seconds at most: timers that are due, and writing.

    An event loop writes in a later turn than the one in which it read; in between something may
    have happened to the connection.
    """

    timer_late_s: float = 0.0
    flush_late_s: float = 0.0


class Supervisor(Protocol):
    """Who is told what happens to processes as such."""

    def process_failed(self, process: Process, trace: str) -> None:
        """An exception came out of an engine, a framing or the host: a bug by definition (I13)."""

    def process_changed(self, process: Process, what: str) -> None:
        """It started, ended, froze or thawed."""


class Process:
    """What lives on one node. `life` counts its starts; what an earlier life ordered is void.

    Its clock starts anywhere, anew in each life: instants mean nothing to anybody else. Its timers
    fire up to `pace.timer_late_s` late.
    """

    is_honest = True  # whether it keeps to the protocols, and must not be punished for others

    def __init__(
        self, name: str, world: World, network: Network, pace: Pace, supervisor: Supervisor
    ) -> None:
        self.name = name
        self.pace = pace
        self.world = world
        self.network = network
        self.life = 0
        self.alive = False
        self.retired = False  # nobody starts it any more
        self.drained = False  # its engine is through
        self.frozen = False
        self.frozen_s = 0.0  # how long, over all
        self.streams: dict[SimStream, None] = {}
        self.host: Host
        self.engine: Engine
        self.rng = world.rng(name)
        self._supervisor = supervisor
        self._clock_start = 0.0
        self._armed = 0  # counts timers; only the last one is heeded
        self._flush_wanted = False
        self._froze_at = 0.0
        # What happens to a frozen process, in the order in which it will find out.
        self._unread: dict[Any, Act] = {}
        self._overdue: list[Act] = []
        self._timer_overdue = False

    # --- for subclasses ---------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Make the engine and the host of a new life."""
        raise NotImplementedError

    def started(self) -> None:
        """Do what the process does first."""

    # --- life and death ---------------------------------------------------------------------------
    def start(self) -> None:
        """Come up with an empty memory."""
        if self.alive or self.retired:
            return
        self.life += 1
        self.alive = True
        self.drained = False
        self._clock_start = self.rng.random() * _CLOCK_START_MAX_S
        self._armed += 1
        self.network.power_on(self.name)
        self.host = self.make_host()
        self.engine = self.host.engine
        self._supervisor.process_changed(self, "starts")
        self.turn(self._begin)

    def _begin(self) -> None:
        self.started()
        self.wake_at(self.host.next_at())

    def crash(self, *, politely: bool = True) -> None:
        """Die at once. The kernel closes the connections: with FIN where `politely`, else RST."""
        if self.alive:
            self._end("crashes")
            for stream in self.streams:
                stream.die(politely=politely)
            self.streams.clear()

    def lose_power(self) -> None:
        """Die with the whole machine: nobody is told."""
        if self.alive:
            self._end("loses power")
            self.network.power_off(self.name)
            for stream in self.streams:
                stream.vanish()
            self.streams.clear()

    def exit(self) -> None:
        """End in good order, all connections being closed or closing."""
        if self.alive:
            self._end("exits")
            for stream in self.streams:
                stream.die(politely=True)
            self.streams.clear()

    def drain(self) -> None:
        """Be told to finish and leave."""
        if self.alive:
            self.turn(self.host.submit, Drain())

    def has_stopped(self) -> None:
        """Leave, the engine having drained: close what stands, and exit when it has closed."""
        self.drained = True
        self.later(0.0, self._leave)

    def _leave(self) -> None:
        self.host.shut()
        self._exit_when_closed()

    def _exit_when_closed(self) -> None:
        if self.streams:
            self.later(_LOOK_EVERY_S, self._exit_when_closed)
        else:
            self.exit()

    def _end(self, what: str) -> None:
        self.thaw_silently()
        self.life += 1
        self.alive = False
        self._supervisor.process_changed(self, what)

    # --- frozen: swapped out, stopped in a debugger, on a machine that sleeps ---------------------
    def freeze(self) -> None:
        """Handle nothing any more. The kernel goes on: connections stand, bytes pile up."""
        if self.alive and not self.frozen:
            self.frozen = True
            self._froze_at = self.world.now
            self._supervisor.process_changed(self, "freezes")

    def thaw(self) -> None:
        """Find everything that has happened meanwhile at once: first what came, then timers."""
        if not self.frozen:
            return
        unread, overdue = list(self._unread.values()), self._overdue
        if self._timer_overdue:
            overdue = [self._wake, *overdue]
        self.thaw_silently()
        self._supervisor.process_changed(self, "thaws")
        life = self.life
        for act in (*unread, *overdue):
            if self.life == life:
                self._do(act)
        self._flush()

    def thaw_silently(self) -> None:
        """Stop being frozen, and forget what has piled up."""
        if self.frozen:
            self.frozen_s += self.world.now - self._froze_at
        self.frozen = False
        self._unread = {}
        self._overdue = []
        self._timer_overdue = False

    # --- events: each is a turn -------------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Let one thing happen to the process, and let it write what comes of it."""
        self._do(act, *args)
        if self._flush_wanted:
            self._flush()

    def has_io(self, stream: SimStream) -> None:
        """Let the process find out what there is about a stream."""
        if stream not in self.streams:
            return
        if self.frozen:
            self._unread[stream] = stream.hand_over
        else:
            self.turn(stream.hand_over)

    def accept(self, stream: SimStream) -> None:
        """Be dialled."""
        self.adopt(stream, lambda: self.host.opened(stream, accepted=True))

    def adopt(self, stream: SimStream, opened: Callable[[], object]) -> None:
        """Own a stream from now on; `opened` is called when the process gets to it."""
        self.streams[stream] = None
        if self.frozen:
            self._unread[opened] = opened
        else:
            self.turn(opened)
        self.has_io(stream)  # what came before the process knew of it

    def later(self, delay_s: float, act: Act, *args: Any) -> None:
        """Let the process itself do something after a time, unless it has died by then."""
        self.world.after(delay_s, self._later, self.life, act, args)

    def _later(self, life: int, act: Act, args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.frozen:
            self._overdue.append(lambda: act(*args))
        else:
            self.turn(act, *args)

    def _do(self, act: Act, *args: Any) -> None:
        try:
            act(*args)
        except Exception:
            self._fail(traceback.format_exc())

    def _fail(self, trace: str) -> None:
        self._supervisor.process_failed(self, trace)
        self.crash()

    # --- what the host wants ----------------------------------------------------------------------
    def clock(self) -> float:
        """Return the instant on the clock of this process."""
        return self.world.now + self._clock_start

    def want_flush(self) -> None:
        """Note that output waits for the end of the turn, or for one of the next."""
        if self.pace.flush_late_s:
            self.later(self.pace.flush_late_s * self.rng.random(), self.host.flush)
        else:
            self._flush_wanted = True

    def _flush(self) -> None:
        self._flush_wanted = False
        if self.alive:
            self._do(self.host.flush)

    def wake_at(self, at: float) -> None:
        """Set the one timer."""
        self._armed += 1
        if at != inf:
            late_s = _ROUNDING_S + self.pace.timer_late_s * self.rng.random()
            self.world.at(at - self._clock_start + late_s, self._timer, self._armed)

    def _timer(self, armed: int) -> None:
        if armed != self._armed or not self.alive:
            return
        if self.frozen:
            self._timer_overdue = True
        else:
            self.turn(self.host.wake)

    def _wake(self) -> None:
        if self.alive:
            self.host.wake()
