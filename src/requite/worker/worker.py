"""`Worker`: serves one or more services, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from requite.chronicle import WriterRole
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError, LocalViolation
from requite.framing import Limits
from requite.shell import clock
from requite.shell.aio import AioShell
from requite.shell.daemon import Daemon
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.speaks.endpoints import Urls, bound_at
from requite.speaks.plans import ServicePlan, WorkerSettings
from requite.speaks.registry import read_endpoints
from requite.worker.handler import Service
from requite.worker.plans import plans_for
from requite.worker.runner import Runner
from requite.worker.standing import NO_TROUBLE, Standing, Trouble


class Worker(Daemon):
    """Serves `services` behind the broker at `url`, or over SP.

        requite.Worker("mdp://localhost:5555", echo).run()
        requite.Worker(echo, bind="sp+tcp://127.0.0.1:7000").run()

    It registers by itself, also after the broker was away; a broker that never comes is waited for.
    Over SP it has one service, takes requests from everybody who is connected, and may dial as well
    as listen. A handler that fails sends no reply there, since SP has no negative ones: it is
    logged, and the client asks again when its time for that has come, or gives up.

    - `url`: where to dial; of SP several, in one URL or as a sequence. It may be left out.
    - `bind`: where to listen; protocols without a broker only (SP, Freelance, Lazy Pirate). Of
      Freelance, the place is also the server's name (`?public=` gives it another).
    - `capacity`: how many requests it takes at a time, per service (16; always 1 in MDP 0.1 and
      0.2; at a queue of the Pirates 1, and each further one is a connection of its own). Requests
      beyond what its handlers work on wait here rather than at another worker, so give handlers
      that take long a small one.
    - `heartbeat`: how often to be heard and when a silent broker is gone; seconds or a policy. MDP,
      and Paranoid Pirate, whose queue has to have the same.
    - `handler_timeout`: seconds a handler may take without `request.progress()` before the broker
      gives its request to another worker; None: no limit. MDP.
    - `threads`: how many calls of a handler that is a plain function run at a time (default:
      `capacity`). With a `handler_timeout` no more requests are taken than that: one that waited
      for a thread would spend the time its handler has.
    - `drain_timeout`: seconds a draining worker lets its handlers go on.
    - `dialect`: the version of MDP, "0.3" unless the URL says otherwise.
    - `hops`: SP only; how many tags a request may have, its own and one for each device that it has
      passed (8). Those with more are dropped: they may be going round in a loop.
    - `message_size_max`: bytes of one body, in either direction. Messages that come in may have
      1 KiB more, for headers; larger ones cost the connection.
    - `journal`: a folder in which to keep a journal of requests (`requite.journal`), or that
      and its `JournalSettings`, as a pair; None: none.

    `name` is what brokers of MDP 0.3 and journals call it: eight bytes, drawn for each worker.

    Raises `ConfigurationError` for a URL, a service or a setting that cannot work.
    """

    def __init__(
        self,
        url: Urls | Service = (),
        *services: Service,
        bind: Urls = (),
        capacity: int | None = None,
        heartbeat: HeartbeatPolicy | float | None = None,
        handler_timeout: float | None = None,
        threads: int | None = None,
        drain_timeout: float = 30.0,
        dialect: str | None = None,
        hops: int | None = None,
        message_size_max: int = Limits().message_size_bytes_max,
        journal: JournalOption | None = None,
    ) -> None:
        if isinstance(url, Service):
            if any(isinstance(each, str) for each in services):
                raise ConfigurationError("the URL comes before the services: Worker(url, service)")
            services = (url, *services)
            url = ()
        self._endpoints = read_endpoints(url, bind)
        self._drain_timeout_s = drain_timeout
        self._reply_size_max = message_size_max
        self._started = False
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
        self._plans = plans_for(self._endpoints, services, settings)  # refuses bad names here
        self._posts: list[_Post] = []
        names = ", ".join(dict.fromkeys(plan.service.name for plan in self._plans))
        places = [" or ".join(map(str, url.addresses)) for url in self._endpoints.dials]
        self._standing = Standing(names, places, self._troubles)
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(plan.service.name for plan in self._plans))
        return f"<Worker {names} for {self._endpoints}>"

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as URLs, with the ports it really got; empty before `start`."""
        endpoints = self._endpoints
        shells = (post.shell for post in self._posts)  # who listens has one post
        queries, protocol = endpoints.peer_queries, endpoints.protocol
        lists = (bound_at(shell.addresses, queries, protocol) for shell in shells)
        return [url for urls in lists for url in urls]

    # --- life -------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Begin to serve, on the running event loop; connecting goes on in the background.

        Raises `TransportError` where an address cannot be had to listen at, `StorageError` where
        the journal cannot be kept, and `LocalViolation` the second time: a worker that has been
        closed stays closed.
        """
        if self._started:
            raise LocalViolation("a worker starts once; make another one to serve again")
        self._started = True
        if self._journal is not None:
            self._journal.start()
        self._posts = self._make_posts()
        try:
            for post in self._posts:
                await post.open()
                await post.shell.listen_all()
                post.bound(post.shell.addresses)
                post.shell.start()
            if self._endpoints.dials:
                watching = self._standing.watch()
                self._watching = asyncio.get_running_loop().create_task(watching)
        except BaseException:
            await self.close()
            raise

    async def drain(self) -> None:
        """Take nothing new, finish what is in hand (`drain_timeout` at most), then close."""
        self._watch_no_more()
        try:
            async with asyncio.timeout(self._drain_timeout_s):
                await asyncio.gather(*(post.drain() for post in self._posts))
        except TimeoutError:
            pass  # the broker gives what is left to others; `close` interrupts it here
        await self.close()

    async def until_over(self) -> None:
        """Wait until nothing is left to serve for: the manager of the pool has let it go, and what
        was in hand is done (RPC over AMQP, "The responder")."""
        await asyncio.gather(*(post.shell.until_drained() for post in self._posts))

    async def until_connected(self, number: int) -> None:
        """Wait until it is served at the URL with this number, of those that it dials: connected,
        and, where the protocol has an answer to that, answered."""
        await self._standing.until_served(number)

    @property
    def trouble(self) -> str:
        """Why it is not served at a place that it dials, for people; "" if it is at all of them."""
        return "; ".join(filter(None, (trouble.text for trouble in self._troubles())))

    def _troubles(self) -> list[Trouble]:
        """Return what is wrong at each of the URLs that it dials.

        Only an SP worker may have several, and it has one post, with a way to each address.
        """
        ways = iter([trouble for post in self._posts for trouble in post.troubles()])
        dials = self._endpoints.dials
        if len(dials) == 1:
            return [_join(ways)]
        return [_join(islice(ways, len(url.addresses))) for url in dials]

    def _watch_no_more(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def close(self) -> None:
        """Stop at once: handlers are interrupted. A broker gives their requests to others; clients
        of SP ask again."""
        self._watch_no_more()
        for post in self._posts:
            await post.close()
        self._posts.clear()
        if self._journal is not None:
            for plan in self._plans:
                plan.engine.jobs.flush_open_spans(clock.now())
            await asyncio.to_thread(self._journal.close)

    def _make_posts(self) -> list[_Post]:
        told: set[str] = set()
        tell_starts = self._journal is not None
        on_change = self._standing.note_change
        return [
            _Post(plan, self._reply_size_max, told, tell_starts=tell_starts, on_change=on_change)
            for plan in self._plans
        ]


class _Post:
    """A plan of a worker at work: engine, connections and handlers; and what remembers replies, if
    its service is to run each request once."""

    def __init__(
        self,
        plan: ServicePlan[Service],
        reply_size_max: int,
        told: set[str],
        *,
        tell_starts: bool,
        on_change: Callable[[], object],
    ) -> None:
        service = plan.service
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
            logger="requite.worker",
            reports_dials=True,  # `Standing` does
        )
        if gate is None:
            runner.submit = self.shell.submit
            runner.submit_soon = self.shell.host.submit_soon
        else:
            gate.handlers, gate.tell = runner, self.shell.submit
            runner.submit = runner.submit_soon = gate.hear

    async def open(self) -> None:
        """Have the log of replies at hand, before the first request comes."""
        if self._dedup is not None:
            await self._dedup.open()
            self._is_open = True

    def troubles(self) -> list[Trouble]:
        """Return what is wrong with each way by which it dials."""
        told = self.shell.troubles
        if self._engine.is_answered:
            return [Trouble(text) for _, text in told]
        mute, patience_s = self._unanswered
        return [
            Trouble(text) if text else Trouble(f"{address} {mute}", patience_s)
            for address, text in told
        ]

    async def drain(self) -> None:
        """Finish what is in hand; also what nobody waits for, if it cannot be run again."""
        self.shell.stop_listening()  # newcomers would be sent away, and count that as a try
        await self.shell.drain()
        if self._gate is not None:
            await self._gate.idle.wait()

    async def close(self) -> None:
        """Stop; handlers are interrupted."""
        await self.shell.close()
        await self.runner.close()
        if self._dedup is not None and self._gate is not None and self._is_open:
            self._is_open = False
            self._gate.close()
            await self._dedup.close()


def _join(troubles: Iterable[Trouble]) -> Trouble:
    """Return several as one: each reason once, told when the first one is due."""
    wrong = [trouble for trouble in troubles if trouble.text]
    if not wrong:
        return NO_TROUBLE
    texts = dict.fromkeys(trouble.text for trouble in wrong)
    return Trouble("; ".join(texts), min(trouble.patience_s for trouble in wrong))


def _go_on(_is_free: bool) -> None:
    """Let partial replies come: the engine keeps them."""
