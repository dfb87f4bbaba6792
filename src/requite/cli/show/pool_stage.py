"""A pool on stage: RabbitMQ, the manager, and the groups of workers that it starts by demand."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, ClassVar, Final

from requite.cli.pool.asking import ask
from requite.cli.show.groups import Groups
from requite.cli.show.itinerary import Itinerary
from requite.cli.show.pattern import COMMAND, Pattern, Plot, airports
from requite.cli.show.screen import Member
from requite.cli.show.tally import Tally
from requite.cli.show.traffic import RETRY, RequestSource
from requite.client import AsyncClient
from requite.errors import CallError, ConfigurationError
from requite.testing import lifetime
from requite.testing.processes import Child, ProcessFailed, State
from requite.testing.rabbitmq import RabbitServer, unavailable

NAME: Final = "countries"
_SERVICE: Final = "requite.examples.countries:nearest_at_home"
_MANAGER_NEEDS: Final = ("aiohttp", "prometheus_client", "starlette", "uvicorn")
# A call outlives restarts of RabbitMQ, of the manager and of its worker, one after the other.
_CALL_TIMEOUT_S: Final = 120.0
_ACTIVE_WITHIN_S: Final = 60.0
# RabbitMQ 3.10 may keep back a request that comes while its queue is made or deleted; so each goes
# out again when nothing has come of it for longer than a restart takes.
_RETRY: Final = replace(RETRY, attempt_timeout=20.0)
# Short, so that one sees groups go while one watches; each default is given behind.
_SETTINGS: Final = """\
[pool]
name = {name}

[rabbitmq]
url = {url}
management_url = {management_url}

[lifetime]
unbind_delay = 4.0     # 300
stop_delay = 1.0       # 60
extra_lifetime = 0.5   # 10

[loops]
interval = 0.25        # 5
backoff = 0.2          # 0.5
backoff_max = 1.0      # 30
settle = 1.0           # 6; this RabbitMQ counts every half second

[limits]
delivery_limit = 50    # 5; a request may be so unlucky as to lose several workers

[workers]
prefetch = 16          # 1

[http]
port = 0

[driver]
kind = "subprocess"
command = {command}
state_dir = {state}
log_dir = {log}
stop_timeout = 10
"""


class Server(RabbitServer):
    """RabbitMQ, as the screen shows it."""

    name: Final = "RabbitMQ"
    state = State.STARTING

    def check(self) -> None:
        """Raise `ProcessFailed` if it has ended although nobody killed it."""
        if self.state is State.RUNNING and not self.is_running:
            raise ProcessFailed(f"RabbitMQ ended: {self.log_tail()}")


class PoolStage(Pattern):
    """The manager is the only child: workers are its own affair. All that it, RabbitMQ and they
    write is in a folder that goes with the show."""

    is_audited: ClassVar[bool] = True
    time_limit_s: ClassVar[float] = 300.0

    def __init__(self, plot: Plot) -> None:
        super().__init__(plot)
        self.itinerary = Itinerary(airports(), plot.workers)
        self._stack = ExitStack()
        folder = self._stack.enter_context(TemporaryDirectory(prefix="requite-pool-"))
        self._folder = Path(folder)
        self.server = Server(self._folder)
        self._stack.callback(self.server.close)
        self.groups = Groups(self.itinerary.countries, self._folder / "state", f"{NAME}.default")
        self._cast: list[Member] = [self.server, *self.groups.all]
        self.members = self._cast
        self._stack.enter_context(lifetime.lock(self._lock))
        self.manager_kills = 0
        self.sleeper = self.itinerary.sleeper
        self.steady = self.itinerary.steady
        self.answers: Counter[str] = Counter()  # by country
        self.woke_after_s: float | None = 0.0  # None: the sleeper sleeps
        self._url = ""

    @classmethod
    def require(cls) -> None:
        """A RabbitMQ, and the packages of the manager."""
        super().require()
        missing = [name for name in _MANAGER_NEEDS if find_spec(name) is None]
        if missing:
            raise ConfigurationError(
                f"the manager of a pool needs {', '.join(missing)}: pip install 'requite[pool]'"
            )
        if reason := unavailable():
            raise ConfigurationError(reason)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
            self.groups.end()
        finally:
            self._stack.close()

    # --- everybody --------------------------------------------------------------------------------
    async def enter(self, stack: AsyncExitStack) -> None:
        """Start RabbitMQ and the manager. There are no workers until somebody asks for one."""
        await asyncio.to_thread(self.server.start)
        self.server.state = State.RUNNING
        self._settings.write_text(self._toml())
        self.children.append(await self._new_manager())
        self._cast[1:1] = self.children

    def new_client(self) -> AsyncClient:
        """Make a client of all groups."""
        return AsyncClient(
            f"{self.server.url}?pool={NAME}",
            retry=_RETRY,
            slots=self.plot.concurrency,
            journal=self.plot.journal,
        )

    def start_reckoner(self, neighbours: int, _airports: int) -> Child:
        """Start the process that computes what the answers must be, each within its country."""
        return self._start_reckoner(str(neighbours), "0", *self.itinerary.countries)

    def check(self) -> None:
        """Raise `ProcessFailed` if RabbitMQ or the manager ended; update the groups."""
        super().check()
        self.server.check()
        self.groups.look()

    async def conclude(self) -> None:
        """Nothing is counted elsewhere."""

    # --- requests ---------------------------------------------------------------------------------
    async def drive(
        self, client: AsyncClient, source: RequestSource, tally: Tally, neighbours: int
    ) -> None:
        """Make one client's calls, each to the group of its airport's country."""

        async def keep_asking() -> None:
            while (number := await source.take()) is not None:
                code = tally.asked[number]
                country = self.itinerary.country(code)
                body = f"{code} {neighbours} {number}".encode()
                try:
                    reply = await client.call(body, service=country, timeout=_CALL_TIMEOUT_S)
                except CallError as error:
                    tally.take(error)
                    continue
                tally.take(reply)
                self.answers[country] += 1
                if country == self.sleeper and self.woke_after_s is None:
                    self.woke_after_s = reply.elapsed

        await asyncio.gather(*(keep_asking() for _ in range(self.plot.concurrency)))

    # --- faults -----------------------------------------------------------------------------------
    async def kill_rabbit(self) -> None:
        """SIGKILL RabbitMQ, as it is; see `Upsets.settle` for what is waited for before."""
        self.server.state = State.KILLED
        await asyncio.to_thread(self.server.kill, settled=False)
        self.broker_kills += 1

    async def restart_rabbit(self) -> None:
        """Start it again, with its data."""
        await asyncio.to_thread(self.server.start)
        self.server.state = State.RUNNING

    def kill_manager(self) -> None:
        """SIGKILL the manager; its workers stay."""
        self.children[0].kill()
        self.manager_kills = (self.manager_kills or 0) + 1

    async def restart_manager(self) -> None:
        """Start its successor."""
        self.children[0] = self._cast[1] = await self._new_manager()

    async def status(self) -> Any:
        """Return what the manager knows, as `requite pool status --json` shows it."""
        return await asyncio.to_thread(ask, self._url, "/status")

    async def require_group(self, key: str) -> None:
        """Have a group started, as an operator may."""
        await asyncio.to_thread(ask, self._url, "/require", {"key": key})

    # --- inside -----------------------------------------------------------------------------------
    @property
    def _settings(self) -> Path:
        return self._folder / "pool.toml"

    @property
    def _lock(self) -> Path:
        return self._folder / "show.lock"

    def _toml(self) -> str:
        worker = [sys.executable, "-m", lifetime.__name__, "--lock", str(self._lock)]
        values = {
            "name": NAME,
            "url": self.server.url,
            "management_url": f"http://guest:guest@127.0.0.1:{self.server.management_port}",
            "command": [*worker, "-m", COMMAND, "worker", _SERVICE, "--pool", *self._journal()],
            "state": str(self._folder / "state"),
            "log": str(self._folder / "log"),
        }
        return _SETTINGS.format(**{name: json.dumps(value) for name, value in values.items()})

    def _journal(self) -> list[str]:
        return [f"--journal={self.plot.journal}"] if self.plot.journal else []

    async def _new_manager(self) -> Child:
        """Start a manager; return when it decides."""
        arguments = ("pool", "run", f"--config={self._settings}", *self._journal())
        manager = Child("manager", ["-m", COMMAND, *arguments])
        try:
            await asyncio.to_thread(manager.wait_for, ": active$", _ACTIVE_WITHIN_S)
            self._url = manager.wait_for(r" at (http\S+)$")[1]
        except BaseException:
            manager.kill()
            raise
        return manager
