"""Run a demo from its description: processes, requests and faults, and then the verdict."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from requite.cli.show.description import Demo, Role
from requite.cli.show.direct import Answer
from requite.cli.show.options import Scale
from requite.cli.show.replies import Replies, Verdict
from requite.cli.show.requests import RequestSource
from requite.cli.show.schedule import inject, order
from requite.cli.show.screen import REFRESH_EVERY_S, Member, Screen, open_screen
from requite.errors import ConfigurationError
from requite.testing.processes import Child, ProcessFailed, State, free_ports

if TYPE_CHECKING:
    from requite.client import AsyncClient

COMMAND: Final = ("-m", "requite.cli")
METHOD: Final = "airports.nearest"
"""The method of a typed service that the demos call (`requite.examples.typed`)."""

POLL_S: Final = 0.02
NEIGHBOURS: Final = 5  # airports in an answer
_READY_WITHIN_S: Final = 60.0
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_ANSWERS_WITHIN_S: Final = 30.0


class Addresses(dict[str, str]):
    """Values of the templates in a description; a name that is new gets a free address."""

    def __missing__(self, name: str) -> str:
        while (address := f"127.0.0.1:{free_ports(1)[0]}") in self.values():
            pass
        self[name] = address
        return address


class Run:
    """A run of a demo. Leaving the `with` block ends all processes.

    `children` are the processes, brokers before workers; a successor replaces a killed one.
    `redelivered` counts requests that a broker reports to have given to another worker.
    `manager_kills` is None without a manager. `journal` None: no journal is written.
    """

    manager_kills: int | None = None
    redelivered = 0
    screen: Screen

    def __init__(self, demo: Demo, scale: Scale, journal: Path | None) -> None:
        self.demo = demo
        self.scale = scale
        self.journal = journal
        self._stack = ExitStack()  # closed after all children have ended
        folder = self._stack.enter_context(TemporaryDirectory(prefix="requite-demo-"))
        self.folder = Path(folder)
        self.addresses = Addresses(folder=str(self.folder))
        brokers = [self._starter(role, 1) for role in demo.brokers]
        workers = [self._starter(role, n) for role, n in self._workers()]
        self._starters = [*brokers, *workers]
        self.brokers = range(len(brokers))
        self.workers = range(len(brokers), len(self._starters))
        self.next_broker = cycle(self.brokers)
        self.next_worker = cycle(self.workers)
        self.children: list[Child] = []
        self._computation: Child | None = None
        self.worker_kills = 0
        self.broker_kills = 0
        self.replies = Replies(self.airports(), are_in_envelopes=self.has_envelopes)
        self.source = RequestSource(len(self.replies.airports))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in (*self.children, *filter(None, [self._computation])):
            if child.state is not State.KILLED:
                child.kill()
        self._stack.close()

    @classmethod
    def require(cls) -> None:
        """Raise `ConfigurationError` if the demo needs something that is not installed."""
        import_module("requite.typed")  # raises it without msgspec, which the workers need
        all_airports()

    # --- requests ---------------------------------------------------------------------------------
    def airports(self) -> Sequence[str]:
        """Return the airport of each request; by default, one request for each airport."""
        codes = list(all_airports())
        requests = len(codes) if self.scale.requests is None else self.scale.requests
        return list(islice(cycle(codes), requests))

    def body(self, number: int) -> bytes:
        """Return the body of a request: a question in JSON, as any client could send it. Where the
        client names no service, the body begins with the name of the method."""
        question = {"code": self.replies.airports[number], "count": NEIGHBOURS}
        body = _encode(question | {"reference": str(number)}).encode()
        if "service" in self.demo.client:
            return body
        from requite.typed.envelope import wrap_request

        return wrap_request(METHOD, body)

    @property
    def has_envelopes(self) -> bool:
        """Whether replies carry their status in their bodies: the protocol has neither service
        names nor negative replies."""
        return "service" not in self.demo.client

    @property
    def outstanding(self) -> int:
        """Number of calls in flight."""
        return self.source.handed_out - self.replies.done

    async def answers(self, count: int) -> None:
        """Wait until `count` more calls have ended, or no call is in flight."""
        enough = self.replies.done + count
        give_up_at = time.monotonic() + _ANSWERS_WITHIN_S
        while self.replies.done < enough and self.outstanding:
            if time.monotonic() > give_up_at:
                raise ProcessFailed(f"no replies arrived for {_ANSWERS_WITHIN_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def new_client(self, **settings: Any) -> AsyncClient:
        """Make a client; `settings` replace those of the demo."""
        from requite.client import AsyncClient

        slots = self.scale.concurrency
        settings = {"slots": slots, "journal": self.journal, **self.demo.client, **settings}
        if self.demo.connection_per_call:
            settings["connections"] = slots
        return AsyncClient(self.url, **settings)

    @property
    def url(self) -> str:
        """URL of the service, for clients."""
        return self.demo.url.format_map(self.addresses)

    # --- processes --------------------------------------------------------------------------------
    async def start(self, _stack: AsyncExitStack) -> None:
        """Start all processes; return when they are ready. `_stack` is closed after the run."""
        for number in self.brokers:
            self.children.append(self._starters[number]())
            await self._ready(number)
        self.children += [self._starters[number]() for number in self.workers]
        for number in self.workers:
            await self._ready(number)

    async def restart(self, number: int) -> None:
        """Start the successor of a killed process; return when it is ready."""
        self.children[number] = self._starters[number]()
        await self._ready(number)

    async def settle(self) -> None:
        """Read, after the last call, the counters of other processes."""

    @property
    def members(self) -> Sequence[Member]:
        """The processes that the screen shows."""
        return self.children

    def check(self) -> None:
        """Raise `ProcessFailed` if a process has ended that was not killed."""
        for child in self.children:
            child.check()

    def compute_answers(self) -> Child:
        """Start the process that computes the correct answers and prints them."""
        return self.start_computation(str(len(self.replies.airports)))

    def start_computation(self, *arguments: str) -> Child:
        """Start it with arguments that say which airports."""
        command = ["-m", "requite.cli.show.direct", str(NEIGHBOURS), *arguments]
        self._computation = Child("the direct computation", command)
        return self._computation

    def _workers(self) -> list[tuple[Role, int]]:
        role = self.demo.workers
        if role is None:
            return []
        numbers = range(1, (role.count or self.scale.workers) + 1)
        self.addresses["workers"] = ",".join(self.addresses[f"worker {n}"] for n in numbers)
        return [(role, n) for n in numbers]

    def _starter(self, role: Role, number: int) -> Callable[[], Child]:
        own = {"n": str(number), "own": self.addresses[f"worker {number}"]}
        values = ChainMap(own, self.addresses)
        arguments = [word.format_map(values) for word in role.command.split()]
        if self.journal:
            arguments.append(f"--journal={self.journal}")
        return partial(Child, role.name.format_map(values), [*COMMAND, *arguments])

    async def _ready(self, number: int) -> None:
        roles = self.demo.brokers
        ready = roles[number].ready if number < len(roles) else ""
        await asyncio.to_thread(self.children[number].wait_for, ready, _READY_WITHIN_S)


def run_demo(run: Run) -> Verdict:
    """Run it.

    Raises `ProcessFailed` when a process fails, and `CancelledError` after SIGTERM, when all
    processes have ended.
    """
    from requite.shell import aio

    return aio.run(_run(run))


async def _run(run: Run) -> Verdict:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with run:
        computing = asyncio.ensure_future(_correct_answers(run))
        try:
            took_s = await _serve(run)
            return run.replies.judge(
                await computing,
                took_s=took_s,
                retries=run.replies.sent_again + run.redelivered,
                kills=(run.worker_kills, run.broker_kills),
                manager_kills=run.manager_kills,
            )
        finally:
            computing.cancel()


async def _correct_answers(run: Run) -> dict[str, Answer]:
    """Compute the correct answers in another process during the run."""
    output = await asyncio.to_thread(run.compute_answers().read_line, None)
    return {
        code: tuple((metres, neighbour) for metres, neighbour in row)
        for code, row in json.loads(output).items()
    }


async def _serve(run: Run) -> float:
    """Make all calls and inject all faults; return the seconds that took."""
    async with AsyncExitStack() as stack:
        await run.start(stack)
        clients = [
            await stack.enter_async_context(run.new_client()) for _ in range(run.scale.clients)
        ]
        run.screen = stack.enter_context(open_screen(run.replies, lambda: run.members))
        faults = [partial(action, run) for action in order(run.demo.faults, run.scale)]
        began, limit_s = time.monotonic(), run.demo.time_limit_s
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                watching = group.create_task(_watch(run))
                traffic = [group.create_task(_make_calls(run, client)) for client in clients]
                await asyncio.wait([group.create_task(inject(faults, run.source)), *traffic])
                await run.settle()
                watching.cancel()
        except TimeoutError:
            run.screen.note(f"some requests had no reply after {limit_s:.0f} s")
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # it cancelled the other tasks
        return time.monotonic() - began


async def _make_calls(run: Run, client: AsyncClient) -> None:
    await run.demo.traffic(run, client)


async def _watch(run: Run) -> None:
    while True:
        run.check()
        run.screen.refresh()
        await asyncio.sleep(REFRESH_EVERY_S)


def all_airports() -> Mapping[str, Any]:
    """Return all airports by code. Raises `ConfigurationError` if the package is missing."""
    try:
        import airportsdata
    except ImportError as error:
        raise ConfigurationError(
            "the demo requires the package airportsdata: pip install 'requite[demo]'"
        ) from error
    rows: Mapping[str, Any] = airportsdata.load()
    return rows
