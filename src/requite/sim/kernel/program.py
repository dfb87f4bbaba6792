"""A simulated process that runs a coroutine on an event loop, as `asyncio.run` does.

The coroutine contains what a user's program does: it serves as a broker or a worker, or makes
calls. The process crashes, freezes and loses power like every simulated process; a drain sends
SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Callable, Coroutine
from math import inf
from typing import TYPE_CHECKING, Any, Final

from requite.errors import TransportError
from requite.sim.kernel import virtual
from requite.sim.kernel.disk import Killed
from requite.sim.kernel.loop import VirtualLoop
from requite.sim.kernel.process import Ending, Pace, Process, Supervisor
from requite.transport import inproc, tcp
from requite.transport.address import HostAddress
from requite.transport.base import Listener, OnStream
from requite.transport.sockets import cannot

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import Act, World

Main = Callable[[], Coroutine[Any, Any, object]]

# Rounding of the clock's offset could make a timer fire early; it would be re-armed for the same
# time forever.
_ROUNDING_S: Final = 1e-6
# The number of iterations at one instant without other events in between.
_ITERATIONS_MAX: Final = 100
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_FIRST_FREE_PORT: Final = 49152


class Program(Process):
    """Runs `main` after each start, and exits when `main` returns."""

    loop: VirtualLoop

    def __init__(
        self,
        name: str,
        world: World,
        network: Network,
        pace: Pace,
        supervisor: Supervisor,
        main: Main,
    ) -> None:
        super().__init__(name, world, network, pace, supervisor)
        self.has_exited = False  # whether `main` has returned since the last start
        self._main = main
        self._is_scheduled = False  # an iteration of the loop is scheduled
        self._stalled = False  # an iteration was due while the process was frozen
        self._armed_at = inf  # the time of the next timer, in world time
        self._armed = 0
        self._loops: list[VirtualLoop] = []  # of all starts; their coroutines are closed at the end
        self._free_port = _FIRST_FREE_PORT

    # --- life -------------------------------------------------------------------------------------
    def make(self) -> None:
        """Create the event loop of a new start."""
        self.has_exited = self._is_scheduled = self._stalled = False
        self._armed_at = inf
        self._armed += 1
        self.loop = VirtualLoop(self)  # type: ignore[abstract]
        self._loops.append(self.loop)
        tcp.networks[self.loop] = ProgramNetwork(self)

    def boot(self) -> None:
        """Start the task of `main`."""
        self.loop.create_task(self._run(), name=f"{self.name}-main")

    def exit(self) -> None:
        """Exit normally."""
        self.has_exited = True
        super().exit()

    async def _run(self) -> None:
        life = self.life
        try:
            await self._main()
        except Exception:
            if life == self.life:  # else `discard` closes this coroutine
                self._fail(traceback.format_exc())
        else:
            self.exit()

    def drain(self) -> None:
        """Send SIGTERM, which kills a process that does not handle it."""
        if self.alive and not self.loop.signal(signal.SIGTERM):
            self.crash()

    def _end(self, what: Ending) -> None:
        super()._end(what)
        self.loop.is_over = True
        self.network.listen_no_more(self)

    def discard(self) -> None:
        """Close the event loops of all starts, once the run is over."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.discard()
            # The values refer to the loop, so the weak keys would never be removed.
            tcp.networks.pop(loop, None)
            inproc.forget(loop)

    # --- turns: iterations of the loop ------------------------------------------------------------
    def turn(self, act: Act, *args: Any) -> None:
        """Call `act` in the next iteration of the loop."""
        self.loop.call_soon(act, *args)

    def _do(self, act: Act, *args: Any) -> None:
        self.loop.call_soon(act, *args)

    def end_turn(self) -> None:
        """Run the iteration that was due while the process was frozen."""
        if self._stalled:
            self._stalled = self._is_scheduled = False
            self.want_iteration()

    def want_iteration(self) -> None:
        """Schedule an iteration of the loop, after a random delay up to `pace.flush_late_s`."""
        if not self._is_scheduled and self.alive:
            self._is_scheduled = True
            late_s = self.pace.flush_late_s
            self.world.after(
                late_s * self.rng.random() if late_s else 0.0, self._iterate, self.life
            )

    def _iterate(self, life: int) -> None:
        """Run the iteration that was scheduled. Those that it causes follow at once if none is
        ever late."""
        if life != self.life:
            return
        if self.frozen:
            self._stalled = True
            return
        loop = self.loop
        with virtual.process(self):
            loop.iterate(1 if self.pace.flush_late_s else _ITERATIONS_MAX)
        if life == self.life:
            self._is_scheduled = False
            if loop.is_ready:
                self.want_iteration()
            self.wake_at(loop.next_at)

    def wake_at(self, at: float) -> None:
        """Schedule an iteration for a timer at `at` on the process's clock, unless an earlier one
        is scheduled."""
        instant = at - self._clock_start
        if at != inf and instant < self._armed_at:
            self._armed += 1
            self._armed_at = instant
            late_s = _ROUNDING_S + self.pace.timer_late_s * self.rng.random()
            self.world.at(instant + late_s, self._timer, self._armed)

    def _timer(self, armed: int) -> None:
        if armed == self._armed and self.alive:
            self._armed_at = inf
            if self.pace.flush_late_s or self._is_scheduled:
                self.want_iteration()
            else:
                self._is_scheduled = True
                self._iterate(self.life)

    def in_thread(self, delay_s: float, act: Act, *args: Any) -> None:
        """Call `act` after `delay_s`, outside the event loop."""
        self.world.after(delay_s, self._in_thread, self.life, act, args)

    def _in_thread(self, life: int, act: Act, args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.frozen:
            self._overdue.append(lambda: act(*args))
            return
        with virtual.process(self):
            try:
                act(*args)
            except Killed:
                self.killed()
            except Exception:
                self._fail(traceback.format_exc())

    def killed(self) -> None:
        """End at an operation of the disk (`SimDisk.stop_at`)."""
        self.crash()

    # --- errors -----------------------------------------------------------------------------------
    def callback_failed(self, context: dict[str, Any]) -> None:
        """Report an exception of a callback: a violation (I13).

        Exceptions of tasks that nothing awaits are not reported: the time of their detection
        depends on garbage collection.
        """
        error = context.get("exception")
        if error is not None and "handle" in context:
            trace = "".join(traceback.format_exception(error))
            self._supervisor.process_failed(self, f"{context['message']}\n{trace}")

    # --- connections ------------------------------------------------------------------------------
    def has_io(self, stream: SimStream) -> None:
        """Pass the events of a stream to its owner, in the next iteration of the loop."""
        if stream not in self.streams:
            return
        if self.frozen:
            self._unread[stream] = lambda: self._hand_over(stream)
        else:
            self.turn(self._hand_over, stream)

    def _hand_over(self, stream: SimStream) -> None:
        if stream in self.streams:  # else an earlier callback has closed it
            stream.hand_over()

    def free_port(self) -> int:
        """Return an unused port."""
        self._free_port += 1
        return self._free_port

    def forget(self, stream: SimStream) -> None:
        """Close a connection that was established after its dial was cancelled."""
        if self.streams.pop(stream, stream) is None:
            stream.die(politely=False)


class ProgramNetwork:
    """Connects a program to others; a host name is the name of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def listen(self, address: HostAddress, on_stream: OnStream) -> Listener:
        """Listen at a port of this node, whatever the host. Raises `TransportError`."""
        program = self._program
        bound = type(address)(address.host, address.port or program.free_port())
        where = f"{program.name}:{bound.port}"
        if program.network.is_taken(where):
            raise cannot("listen at", address, "the address is in use")

        def accept(stream: SimStream) -> None:
            program.adopt(stream, lambda: on_stream(stream))

        program.network.listen(program, str(bound.port), accept)
        return ProgramListener(bound, lambda: program.network.stop_listening(where))

    async def dial(self, address: HostAddress, on_stream: OnStream) -> None:
        """Connect to a port of a node. Raises `TransportError`."""
        program = self._program
        answer: asyncio.Future[None] = program.loop.create_future()

        def adopted(stream: SimStream) -> None:
            if answer.done():
                program.forget(stream)
            else:
                on_stream(stream)
                answer.set_result(None)

        def connected(stream: SimStream) -> None:
            program.adopt(stream, lambda: adopted(stream))

        def failed(why: str) -> None:
            program.later(0.0, _refuse, answer, cannot("connect to", address, why))

        host = program.name if address.host in _OWN_NAMES else address.host
        program.network.dial(program, f"{host}:{address.port}", connected, failed)
        await answer


class ProgramListener:
    """A port at which a program listens."""

    def __init__(self, address: HostAddress, close: Callable[[], object]) -> None:
        self.address = address
        self._close = close

    def close(self) -> None:
        """Stop accepting connections."""
        self._close()


def _refuse(answer: asyncio.Future[None], error: TransportError) -> None:
    if not answer.done():
        answer.set_exception(error)
