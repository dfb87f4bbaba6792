"""A simulated process with one engine in a `Host`.

It is the fourth shell, beside asyncio's, the blocking one and the tests': a few wires around a
`Host`. One event is one turn: whatever it causes is written at its end, each connection once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Drain
from requite.shell.host import Host
from requite.sim.process import Pace, Process, Supervisor

if TYPE_CHECKING:
    from requite.engine import Engine
    from requite.sim.network import Network
    from requite.sim.stream import SimStream
    from requite.sim.world import Act, World

# A timer that fires before its instant, by a rounding of the clock's offset, would be armed again
# for the same instant without end.
_ROUNDING_S: Final = 1e-6
_LOOK_EVERY_S: Final = 0.05


class EngineProcess(Process):
    """Runs an engine. Its timers fire up to `pace.timer_late_s` late."""

    host: Host
    engine: Engine

    def __init__(
        self, name: str, world: World, network: Network, pace: Pace, supervisor: Supervisor
    ) -> None:
        super().__init__(name, world, network, pace, supervisor)
        self._armed = 0  # counts timers; only the last one is heeded
        self._flush_wanted = False

    # --- for subclasses ---------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Make the engine and the host of a new life."""
        raise NotImplementedError

    def started(self) -> None:
        """Do what the process does first."""

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Make the engine and the host."""
        self._armed += 1
        self.host = self.make_host()
        self.engine = self.host.engine

    def boot(self) -> None:
        """Start, and set the timer."""
        self.started()
        self.wake_at(self.host.next_at())

    def drain(self) -> None:
        """Tell the engine to finish what it has, taking nothing new."""
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

    def accept(self, stream: SimStream) -> None:
        """Take a connection that another process has dialled."""
        self.adopt(stream, lambda: self.host.opened(stream, accepted=True))

    # --- turns ------------------------------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Do one thing, and write what comes of it."""
        self._do(act, *args)
        if self._flush_wanted:
            self.end_turn()

    def end_turn(self) -> None:
        """Write."""
        self._flush_wanted = False
        if self.alive:
            self._do(self.host.flush)

    # --- what the host wants ----------------------------------------------------------------------
    def want_flush(self) -> None:
        """Note that output waits for the end of the turn, or for one of the next."""
        if self.pace.flush_late_s:
            self.later(self.pace.flush_late_s * self.rng.random(), self.host.flush)
        else:
            self._flush_wanted = True

    def wake_at(self, at: float) -> None:
        """Set the one timer."""
        self._armed += 1
        if at != inf:
            late_s = _ROUNDING_S + self.pace.timer_late_s * self.rng.random()
            self.world.at(at - self._clock_start + late_s, self._timer, self._armed)

    def _timer(self, armed: int) -> None:
        if armed != self._armed or not self.alive:
            return
        if self.frozen:  # the first thing that it finds overdue
            self._overdue.insert(0, self._wake)
        else:
            self.turn(self.host.wake)

    def _wake(self) -> None:
        if self.alive:
            self.host.wake()
