"""A simulated process on its own node: it starts, crashes, loses power, freezes and thaws.

Subclasses define its turns: `engine_process.py` runs one engine in a `Host`, `program.py` a
coroutine on an event loop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from requite.principal import Credential
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import Act, World

_CLOCK_START_MAX_S: Final = 100_000.0


class Ending(StrEnum):
    """How a process ends; the value is for the transcript."""

    CRASH = "crashes"
    POWER_LOSS = "loses power"
    EXIT = "exits"


@dataclass(frozen=True, slots=True)
class Pace:
    """The maximum lateness of a process, in seconds: of its timers, and of its writes.

    An event loop reads in one turn and writes in a later one; in between, the connection may have
    changed.
    """

    timer_late_s: float = 0.0
    flush_late_s: float = 0.0


class Supervisor(Protocol):
    """Gets the events of processes."""

    def process_failed(self, process: Process, trace: str) -> None:
        """Report an exception of an engine, a framing or the host: always a bug (I13)."""

    def process_changed(self, process: Process, what: str) -> None:
        """Report that the process started, ended, froze or thawed."""


class Process:
    """The process of one node. `life` counts its starts; events from before a restart are void.

    Its clock begins at a random time after each start, so its times mean nothing to other
    processes. Its timers fire up to `pace.timer_late_s` late.
    """

    credential: Credential | None = None  # what its connections prove to their listener
    is_honest = True  # whether it follows the protocols, and must not be disconnected

    def __init__(
        self, name: str, world: World, network: Network, pace: Pace, supervisor: Supervisor
    ) -> None:
        self.name = name
        self.pace = pace
        self.world = world
        self.network = network
        self.life = 0
        self.alive = False
        self.retired = False  # it is not restarted
        self.drained = False  # it has finished its work, and is about to exit
        self.frozen = False
        self.frozen_s = 0.0  # the total time that it was frozen
        self.streams: dict[SimStream, None] = {}
        self.rng = world.rng(name)
        self._supervisor = supervisor
        self._clock_start = 0.0
        self._froze_at = 0.0
        # Events of a frozen process, in the order in which it handles them later.
        self._unread: dict[Any, Act] = {}
        self._overdue: list[Act] = []

    # --- for subclasses ---------------------------------------------------------------------------
    def make(self) -> None:
        """Create the state of a new start."""

    def boot(self) -> None:
        """Perform the first actions of the process, in a separate turn."""
        raise NotImplementedError

    def drain(self) -> None:
        """Finish pending work, accept no more, and exit."""
        raise NotImplementedError

    def accept(self, stream: SimStream) -> None:
        """Accept a connection that another process dialled."""
        raise NotImplementedError

    def end_turn(self) -> None:
        """Finish a turn: write pending output."""

    # --- life and death ---------------------------------------------------------------------------
    def start(self) -> None:
        """Start with empty state."""
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
        """End at once. The kernel closes the connections: with FIN if `politely`, else RST."""
        if self.alive:
            self._end(Ending.CRASH)
            for stream in self.streams:
                stream.die(politely=politely)
            self.streams.clear()

    def lose_power(self) -> None:
        """End with the whole machine: peers get no FIN."""
        if self.alive:
            self._end(Ending.POWER_LOSS)
            self.network.power_off(self.name)
            for stream in self.streams:
                stream.vanish()
            self.streams.clear()

    def exit(self) -> None:
        """End in order; all connections are closed or closing."""
        if self.alive:
            self._end(Ending.EXIT)
            for stream in self.streams:
                stream.die(politely=True)
            self.streams.clear()

    def _end(self, what: Ending) -> None:
        self.thaw_silently()
        self.life += 1
        self.alive = False
        self._supervisor.process_changed(self, what)

    # --- frozen: swapped out, stopped in a debugger, on a machine that sleeps ---------------------
    def freeze(self) -> None:
        """Stop handling events. The kernel keeps the connections, and buffers bytes."""
        if self.alive and not self.frozen:
            self.frozen = True
            self._froze_at = self.world.now
            self._supervisor.process_changed(self, "freezes")

    def thaw(self) -> None:
        """Resume: handle all events since the freeze at once, first input, then timers."""
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
        """Resume, and drop all events since the freeze."""
        if self.frozen:
            self.frozen_s += self.world.now - self._froze_at
        self.frozen = False
        self._unread = {}
        self._overdue = []

    # --- events: each is a turn -------------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Run `act` in the process, then write its output."""
        self._do(act, *args)
        self.end_turn()

    def has_io(self, stream: SimStream) -> None:
        """Schedule a turn that handles the events of a stream."""
        if stream not in self.streams:
            return
        if self.frozen:
            self._unread[stream] = stream.hand_over
        else:
            self.turn(stream.hand_over)

    def adopt(self, stream: SimStream, opened: Callable[[], object]) -> None:
        """Own a stream from now on; calls `opened` in a turn of the process."""
        self.streams[stream] = None
        if self.frozen:
            self._unread[opened] = opened
        else:
            self.turn(opened)
        self.has_io(stream)  # bytes may have arrived before

    def later(self, delay_s: float, act: Act, *args: Any) -> None:
        """Run `act` in the process after a delay, unless it has ended by then."""
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
        """Return the time on the clock of this process."""
        return self.world.now + self._clock_start
