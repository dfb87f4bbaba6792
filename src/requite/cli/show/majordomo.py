"""The Majordomo: a broker, workers that register with it, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import ClassVar, Final

from requite.cli.show.faults import Observer, count, plan, since
from requite.cli.show.pattern import COMMAND, SERVICE, Fault, Flow, Pattern, Plot
from requite.cli.show.screen import Screen
from requite.cli.show.traffic import RETRY
from requite.client import AsyncClient
from requite.core.liveness import HeartbeatPolicy
from requite.testing.processes import Child

_SERVICE_NAME: Final = "nearest"
_CAPACITY: Final = 8  # requests per worker, so that a kill hits several at once
# Short, so that a silence is noticed while one watches.
HEARTBEAT: Final = HeartbeatPolicy(interval_s=0.2, liveness=4)
HEARTBEAT_OPTIONS: Final = (
    f"--heartbeat-interval={HEARTBEAT.interval_s}",
    f"--liveness={HEARTBEAT.liveness}",
)
_LISTENING: Final = r"^listening on (\S+)$"


class Majordomo(Pattern):
    """The broker is the first of the children, then come the workers."""

    is_audited: ClassVar[bool] = True
    _observer: Observer

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        journal = [f"--journal={plot.journal}"] if plot.journal else []
        self._habits = (*HEARTBEAT_OPTIONS, *journal)
        self._address = "tcp://127.0.0.1:0"

    @property
    def workers(self) -> int:
        """How many workers there are when all is well."""
        return self.plot.workers

    @property
    def redelivered(self) -> int:
        """As the broker counts them."""
        return self._observer.known_redelivered

    @property
    def url(self) -> str:
        """Where the broker is."""
        return self._address.replace("tcp://", "mdp://")

    async def enter(self, stack: AsyncExitStack) -> None:
        """Start everybody, until the broker knows all workers. It takes a free port, and keeps it
        when it is started again."""
        self.children.append(self._new_broker())
        await self._await_broker()
        for number in range(1, self.workers + 1):
            self.children.append(self._new_worker(number))
        for child in self.children[1:]:
            await asyncio.to_thread(child.read_line)
        client = await stack.enter_async_context(self._new_client("mmi.stats", None))
        self._observer = Observer(client)
        await self._observer.wait_for_workers(lambda registered: registered == self.workers)

    def new_client(self) -> AsyncClient:
        """Make a client that keeps a journal, if any is kept."""
        return self._new_client(_SERVICE_NAME, self.plot.journal)

    def faults(self, screen: Screen, flow: Flow) -> list[Fault]:
        """Kill workers and the broker, and freeze a worker."""
        return plan(Faults(self, self._observer, screen, lambda: flow.outstanding), self.plot)

    async def conclude(self) -> None:
        """Ask the broker for the last time."""
        await self._observer.redelivered()

    def kill_broker(self) -> None:
        """SIGKILL the broker: its queues and tables are gone with it."""
        self.children[0].kill()
        self.broker_kills += 1

    async def restart_broker(self) -> None:
        """Start a broker at the same address."""
        self.children[0] = self._new_broker()
        await self._await_broker()

    def kill_worker(self, number: int) -> None:
        """SIGKILL worker `number` (from 1)."""
        self.children[number].kill()
        self.worker_kills += 1

    async def restart_worker(self, number: int) -> None:
        """Start a worker in the place of a killed one."""
        self.children[number] = self._new_worker(number)
        await asyncio.to_thread(self.children[number].read_line)

    def stop_worker(self, number: int) -> None:
        """SIGSTOP worker `number`."""
        self.children[number].stop()

    def resume_worker(self, number: int) -> None:
        """SIGCONT worker `number`."""
        self.children[number].resume()

    def _new_client(self, service: str, journal: Path | None) -> AsyncClient:
        return AsyncClient(
            self.url,
            service=service,
            retry=RETRY,
            heartbeat=HEARTBEAT,
            slots=self.plot.concurrency,
            journal=journal,
        )

    def _new_broker(self) -> Child:
        # A request may be so unlucky as to lose several workers; here none of them is poison.
        arguments = ("broker", f"--bind={self._address}", "--attempts=50", *self._habits)
        return Child("broker", ["-m", COMMAND, *arguments])

    async def _await_broker(self) -> None:
        found = await asyncio.to_thread(self.children[0].wait_for, _LISTENING)
        self._address = found[1]

    def _new_worker(self, number: int) -> Child:
        where = (f"--connect={self.url}", f"--capacity={_CAPACITY}")
        command = ["-m", COMMAND, "worker", SERVICE, *where, *self._habits]
        return Child(f"worker {number}", command)


class Faults:
    """Kills, stops and restarts members of the cast while the requests go on."""

    def __init__(
        self, cast: Majordomo, observer: Observer, screen: Screen, outstanding: Callable[[], int]
    ) -> None:
        self._cast = cast
        self._observer = observer
        self._screen = screen
        self._outstanding = outstanding
        self._victims = cycle(range(1, cast.workers + 1))

    async def kill_worker(self) -> None:
        """SIGKILL a worker with requests in its hands, and start another."""
        number = next(self._victims)
        before = await self._observer.redelivered()
        self._cast.kill_worker(number)
        await self._observer.wait_for_workers(self._is_short)
        moved = await self._observer.settled_redelivered() - before
        self._screen.note(f"worker {number} killed (SIGKILL): {count(moved)} went to others")
        began = time.monotonic()
        await self._cast.restart_worker(number)
        await self._observer.wait_for_workers(self._is_complete)
        self._screen.note(f"worker {number} started anew {since(began)} later")

    async def stop_worker(self) -> None:
        """SIGSTOP a worker past its liveness: its connection stays up, yet it is given up."""
        number = next(self._victims)
        before = await self._observer.redelivered()
        self._cast.stop_worker(number)
        began = time.monotonic()
        await self._observer.wait_for_workers(self._is_short)
        moved = await self._observer.settled_redelivered() - before
        self._screen.note(
            f"worker {number} stopped (SIGSTOP): silent for {since(began)}, given up; "
            f"{count(moved)} went to others"
        )
        self._cast.resume_worker(number)
        await self._observer.wait_for_workers(self._is_complete)
        self._screen.note(f"worker {number} resumed (SIGCONT) and registered again")

    async def kill_broker(self) -> None:
        """SIGKILL the broker and start it again: the clients send again what it had forgotten."""
        await self._observer.note_end_of_broker()
        self._cast.kill_broker()
        lost = count(self._outstanding())
        self._screen.note(f"broker killed (SIGKILL): {lost} will have to be sent again")
        began = time.monotonic()
        await self._cast.restart_broker()
        self._screen.note(f"broker started anew at {self._cast.url}, {since(began)} later")
        await self._observer.wait_for_workers(self._is_complete)
        self._screen.note(f"all workers registered again after {since(began)}")

    def _is_short(self, workers: int) -> bool:
        return workers < self._cast.workers

    def _is_complete(self, workers: int) -> bool:
        return workers == self._cast.workers
