"""A pool's demo: RabbitMQ, a manager, and groups of workers that it starts by demand."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from requite.cli.pool.client import Manager, ask
from requite.cli.show.countries import Countries
from requite.cli.show.description import Demo
from requite.cli.show.groups import Groups
from requite.cli.show.options import Scale
from requite.cli.show.run import COMMAND, Run, all_airports
from requite.cli.show.schedule import milestones, order
from requite.cli.show.screen import Member
from requite.cli.show.traffic import each_request
from requite.errors import ConfigurationError
from requite.testing import lifetime
from requite.testing.processes import Child, ProcessFailed, State
from requite.testing.rabbitmq import RabbitServer, unavailable

if TYPE_CHECKING:
    from requite.client import AsyncClient

MANAGER: Final = 0
_NAME: Final = "countries"
_SERVICE: Final = "requite.examples.countries:airports"
_MANAGER_NEEDS: Final = ("aiohttp", "prometheus_client", "starlette", "uvicorn")
# Longer than restarts of RabbitMQ, the manager and a worker one after the other.
_CALL_TIMEOUT_S: Final = 120.0
# Short, so that groups stop during the demo. The comments have the defaults.
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
port = {port}

[driver]
kind = "subprocess"
command = {command}
state_dir = {state}
log_dir = {log}
stop_timeout = 10
"""


class Server(RabbitServer):
    """RabbitMQ, with a state for the screen."""

    name: Final = "RabbitMQ"
    state = State.STARTING

    def check(self) -> None:
        """Raise `ProcessFailed` if it has ended and was not killed."""
        if self.state is State.RUNNING and not self.is_running:
            raise ProcessFailed(f"RabbitMQ ended: {self.log_tail()}")


class PoolRun(Run):
    """Runs RabbitMQ beside the manager, which is the only child and starts the workers itself.

    One country, `idle`, gets no requests for a while; `woke_after_s` is the latency of the first
    answer after that, None while it is idle. `answers_of` counts the answers by country.
    """

    manager_kills: int

    def __init__(self, demo: Demo, scale: Scale, journal: Path | None) -> None:
        self.countries = Countries(all_airports(), scale.workers)
        super().__init__(demo, scale, journal)
        self.server = Server(self.folder)
        self._stack.callback(self.server.close)
        self.groups = Groups(self.countries.keys, self.folder / "state", f"{_NAME}.default")
        self._stack.callback(self.groups.kill)
        self._lock = self.folder / "demo.lock"
        self._stack.enter_context(lifetime.lock(self._lock))
        self.idle = self.groups[self.countries.idle]
        self.next_group = cycle([self.groups[key] for key in self.countries.busy])
        self.manager_kills = 0
        self.answers_of: Counter[str] = Counter()
        self.woke_after_s: float | None = 0.0
        self.generation = -1  # of the manager's state when all queues were there

    @classmethod
    def require(cls) -> None:
        """Raise `ConfigurationError` unless RabbitMQ and the manager's packages are installed."""
        super().require()
        missing = [name for name in _MANAGER_NEEDS if find_spec(name) is None]
        if missing:
            raise ConfigurationError(
                f"the manager of a pool requires {', '.join(missing)}: pip install 'requite[pool]'"
            )
        if reason := unavailable():
            raise ConfigurationError(reason)

    @property
    def has_envelopes(self) -> bool:
        """See `Run.has_envelopes`; RabbitMQ carries negative replies."""
        return False

    def airports(self) -> Sequence[str]:
        """Return the airport of each request.

        The idle country gets none from the first fault until its group has stopped.
        """
        asked = self.scale.requests
        requests = self.countries.airports if asked is None else asked
        actions = order(self.demo.faults, self.scale)
        at = milestones(len(actions), requests)
        wakes = next(fault.actions[-1] for fault in self.demo.faults if fault.amount is None)
        return self.countries.codes(requests, range(at[0], at[actions.index(wakes)]))

    @property
    def url(self) -> str:
        """URL of all groups."""
        return f"{self.server.url}?pool={_NAME}"

    async def start(self, stack: AsyncExitStack) -> None:
        """Start RabbitMQ and the manager; requests start the workers."""
        await self.start_rabbitmq()
        (self.folder / "pool.toml").write_text(self._settings())
        await super().start(stack)

    @property
    def members(self) -> Sequence[Member]:
        """See `Run.members`."""
        return [self.server, *self.children, *self.groups.all]

    def check(self) -> None:
        """Raise `ProcessFailed` if RabbitMQ or the manager has ended; read which workers run."""
        super().check()
        self.server.check()
        self.groups.refresh()

    def compute_answers(self) -> Child:
        """See `Run.compute_answers`; the answers are within the country of each airport."""
        return self.start_computation("0", *self.countries.keys)

    async def start_rabbitmq(self) -> None:
        """Start RabbitMQ with its former data."""
        await asyncio.to_thread(self.server.start)
        self.server.state = State.RUNNING

    async def kill_rabbitmq(self) -> None:
        """Kill RabbitMQ without writing declarations to disk; see `pool_faults.await_queues`."""
        self.server.state = State.KILLED
        await asyncio.to_thread(self.server.kill, settled=False)
        self.broker_kills += 1

    async def status(self) -> Any:
        """Return the manager's status, as `requite pool status --json` prints it."""
        return await asyncio.to_thread(ask, self._manager, "/status")

    async def require_group(self, key: str) -> None:
        """Have the manager start a group, as `requite pool require` does."""
        await asyncio.to_thread(ask, self._manager, "/require", {"key": key})

    @property
    def _manager(self) -> Manager:
        return Manager(f"http://{self.addresses['manager']}")

    def _settings(self) -> str:
        bound = [sys.executable, "-m", lifetime.__name__, "--lock", str(self._lock)]
        journal = [f"--journal={self.journal}"] if self.journal else []
        values = {
            "name": _NAME,
            "url": self.server.url,
            "management_url": f"http://guest:guest@127.0.0.1:{self.server.management_port}",
            "port": int(self.addresses["manager"].rpartition(":")[2]),
            "command": [*bound, *COMMAND, "worker", _SERVICE, "--pool", *journal],
            "state": str(self.folder / "state"),
            "log": str(self.folder / "log"),
        }
        return _SETTINGS.format(**{name: json.dumps(value) for name, value in values.items()})


async def call_groups(run: PoolRun, client: AsyncClient) -> None:
    """Make the calls of one client, each to the group of its airport's country."""

    async def call(number: int) -> None:
        country = run.countries.country(run.replies.airports[number])
        reply = await client.call(run.body(number), service=country, timeout=_CALL_TIMEOUT_S)
        run.replies.add(reply)
        run.answers_of[country] += 1
        if country == run.idle.key and run.woke_after_s is None:
            run.woke_after_s = reply.elapsed

    await each_request(run, call)
