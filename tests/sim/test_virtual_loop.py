"""The event loop on virtual time: it behaves like asyncio's, and the seed decides the rest."""

from __future__ import annotations

import asyncio
import inspect
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from requite.errors import ConfigurationError, TransportError
from requite.shell import clock, entropy
from requite.sim.kernel import virtual
from requite.sim.kernel.medium import Shape
from requite.sim.kernel.network import Network
from requite.sim.kernel.process import Pace, Process
from requite.sim.kernel.program import Program
from requite.sim.kernel.world import World
from requite.transport.address import TcpAddress, parse_address
from requite.transport.aio import dial, listen
from requite.transport.base import Stream

Main = Callable[[], Coroutine[Any, Any, object]]


class Machine:
    """A simulated world with programs. Records their failures and changes."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world, Shape())
        self.pace = Pace(0.001, 0.001)
        self.failures: list[str] = []
        self.changes: list[str] = []

    def process_failed(self, process: Process, trace: str) -> None:
        """Record a failure."""
        self.failures.append(f"{process.name}: {trace}")

    def process_changed(self, process: Process, what: str) -> None:
        """Record a change."""
        self.changes.append(f"{process.name} {what}")

    def program(self, main: Main, name: str = "program") -> Program:
        """Return a program that runs `main`."""
        return Program(name, self.world, self.network, self.pace, self, main)

    def run(self, *mains: Main, until: float = 1000.0) -> None:
        """Run a program for each coroutine function."""
        for number, main in enumerate(mains):
            self.program(main, f"program-{number}").start()
        self.run_world(until)

    def run_world(self, until: float = 1000.0) -> None:
        """Advance the clock to `until`."""
        with virtual.world(self.world):
            self.world.run(until)


def ran(main: Main, seed: int = 1) -> Machine:
    """Run a coroutine to its end; check that it exits without failures."""
    machine = Machine(seed)
    machine.run(main)
    assert not machine.failures
    assert machine.changes[-1] == "program-0 exits"
    return machine


def test_sleep_takes_virtual_time() -> None:
    times: list[float] = []

    async def main() -> None:
        began = clock.now()
        await asyncio.sleep(100.0)
        times.append(clock.now() - began)

    machine = ran(main)
    assert 100.0 <= times[0] < 100.01
    assert machine.world.events < 20


def test_each_start_of_a_program_has_another_clock() -> None:
    starts: list[float] = []

    async def main() -> None:
        starts.append(asyncio.get_running_loop().time())

    machine = Machine()
    program = machine.program(main)
    for until in (10.0, 20.0):
        program.start()
        machine.run_world(until)
    assert len({*starts}) == 2
    assert all(start > 1.0 for start in starts)


def test_callbacks_run_in_order_and_new_ones_in_a_later_iteration() -> None:
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: (seen.append("first"), loop.call_soon(seen.append, "later")))
        loop.call_soon(seen.append, "second")
        loop.call_soon(seen.append, "third").cancel()
        await asyncio.sleep(1.0)

    ran(main)
    assert seen == ["first", "second", "later"]


def test_timers_never_fire_early_and_in_their_order() -> None:
    seen: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for delay_s in (0.3, 0.1, 0.2, 0.1):
            loop.call_later(
                delay_s, lambda delay_s=delay_s: seen.append((delay_s, loop.time() - began))
            )
        loop.call_later(0.15, seen.append, (0.0, 0.0)).cancel()
        await asyncio.sleep(1.0)

    ran(main)
    assert [delay_s for delay_s, _ in seen] == [0.1, 0.1, 0.2, 0.3]
    assert all(at >= delay_s for delay_s, at in seen)


def test_the_seed_orders_simultaneous_timers() -> None:
    def order(seed: int) -> str:
        seen: list[str] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            at = loop.time() + 1.0
            for letter in "abcd":
                loop.call_at(at, seen.append, letter)
            await asyncio.sleep(2.0)

        ran(main, seed)
        return "".join(seen)

    orders = {order(seed) for seed in range(10)}
    assert len(orders) > 3
    assert order(5) == order(5)


def test_sets_of_tasks_have_the_same_order_in_each_run() -> None:
    def order() -> list[str]:
        names: list[str] = []

        async def main() -> None:
            tasks = {asyncio.ensure_future(asyncio.sleep(i % 3)) for i in range(20)}
            done, _ = await asyncio.wait(tasks)
            names.extend(task.get_name() for task in done)

        ran(main)
        return names

    assert order() == order()


def test_to_thread_returns_the_result_or_raises() -> None:
    seen: list[Any] = []

    async def main() -> None:
        thread = asyncio.ensure_future(asyncio.to_thread(lambda: seen.append("thread") or 7))
        seen.append("loop")
        seen.append(await thread)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    ran(main)
    assert seen == ["loop", "thread", 7]


def test_no_event_loop_runs_in_a_thread() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            await asyncio.to_thread(asyncio.get_running_loop)

    ran(main)


def test_a_thread_must_not_wait_for_a_coroutine() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sleeping = asyncio.sleep(1.0)

        def wait() -> None:
            asyncio.run_coroutine_threadsafe(sleeping, loop).result()

        with pytest.raises(ConfigurationError, match="make the handler an `async def` function"):
            await asyncio.to_thread(wait)
        sleeping.close()

    ran(main)


@pytest.mark.parametrize(
    "act",
    [
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 1),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.create_subprocess_shell("true"),
    ],
)
def test_real_io_is_refused(act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="in a simulation: replace"):
            await act()

    ran(main)


def test_time_outs_and_cancellation_work() -> None:
    seen: list[str] = []

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(asyncio.sleep(10.0))
        asyncio.get_running_loop().call_later(1.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        seen.append("over")

    ran(main)
    assert seen == ["over"]


def test_an_abandoned_generator_is_closed() -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0.1)
            seen.append("closed")

    async def main() -> None:
        async for _number in numbers():
            break
        await asyncio.sleep(1.0)

    ran(main)
    assert seen == ["closed"]


def test_sigterm_is_handled_or_kills() -> None:
    seen: list[str] = []

    async def polite() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()
        seen.append("SIGTERM")

    async def other() -> None:
        await asyncio.get_running_loop().create_future()

    machine = Machine()
    programs = [machine.program(polite, "polite"), machine.program(other, "other")]
    for program in programs:
        program.start()
    machine.run_world(1.0)
    for program in programs:
        program.drain()
    machine.run_world(2.0)
    assert seen == ["SIGTERM"]
    assert machine.changes[-2:] == ["other crashes", "polite exits"]
    for program in programs:
        program.discard()


def test_a_killed_program_runs_no_finally_block() -> None:
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            seen.append("finally")

    machine = Machine()
    program = machine.program(main)
    program.start()
    machine.run_world(1.0)
    program.crash()
    machine.run_world(100.0)
    assert not seen
    program.discard()
    assert not seen  # the program stopped at the `await`
    assert not machine.failures


def test_discarding_a_program_closes_what_its_finally_blocks_begin() -> None:
    begun: list[Coroutine[Any, Any, None]] = []

    async def never() -> None:
        pytest.fail("a discarded program ran")

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            begun.extend((never(), never()))
            await asyncio.gather(*begun)

    machine = Machine()
    program = machine.program(main)
    program.start()
    machine.run_world(1.0)
    program.crash()
    program.discard()
    assert [inspect.getcoroutinestate(each) for each in begun] == 2 * [inspect.CORO_CLOSED]
    assert not machine.failures


def test_a_thawed_program_resumes() -> None:
    times: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1.0)
        times.append(clock.now())
        await asyncio.sleep(1.0)
        times.append(clock.now())

    machine = Machine()
    program = machine.program(main)
    program.start()
    machine.run_world(0.5)
    program.freeze()
    machine.run_world(10.0)
    program.thaw()
    machine.run_world(20.0)
    assert times[1] - times[0] < 1.01
    assert program.frozen_s == 9.5
    whats = [change.removeprefix("program ") for change in machine.changes]
    assert whats == ["starts", "freezes", "thaws", "exits"]


def test_exceptions_of_the_program_and_of_callbacks_are_reported() -> None:
    async def failing() -> None:
        raise ValueError("the program fails")

    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1.0)

    machine = Machine()
    machine.run(failing, careless)
    assert "ValueError: the program fails" in machine.failures[0]
    assert "ZeroDivisionError" in machine.failures[1]
    assert machine.changes[-2:] == ["program-0 crashes", "program-1 exits"]


def test_leftover_tasks_and_timers_are_listed() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(100.0, print)
        main.task = asyncio.ensure_future(asyncio.sleep(100.0))  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    machine = Machine()
    program = machine.program(main)
    program.start()
    machine.run_world(1.0)
    left = program.loop.left()
    assert [what.split()[1] for what in left] == ["task", "timer", "timer"]
    program.discard()


class Echo:
    """Echoes incoming bytes."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def received(self, link: Stream, chunk: bytes) -> None:
        """Send the bytes back."""
        link.write(chunk)

    def closed(self, _link: Stream, reason: str) -> None:
        """Record the end."""
        self.ended.append(reason)


class Caller:
    """Sends a message and records the answer."""

    def __init__(self, stream: Stream) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        stream.start(self, stream)
        stream.write(b"hello")

    def received(self, link: Stream, chunk: bytes) -> None:
        """Record the answer, and close."""
        self.heard.set_result(chunk)
        link.close()

    def closed(self, _link: Stream, _reason: str) -> None:
        """Ignore the end."""


def address(where: str) -> TcpAddress:
    """Parse a TCP address."""
    read = parse_address(where)
    assert isinstance(read, TcpAddress)
    return read


def test_transports_use_the_simulated_network() -> None:
    echo, heard = Echo(), []

    async def serve() -> None:
        listener = await listen(
            address("tcp://127.0.0.1:0"), lambda stream: stream.start(echo, stream)
        )
        with pytest.raises(TransportError, match="the address is in use"):
            await listen(listener.address, print)
        ports.append(listener.address)
        await asyncio.sleep(5.0)
        listener.close()
        await asyncio.sleep(5.0)

    async def call() -> None:
        await asyncio.sleep(1.0)
        callers: list[Caller] = []
        await dial(there(), lambda stream: callers.append(Caller(stream)))
        heard.append(await callers[0].heard)
        await asyncio.sleep(5.0)
        with pytest.raises(TransportError, match="connection refused"):
            await dial(there(), print)
        machine.network.cut("program-1", "program-0")
        with pytest.raises(TransportError, match=r"no answer within 0\.1 s"):
            await dial(there(), print, 0.1)

    def there() -> TcpAddress:
        return TcpAddress("program-0", ports[0].port)

    ports: list[Any] = []
    machine = Machine()
    machine.run(serve, call)
    assert not machine.failures
    assert heard == [b"hello"]
    assert echo.ended == [""]


def test_randomness_comes_from_the_seed_and_is_restored() -> None:
    before = clock.now, entropy.source, entropy.jitter, random.getstate()

    def drawn(seed: int) -> list[Any]:
        with virtual.world(World(seed)):
            return [entropy.source.randbytes(4), entropy.jitter(), random.random()]

    assert drawn(1) == drawn(1) != drawn(2)
    assert (clock.now, entropy.source, entropy.jitter, random.getstate()) == before
