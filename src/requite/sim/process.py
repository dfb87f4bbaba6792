"""A simulated process on a node of its own: it lives, dies, loses power, freezes and thaws.

What it does in a turn is up to subclasses: `engine_process.py` has one engine in a `Host`,
`shells/program.py` runs a coroutine on an event loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.world import Act, World

_CLOCK_START_MAX_S: Final = 100_000.0


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
        self.drained = False  # it has nothing left to do, and is about to leave
        self.frozen = False
        self.frozen_s = 0.0  # how long, over all
        self.streams: dict[SimStream, None] = {}
        self.rng = world.rng(name)
        self._supervisor = supervisor
        self._clock_start = 0.0
        self._froze_at = 0.0
        # What happens to a frozen process, in the order in which it will find out.
        self._unread: dict[Any, Act] = {}
        self._overdue: list[Act] = []

    # --- for subclasses ---------------------------------------------------------------------------
    def make(self) -> None:
        """Make what a new life needs."""

    def boot(self) -> None:
        """Do what the process does first, in a turn of its own."""
        raise NotImplementedError

    def drain(self) -> None:
        """Be told to finish what is there, taking nothing new, and to exit."""
        raise NotImplementedError

    def accept(self, stream: SimStream) -> None:
        """Take a connection that another process has dialled."""
        raise NotImplementedError

    def end_turn(self) -> None:
        """Do what comes at the end of a turn."""

    # --- life and death ---------------------------------------------------------------------------
    def start(self) -> None:
        """Come up with an empty memory."""
        if self.alive or self.retired:
            return
        self.life += 1
        self.alive = True
        self.drained = False
        self._clock_start = self.rng.random() * _CLOCK_START_MAX_S
        self.network.power_on(self.name)
        self.make()
        self._supervisor.process_changed(self, "starts")
        self.turn(self.boot)

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
        self.thaw_silently()
        self._supervisor.process_changed(self, "thaws")
        life = self.life
        for act in (*unread, *overdue):
            if self.life == life:
                self._do(act)
        self.end_turn()

    def thaw_silently(self) -> None:
        """Stop being frozen, and forget what has piled up."""
        if self.frozen:
            self.frozen_s += self.world.now - self._froze_at
        self.frozen = False
        self._unread = {}
        self._overdue = []

    # --- events: each is a turn -------------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Let one thing happen to the process, and let it write what comes of it."""
        self._do(act, *args)
        self.end_turn()

    def has_io(self, stream: SimStream) -> None:
        """Let the process find out what there is about a stream."""
        if stream not in self.streams:
            return
        if self.frozen:
            self._unread[stream] = stream.hand_over
        else:
            self.turn(stream.hand_over)

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

    def clock(self) -> float:
        """Return the instant on the clock of this process."""
        return self.world.now + self._clock_start
