"""`Worker`: serves one or more services until it is drained or closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from requite.access.exposure import check_exposure
from requite.access.guard import AccessOption, AuthenticateOption, Guard, make_guard
from requite.chronicle import WriterRole
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.metrics.handled import Handled
from requite.principal import Principal
from requite.shell import clock
from requite.shell.aio import AioShell
from requite.shell.daemon import Daemon
from requite.shell.guarding import guarded_by
from requite.shell.journaling import (
    JournalOption,
    access_record,
    chronicle_of,
    journal_in,
    new_name,
)
from requite.speaks.endpoints import Urls, bound_at
from requite.speaks.plans import ServicePlan, WorkerSettings
from requite.speaks.registry import read_endpoints
from requite.worker.handler import Group, Service
from requite.worker.plans import expanded, plans_for
from requite.worker.runner import Runner
from requite.worker.spans import in_spans
from requite.worker.standing import NO_TROUBLE, Standing, Trouble


class Worker(Daemon):
    """Serves `services`, typed or not, behind the broker at `url`, or over SP.

        requite.Worker("mdp://localhost:5555", echo).run()
        requite.Worker(echo, bind="sp+tcp://127.0.0.1:7000").run()

    The worker registers with the broker, waits for a broker that is down, and registers again after
    each reconnect. Over SP it has one service, takes requests from every connected peer, and may
    both dial and listen. SP has no negative replies: if a handler fails there, the worker logs the
    error and sends no reply, and the client resends the request or times out.

    - `url`: the address to dial; SP takes several, in one URL or as a sequence. Optional.
    - `bind`: the address to listen at; protocols without a broker only (SP, Freelance, Lazy
      Pirate). With Freelance it is also the server's name (`?public=` sets another).
    - `capacity`: how many requests the worker takes at a time, per service (16; always 1 in MDP 0.1
      and 0.2; 1 at a queue of the Pirates, where each further one opens a connection). Requests
      beyond those that handlers run wait here rather than at another worker, so lower it for slow
      handlers.
    - `heartbeat`: how often to send heartbeats and when to give up a silent broker; seconds or a
      policy. MDP, and Paranoid Pirate, where the queue must have the same.
    - `handler_timeout`: seconds that a handler may run without `request.progress()` before the
      broker gives its request to another worker; None: no limit. MDP.
    - `threads`: how many calls of a `def` handler run at a time (default: `capacity`). With a
      `handler_timeout` it also bounds the requests taken, since a request that waits for a thread
      would use up its handler's time.
    - `drain_timeout`: seconds that handlers may take to finish when the worker drains.
    - `dialect`: the version of MDP, "0.3" unless the URL says otherwise.
    - `hops`: SP only; how many tags a request may have, its own and one for each device that it has
      passed (8). The worker drops requests with more, which may be in a forwarding loop.
    - `message_size_max`: maximum bytes of one body, sent or received. Incoming messages may have
      1 KiB more, for headers; a larger one ends the connection.
    - `access`: with `bind`, the users who may connect, or the path of an access file
      (`requite.access.Access`); each needs the right to `call` a service of this worker. Without it
      everybody may connect, at loopback addresses and Unix sockets only.
    - `authenticate`: a hook that may refuse peers that `access` admits (`requite.access`).
    - `insecure`: listen at other addresses without `access`, too.
    - `journal`: a folder for a journal of requests (`requite.journal`), or a pair of the folder and
      its `JournalSettings`; None: no journal.

    `name` identifies the worker at MDP 0.3 brokers and in journals: eight random bytes.

    Raises `ConfigurationError` for an invalid URL, service or setting.
    """

    def __init__(
        self,
        url: Urls | Service | Group = (),
        *services: Service | Group,
        bind: Urls = (),
        capacity: int | None = None,
        heartbeat: HeartbeatPolicy | float | None = None,
        handler_timeout: float | None = None,
        threads: int | None = None,
        drain_timeout: float = 30.0,
        dialect: str | None = None,
        hops: int | None = None,
        message_size_max: int = Limits().message_size_bytes_max,
        access: AccessOption | None = None,
        authenticate: AuthenticateOption | None = None,
        insecure: bool = False,
        journal: JournalOption | None = None,
    ) -> None:
        if isinstance(url, Service | Group):
            if any(isinstance(each, str) for each in services):
                raise ConfigurationError("pass the URL before the services: Worker(url, service)")
            services = (url, *services)
            url = ()
        self._endpoints = read_endpoints(url, bind)
        self._drain_timeout_s = drain_timeout
        self._reply_size_max = message_size_max
        self.name = name = new_name()
        self._journal = journal_in(journal, WriterRole.WORKER, name)
        settings = WorkerSettings(
            capacity,
            heartbeat,
            handler_timeout,
            threads,
            dialect,
            hops,
            message_size_max,
            name,
            chronicle_of(self._journal),
        )
        handled, self._groups = expanded(self._endpoints, services, dialect)
        self._plans = plans_for(self._endpoints, handled, settings)  # refuses bad names here
        listen = [each for plan in self._plans for each in plan.connections.listen]
        check_exposure(listen, is_guarded=access is not None, insecure=insecure)
        self._guard = make_guard(
            access,
            authenticate,
            self._rights_changed,
            self._lacks_to_call,
            access_record(self._journal),
        )
        self._runtimes: list[_PlanRuntime] = []
        names = ", ".join(self.services)
        places = [" or ".join(map(str, url.addresses)) for url in self._endpoints.dials]
        self._standing = Standing(names, places, self._troubles)
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Worker {', '.join(self.services)} for {self._endpoints}>"

    @property
    def services(self) -> list[str]:
        """The names of the services; a typed service has one for each method."""
        return list(dict.fromkeys(plan.service.name for plan in self._plans))

    @property
    def addresses(self) -> list[str]:
        """URLs at which the worker listens, with actual ports; empty before `start`."""
        endpoints = self._endpoints
        shells = (runtime.shell for runtime in self._runtimes)  # one if the worker listens
        queries, protocol = endpoints.peer_queries, endpoints.protocol
        lists = (bound_at(shell.addresses, queries, protocol) for shell in shells)
        return [url for urls in lists for url in urls]

    # --- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Start serving on the running event loop; the worker connects in the background.

        Raises `TransportError` if it cannot bind an address, `StorageError` if it cannot open the
        journal, and `LocalViolation` on a second call: a closed worker stays closed.
        """
        self._start_once()
        if self._journal is not None:
            self._journal.start()
        self._runtimes = self._make_runtimes()
        try:
            for group in self._groups:
                await group.open()
            for runtime in self._runtimes:
                await runtime.open()
                await runtime.shell.listen_all()
                runtime.bound(runtime.shell.addresses)
                runtime.shell.start()
            if self._guard is not None:
                self._guard.start()
            if self._endpoints.dials:
                watching = self._standing.watch()
                self._watching = asyncio.get_running_loop().create_task(watching)
        except BaseException:
            await self.close()
            raise

    def _lacks_to_call(self, principal: Principal, _place: Any) -> str:
        """Return why a client may not connect: it needs the right to call one of the services."""
        names = self.services
        if any(principal.may("call", name) for name in names):
            return ""
        return f"{principal} has no right to call {' or '.join(map(repr, names))}"

    def _rights_changed(self) -> None:
        for runtime in self._runtimes:
            runtime.shell.host.rights_changed()

    async def drain(self) -> None:
        """Accept no new requests, finish running ones (`drain_timeout` at most), then close."""
        self._stop_watching()
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await asyncio.gather(*(runtime.drain() for runtime in self._runtimes))
        except TimeoutError:
            pass  # the broker redelivers the rest; `close` interrupts the handlers
        await self.close()

    async def until_over(self) -> None:
        """Wait until the pool's manager has released the worker and its requests are finished (RPC
        over AMQP, "The responder")."""
        await asyncio.gather(*(runtime.shell.until_drained() for runtime in self._runtimes))

    async def until_connected(self, number: int) -> None:
        """Wait until the worker is served at the dialled URL with this index: connected, and
        acknowledged if its protocol does that."""
        await self._standing.until_served(number)

    @property
    def trouble(self) -> str:
        """Why the worker cannot serve at a dialled address, as text; "" if it serves at all."""
        return "; ".join(filter(None, (trouble.text for trouble in self._troubles())))

    def _troubles(self) -> list[Trouble]:
        """Return the trouble at each dialled URL.

        Only an SP worker may dial several; its only runtime dials each address.
        """
        ways = iter([trouble for runtime in self._runtimes for trouble in runtime.troubles()])
        dials = self._endpoints.dials
        if len(dials) == 1:
            return [_join(ways)]
        return [_join(islice(ways, len(url.addresses))) for url in dials]

    def handled(self) -> list[Handled]:
        """Return what the handlers of each service have done."""
        found: dict[str, Handled] = {}
        for runtime in self._runtimes:
            part = runtime.runner.handled()
            known = found.get(part.service)
            found[part.service] = part if known is None else known.plus(part)
        return list(found.values())

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def close(self) -> None:
        """Stop at once and interrupt the handlers. A broker gives their requests to other workers;
        SP clients resend them."""
        self._stop_watching()
        if self._guard is not None:
            await self._guard.close()
        for runtime in self._runtimes:
            await runtime.close()
        self._runtimes.clear()
        for group in self._groups:
            await group.close()
        if self._journal is not None:
            for plan in self._plans:
                plan.engine.jobs.flush_open_spans(clock.now())
            await asyncio.to_thread(self._journal.close)

    def _make_runtimes(self) -> list[_PlanRuntime]:
        told: set[str] = set()
        tell_starts = self._journal is not None
        on_change = self._standing.note_change
        return [
            _PlanRuntime(
                plan,
                self._reply_size_max,
                told,
                guard=self._guard,
                tell_starts=tell_starts,
                on_change=on_change,
            )
            for plan in self._plans
        ]


class _PlanRuntime:
    """A plan in operation: engine, connections, handlers, and the `Dedup` gate if the service has
    one."""

    def __init__(
        self,
        plan: ServicePlan[Service],
        reply_size_max: int,
        told: set[str],
        *,
        guard: Guard | None,
        tell_starts: bool,
        on_change: Callable[[], object],
    ) -> None:
        service = in_spans(plan.service)
        self._dedup = dedup = service.idempotent
        self._gate = None if dedup is None else dedup.gate(service.name, plan.call_id)
        self._is_open = False
        self.bound = plan.bound
        self._engine = plan.engine
        self._unanswered = plan.unanswered
        self.runner = runner = Runner(
            service,
            plan.capacity,
            plan.threads,
            reply_size_max,
            plan.frames_max,
            told=told,
            tell_starts=tell_starts or dedup is not None,
            to_the_end=dedup is not None,
        )
        gate = self._gate
        self.shell = AioShell(
            plan.engine,
            plan.connections,
            deliver=runner.deliver if gate is None else gate.ask,
            deliver_all=runner.deliver_all if gate is None else gate.ask_all,
            abandon=runner.abandon if gate is None else gate.give_up,
            flow=_go_on if plan.holds else runner.flow,
            on_change=on_change,
            **guarded_by(guard),
            logger="requite.worker",
            reports_dials=True,  # `Standing` does
        )
        if gate is None:
            runner.submit = self.shell.submit
            runner.submit_soon = self.shell.host.submit_soon
        else:
            gate.handlers, gate.tell = runner, self.shell.submit
            gate.key_reused = plan.service.key_reused
            runner.submit = runner.submit_soon = gate.hear

    async def open(self) -> None:
        """Open the log of replies before the first request arrives."""
        if self._dedup is not None:
            await self._dedup.open()
            self._is_open = True

    def troubles(self) -> list[Trouble]:
        """Return, for each dialled address, why it cannot serve there ("": it serves)."""
        told = self.shell.troubles
        if self._engine.is_answered:
            return [Trouble(text) for _, text in told]
        mute, patience_s = self._unanswered
        return [
            Trouble(text) if text else Trouble(f"{address} {mute}", patience_s)
            for address, text in told
        ]

    async def drain(self) -> None:
        """Finish the running requests; with `Dedup` also the abandoned ones."""
        self.shell.stop_listening()  # a new client would be refused, and count that as an attempt
        await self.shell.drain()
        if self._gate is not None:
            await self._gate.idle.wait()

    async def close(self) -> None:
        """Stop, and interrupt the handlers."""
        await self.shell.close()
        await self.runner.close()
        if self._dedup is not None and self._gate is not None and self._is_open:
            self._is_open = False
            self._gate.close()
            await self._dedup.close()


def _join(troubles: Iterable[Trouble]) -> Trouble:
    """Merge troubles into one: each reason once, due when the first of them is."""
    wrong = [trouble for trouble in troubles if trouble.text]
    if not wrong:
        return NO_TROUBLE
    texts = dict.fromkeys(trouble.text for trouble in wrong)
    return Trouble("; ".join(texts), min(trouble.patience_s for trouble in wrong))


def _go_on(_is_free: bool) -> None:
    """Ignore back-pressure: the engine buffers partial replies."""
