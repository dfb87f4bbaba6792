"""`Worker`: serves one or more services behind a broker, until it is told to stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from requite.chronicle import Role
from requite.errors import ConfigurationError, LocalViolation
from requite.framing import Limits, Mechanism, Null, PlainClient, SocketType, Zmtp
from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.shell import clock
from requite.shell.aio import AioShell, run
from requite.shell.journaling import Folder, chronicle_of, journal_in, new_name
from requite.shell.signals import StopSignals
from requite.shell.wires import Wires
from requite.url import ServiceUrl, parse_url
from requite.worker.handler import Service
from requite.worker.runner import Runner

# Enough for the next request to be here when one is answered, on any network where that matters.
CAPACITY_DEFAULT: Final = 16


class Worker:
    """Serves `services` behind the broker at `url`.

        requite.Worker("mdp://localhost:5555", echo).run()

    It registers by itself, also after the broker was away; a broker that never comes is waited for.

    - `capacity`: how many requests it takes at a time, per service (16; always 1 in MDP 0.1 and
      0.2). Requests beyond what its handlers work on wait here rather than at another worker, so
      give handlers that take long a small one.
    - `heartbeat`: how often to be heard and when a silent broker is gone; seconds or a policy.
    - `handler_timeout`: seconds a handler may take without `request.progress()` before the broker
      gives its request to another worker; None: no limit.
    - `threads`: how many calls of a handler that is a plain function run at a time (default:
      `capacity`). With a `handler_timeout` no more requests are taken than that: one that waited
      for a thread would spend the time its handler has.
    - `drain_timeout`: seconds a draining worker lets its handlers go on.
    - `dialect`: the version of MDP, "0.3" unless the URL says otherwise.
    - `message_size_max`: bytes of one message, in either direction.
    - `journal`: a folder in which to keep a journal of requests (`requite.journal`); None: none.

    Raises `ConfigurationError` for a URL, a service or a setting that cannot work.
    """

    def __init__(
        self,
        url: str,
        *services: Service,
        capacity: int | None = None,
        heartbeat: HeartbeatPolicy | float | None = None,
        handler_timeout: float | None = None,
        threads: int | None = None,
        drain_timeout: float = 30.0,
        dialect: str | None = None,
        message_size_max: int = Limits().message_size_bytes_max,
        journal: Folder | None = None,
    ) -> None:
        self._url = parse_url(url)
        self._services = _check_services(services, self._url)
        self._dialect = by_version(dialect or self._url.options.get("dialect", "0.3"))
        if capacity is None:
            capacity = CAPACITY_DEFAULT if self._dialect.has_ids else 1
        self._policy = WorkerPolicy(
            capacity=capacity, heartbeat=_heartbeat(heartbeat), lease_s=handler_timeout or 0.0
        )
        self._threads = threads or capacity
        self._drain_timeout_s = drain_timeout
        self._mechanism = _mechanism(self._url)
        self._reply_size_max = message_size_max
        self._limits = Limits.for_bodies(message_size_max)
        self._started = False
        self._name = new_name()
        self._journal = journal_in(journal, Role.WORKER, self._name)
        self._posts: list[_Post] = []
        self._engines = [self._engine(each) for each in self._services]  # refuses bad names here

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self._services)
        return f"<Worker {names} for {self._url}>"

    # --- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Begin to serve, on the running event loop; connecting goes on in the background.

        Raises `StorageError` where the journal cannot be kept, and `LocalViolation` the second
        time: a worker that has been closed stays closed.
        """
        if self._started:
            raise LocalViolation("a worker starts once; make another one to serve again")
        self._started = True
        if self._journal is not None:
            self._journal.start()
        for each, engine in zip(self._services, self._engines, strict=True):
            capacity = self._policy_for(each).capacity
            runner = Runner(
                each,
                capacity,
                self._threads,
                self._reply_size_max,
                tell_starts=self._journal is not None,
            )
            post = _Post(engine, runner, self._url, self._framing)
            self._posts.append(post)
            post.shell.start()

    async def drain(self) -> None:
        """Take nothing new, finish what is in hand (`drain_timeout` at most), then close."""
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await asyncio.gather(*(post.shell.drain() for post in self._posts))
        except TimeoutError:
            pass  # the broker gives what is left to others; `close` interrupts it here
        await self.close()

    async def close(self) -> None:
        """Stop at once: handlers are interrupted, the broker gives their requests to others."""
        for post in self._posts:
            await post.shell.close()
            await post.runner.close()
        self._posts.clear()
        if self._journal is not None:
            for engine in self._engines:
                engine.tell_beginnings(clock.now())
            await asyncio.to_thread(self._journal.close)

    async def serve(self, on_started: Callable[[], object] | None = None) -> None:
        """Serve until SIGTERM or SIGINT: the first drains, a second one stops. Main thread only."""
        try:
            with StopSignals() as signals:
                await self.start()
                if on_started is not None:
                    on_started()
                await signals.first()
                await signals.unless_second(self.drain())
        finally:
            await self.close()

    def run(
        self, on_started: Callable[[], object] | None = None, *, use_uvloop: bool | None = None
    ) -> None:
        """Do what `serve` does, on an event loop of its own (uvloop's where it is installed)."""
        run(self.serve(on_started), use_uvloop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- making -----------------------------------------------------------------------------------
    def _engine(self, each: Service) -> MajordomoWorker:
        return MajordomoWorker(
            self._dialect,
            each.name,
            self._policy_for(each),
            rng=random.random,
            instance=self._name,
            chronicle=chronicle_of(self._journal),
        )

    def _policy_for(self, each: Service) -> WorkerPolicy:
        if not (each.in_thread and self._policy.lease_s):
            return self._policy
        return replace(self._policy, capacity=min(self._policy.capacity, self._threads))

    def _framing(self) -> Zmtp:
        return Zmtp(SocketType.DEALER, mechanism=self._mechanism, limits=self._limits)


class _Post:
    """One service's engine, its connection and its handlers: MDP has one service a connection."""

    def __init__(
        self,
        engine: MajordomoWorker,
        runner: Runner,
        url: ServiceUrl,
        make_framing: Callable[[], Zmtp],
    ) -> None:
        self.runner = runner
        self.shell = AioShell(
            engine,
            Wires(make_framing, dial_to=url.addresses),
            deliver=runner.deliver,
            abandon=runner.abandon,
            flow=runner.flow,
            logger="requite.worker",
        )
        runner.submit = self.shell.submit


def _check_services(services: tuple[Service, ...], url: ServiceUrl) -> tuple[Service, ...]:
    if not services:
        raise ConfigurationError("a worker needs at least one service")
    for each in services:
        if not isinstance(each, Service):
            raise ConfigurationError(f"{each!r} is no service: decorate it with @service('name')")
    names = [each.name for each in services]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"each service of a worker needs a name of its own: {names}")
    if url.service:
        raise ConfigurationError(f"a worker's services have their own names, not {url.service!r}")
    return services


def _heartbeat(given: HeartbeatPolicy | float | None) -> HeartbeatPolicy:
    if isinstance(given, HeartbeatPolicy):
        return given
    return HeartbeatPolicy() if given is None else HeartbeatPolicy(interval_s=given)


def _mechanism(url: ServiceUrl) -> Mechanism:
    if url.user is None or url.password is None:
        return Null()
    return PlainClient(url.user, url.password)
