"""A simulated process with one engine in a `Host`.

This is the fourth shell around a `Host`, beside asyncio's, the blocking one and the tests'. One
event is one turn: its output is written at the end of the turn, once per connection.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Drain
from requite.shell.connections import no_framing
from requite.shell.host import Host
from requite.sim.kernel.process import Pace, Process, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from requite.engine import Engine
    from requite.framing.base import Framing
    from requite.shell.link import LinkLimits
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import Act, World

# A timer that fires too early, by a rounding of the clock's offset, would be re-armed for the same
# instant forever.
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
        self._armed = 0  # counts timers; only the last one counts
        self._flush_wanted = False

    # --- for subclasses ---------------------------------------------------------------------------
    def make_host(self) -> Host:
        """Return a host with a new engine."""
        raise NotImplementedError

    def started(self) -> None:
        """Perform the first actions of the process: listen, dial."""

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Create the engine and the host."""
        self._armed += 1
        self.host = self.make_host()
        self.engine = self.host.engine

    def boot(self) -> None:
        """Start, and arm the timer."""
        self.started()
        self.wake_at(self.host.next_at())

    def drain(self) -> None:
        """Drain the engine: it finishes pending work and accepts no more."""
        if self.alive:
            self.turn(self.host.submit, Drain())

    def has_stopped(self) -> None:
        """Exit after a drain: close all connections, and wait until they are closed."""
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
        """Accept a connection that another process dialled."""
        self.adopt(stream, lambda: self.host.opened(stream, accepted=True))

    # --- turns ------------------------------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Run `act`, then write its output."""
        self._do(act, *args)
        if self._flush_wanted:
            self.end_turn()

    def end_turn(self) -> None:
        """Write pending output, and go on with the turns that the host wants while messages wait.
        They take no time."""
        while self._flush_wanted and self.alive:
            self._flush_wanted = False
            self._do(self.host.flush)

    def host_of(
        self,
        engine: Engine,
        limits: LinkLimits,
        make_framing: Callable[[], Framing] = no_framing,
        kind: Callable[..., Host] = Host,
        **options: Any,
    ) -> Host:
        """Return a host of an engine, with the clock and the timer of this process."""
        return kind(
            engine,
            self.clock,
            make_framing,
            wake_at=self.wake_at,
            want_flush=self.want_flush,
            stopped=self.has_stopped,
            limits=limits,
            logger="requite.sim",
            **options,
        )

    # --- for the host -----------------------------------------------------------------------------
    def want_flush(self) -> None:
        """Request a flush at the end of this turn, or of a later one."""
        if self.pace.flush_late_s:
            self.later(self.pace.flush_late_s * self.rng.random(), self.host.flush)
        else:
            self._flush_wanted = True

    def wake_at(self, at: float) -> None:
        """Arm the timer."""
        self._armed += 1
        if at != inf:
            late_s = _ROUNDING_S + self.pace.timer_late_s * self.rng.random()
            self.world.at(at - self._clock_start + late_s, self._timer, self._armed)

    def _timer(self, armed: int) -> None:
        if armed != self._armed or not self.alive:
            return
        if self.frozen:  # it fires first after the freeze
            self._overdue.insert(0, self._wake)
        else:
            self.turn(self.host.wake)

    def _wake(self) -> None:
        if self.alive:
            self.host.wake()
