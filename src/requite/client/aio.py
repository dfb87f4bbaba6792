"""`AsyncClient`: calls on an event loop.

A call costs one future on top of the engine's work; `map` and `stream` create none per message. All
calls of a client share its connection; up to `slots` of them may be in flight.

`call` is a coroutine function that awaits the event loop's own future, because tasks have a fast
path for exactly that class: with 64 tasks on uvloop (CPython 3.11) the coroutine adds 0.15 us to
1.2 us. A subclass of the future that is also a coroutine costs 0.35 us more, and 0.7 us more in
`create_task`. An awaitable with slots, which wakes all tasks of a batch in one callback, costs
0.35 us more if interpreted and 0.1 us less if compiled; on asyncio's own loop it would save 0.6 to
1.1 us. `gather` would gain more, since it makes no task for a future: `start` returns one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet

from requite.access.exposure import check_exposure
from requite.chronicle import WriterRole
from requite.client.call_arguments import (
    TIMEOUT_S,
    CallBody,
    SubmitBuilder,
    Taker,
    Timeout,
    explain,
)
from requite.client.durable import Durable
from requite.client.feed import Feed
from requite.client.gate import Gate
from requite.client.incoming import Incoming
from requite.client.started import StartedCall
from requite.client.submitting_aio import AsyncSubmitter
from requite.client.window import Item, Window
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Cancel, Drain, Input, Submit
from requite.errors import CallError, Cancelled, LocalViolation
from requite.framing import Limits
from requite.request import Partial, Reply, RetryPolicy
from requite.shell import clock
from requite.shell.aio import AioShell, running_loop
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.shell.uses import Uses
from requite.speaks.endpoints import Urls, bound_at
from requite.speaks.plans import Carries, ClientSettings
from requite.speaks.registry import carries, client_plan, read_endpoints
from requite.tracing.calls import call_spans

if TYPE_CHECKING:
    from requite.typed.context import Middleware

P = TypeVar("P")

_CLIENTS: Final[WeakSet[AsyncClient]] = WeakSet()


def _after_fork() -> None:
    """Have each client check its event loop, which the child of a fork does not have."""
    for client in _CLIENTS:
        client._thread = 0


os.register_at_fork(after_in_child=_after_fork)


class AsyncClient(AsyncSubmitter):
    """A client of the service that `url` names; for use on one event loop.

        async with AsyncClient("mdp://localhost:5555/echo") as client:
            reply = await client.call(b"hello", timeout=2.5)

    The client connects at the first call or `async with`. It reconnects to a lost broker or service
    and resends unanswered requests where that is safe, until each call times out.

    - `url`: the address to dial. SP and Freelance take several, in one URL or as a sequence: an SP
      client connects to all and sends requests to them in turn; a Freelance client sends each
      request to a server that is alive.
    - `bind`: the address to listen at for services that dial; SP only. A client that listens must
      be opened by `async with`, which raises `TransportError` if it cannot bind.
    - `service`: the service, if the URL does not name it (SP has no service names).
    - `timeout`: default timeout of a call, in seconds; None: no limit.
    - `retry`: when and how often to retry. By default, SP resends a request at once when its
      connection is lost, and every 60 seconds without limit. Set that interval with
      `RetryPolicy.attempt_timeout` (None: never) or with `?resend=` in the URL, not both;
      `attempts=1` turns both resends off. The default `timeout` of 30 seconds ends a call before
      its first timed resend: raise it, or lower `resend`. Freelance switches to another server when
      one is lost, or after `attempt_timeout`. A Lazy Pirate makes three attempts, 2.5 seconds each
      by default.
    - `slots`: how many calls may be in flight; further calls end with `Overloaded`.
    - `heartbeat`: seconds of silence after which the client pings the broker (MDP 0.3) or each
      server (Freelance), or a `HeartbeatPolicy`; by default 2 seconds, and 3 missed heartbeats mean
      that the peer is lost.
    - `dialect`: the version of MDP, "0.3" unless the URL says otherwise.
    - `connections`: how many requests may be in flight with MDP 0.1, MDP 0.2 and the Pirates.
    - `hold_back`: the share of each timeout by which the broker's deadline is shorter than the
      client's; MDP 0.3 (0: none). The broker then ends an unanswered call first, and the error says
      whether a worker ever had it: with 0.1 and `timeout=5.5`, the broker has 5 seconds.
    - `message_size_max`: maximum bytes of one body, sent or received. Incoming messages may have
      1 KiB more, for headers; a larger one ends the connection.
    - `insecure`: with `bind`, listen at addresses that other machines reach, although the client
      does not know who connects.
    - `journal`: a folder for a journal of calls (`requite.journal`), or a pair of the folder and
      its `JournalSettings`; None: no journal.

    Raises `ConfigurationError` at once for URLs and settings that cannot work.
    """

    def __init__(
        self,
        url: Urls = (),
        *,
        bind: Urls = (),
        service: str | None = None,
        timeout: float | None = TIMEOUT_S,
        retry: RetryPolicy | None = None,
        slots: int = 1024,
        heartbeat: HeartbeatPolicy | float | None = None,
        dialect: str | None = None,
        connections: int = 64,
        hold_back: float = 0.0,
        message_size_max: int = Limits().message_size_bytes_max,
        insecure: bool = False,
        journal: JournalOption | None = None,
    ) -> None:
        endpoints = read_endpoints(url, bind)
        settings = ClientSettings(
            retry, slots, heartbeat, dialect, connections, message_size_max, hold_back or None
        )
        plan = client_plan(endpoints, settings)
        check_exposure(plan.connections.listen, is_guarded=False, insecure=insecure)
        self._endpoints = endpoints
        self._slots = slots
        self._dialect = dialect
        name = endpoints.service if service is None else service
        self._builder = SubmitBuilder(name, timeout, plan.traits, message_size_max)
        self._durable = Durable(name, self._builder, plan.traits)
        self._gate = Gate()
        origin = new_name()
        self._journal = journal_in(journal, WriterRole.CLIENT, origin)
        uses = Uses(
            deliver=_deliver,
            deliver_all=_deliver_all,
            fail=self._fail,
            flow=_go_on if plan.holds else self._gate.set,
            logger="requite.client",
            reports_dials=True,  # in the errors of calls
        )
        spans = call_spans()
        self._shell = AioShell(
            plan.make_engine(origin, chronicle_of(self._journal)),
            plan.connections,
            **(uses if spans is None else spans.watching(uses)),
        )
        self._submit: Callable[[Input], None] = self._shell.submit
        self._submit_soon: Callable[[Input], None] = self._shell.host.submit_soon
        if spans is not None:
            self._submit = spans.around(self._submit)
            self._submit_soon = spans.around(self._submit_soon)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # that of the loop; 0 also in the child after a fork
        _CLIENTS.add(self)
        self._opening = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncClient {self._endpoints}>"

    @property
    def addresses(self) -> list[str]:
        """URLs at which the client listens, with actual ports; empty until it is opened."""
        return bound_at(self._shell.addresses, self._endpoints.peer_queries)

    @property
    def protocol(self) -> str:
        """The protocol of the URLs: `mdp`, `sp`, `flp`, `pirate` or `amqp`."""
        return self._endpoints.protocol

    @property
    def service(self) -> str:
        """The service of calls that name none: of `service`, or the URL; "" if there is none."""
        return self._builder.service

    @property
    def carries(self) -> Carries:
        """What the messages of the client carry besides their bodies."""
        return carries(self._endpoints, self._dialect)

    # --- life -------------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End calls in flight with `Cancelled`, cancel them at the broker, and disconnect."""
        was_open = self._loop is not None and not self._closed
        self._closed = True
        if not was_open:
            return
        self._gate.set(True)
        self._submit(Drain())
        await self._shell.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)

    async def until_refused(self) -> str:
        """Wait until the broker refuses this client's credentials; return the reason.

        Calls retry until they time out, since a broker may restart with other credentials. To give
        up earlier, await this beside them. It never returns once a connection was established, so
        when it returns no request has been sent.
        """
        return await self._shell.until_refused()

    async def _open(self) -> None:
        """Bind the listening addresses once, then start as `_start` does."""
        if self._loop is None and not self._closed:
            async with self._opening:
                await self._shell.listen_all()
        self._start()

    def _start(self) -> None:
        if self._closed:
            raise Cancelled("the client is closed", may_have_executed=False)
        if not self._shell.is_listening:
            raise LocalViolation(
                "a client with `bind` must be opened with `async with` before its first call"
            )
        loop = running_loop()
        if self._journal is not None and self._loop is None:
            self._journal.start()
        self._shell.start()
        self._loop = loop
        self._thread = get_ident()

    # --- calls ------------------------------------------------------------------------------------
    async def call(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109 - the call itself keeps it, beyond this process
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Reply:
        """Send a request and return its reply.

        `timeout` is in seconds from now. With `idempotent=False` the request is never resent once
        it may have run. `idempotency_key` lets the worker recognise duplicates. Cancelling the
        awaiting task cancels the call, also at the broker and the worker.

        Raises a `CallError` that says what happened and whether the request may have run,
        `ConfigurationError` for an option that the client's protocol does not support, `TypeError`
        for a body that is not bytes.
        """
        loop = self._loop
        # Asking which loop runs is a system call; checking that ours runs in this thread is not.
        if loop is None or not loop.is_running() or get_ident() != self._thread:
            await self._open()
            loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        asked = self._builder.submit(
            future, body, clock.now(), timeout, service, idempotent, idempotency_key
        )
        if not self._gate.is_open:
            await self._gate.passed(asked.deadline)
        self._submit_soon(asked)
        try:
            return await future
        except asyncio.CancelledError:
            self._submit(Cancel(future))
            raise

    def start(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> asyncio.Future[Reply]:
        """Send a request and return the future of its reply; cancelling that cancels the call.

        `asyncio.gather(*(client.start(body) for body in bodies))` costs less than the same with
        `call`, for each of which `gather` makes a task.
        """
        if self._thread != get_ident() or self._loop is None or not self._loop.is_running():
            self._start()
        call = StartedCall(loop=self._loop)
        call.submit = self._submit
        self._submit_soon(
            self._builder.submit(
                call, body, clock.now(), timeout, service, idempotent, idempotency_key
            )
        )
        return call

    def start_for(
        self,
        taker: Taker,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> None:
        """Send a request and deliver its result to `taker`, at a third of the cost of a future.

        The client calls `taker.set_result` with the `Reply` or `taker.set_exception` with the
        `CallError`, once, on the event loop, unless `taker.done()`; neither may raise. `cancel_for`
        cancels the call.
        """
        if self._thread != get_ident() or self._loop is None or not self._loop.is_running():
            self._start()
        self._submit_soon(
            self._builder.submit(
                taker, body, clock.now(), timeout, service, idempotent, idempotency_key
            )
        )

    def cancel_for(self, taker: Taker) -> None:
        """Cancel the call that was started for `taker`; do nothing if it has ended."""
        self._submit(Cancel(taker))

    def stream(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> AsyncIterator[Partial | Reply]:
        """Send a request and iterate over its partial replies, then its final reply.

        The request is sent when the iteration begins; ending it early (with `aclose`, or by an
        exception) cancels the call. After the first partial reply, the client does not retry.
        Raises the errors of `call`.
        """
        signal = asyncio.Event()
        incoming = Incoming(signal.set)
        asked = self._builder.submit(
            incoming, body, 0.0, timeout, service, idempotent, idempotency_key, partials=True
        )
        return self._stream(incoming, asked, signal, timeout)

    async def _stream(
        self,
        incoming: Incoming,
        asked: Submit,
        signal: asyncio.Event,
        timeout: Timeout,  # noqa: ASYNC109 - the call itself keeps it
    ) -> AsyncIterator[Partial | Reply]:
        await self._open()
        asked = replace(asked, deadline=self._builder.until(clock.now(), timeout))
        if not self._gate.is_open:
            await self._gate.passed(asked.deadline)
        self._submit(asked)
        try:
            while not incoming.is_through:
                signal.clear()
                for what in incoming.take():
                    yield what
                if not incoming.done():
                    await signal.wait()
        finally:
            if not incoming.done():
                self._submit(Cancel(incoming))

    def map(
        self,
        bodies: Iterable[CallBody] | AsyncIterable[CallBody],
        *,
        concurrency: int = 64,
        as_completed: bool = False,
        return_errors: bool = False,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
    ) -> AsyncIterator[Reply | CallError]:
        """Make a call per body, up to `concurrency` at a time, and iterate over the replies.

        Replies come in the order of the bodies, or with `as_completed` as they arrive. `bodies` may
        be endless: the client reads it only as calls end. The first call that fails ends the
        iteration with its error and cancels the calls in flight; with `return_errors` the iteration
        yields the error in place of the reply and continues. `timeout` applies to each call. The
        client's slots bound the calls in flight; if other calls use slots, too, a call waits until
        another one of the iteration ends.
        """
        signal = asyncio.Event()
        window = Window(concurrency, as_completed, signal.set, slots=self._slots)

        def ask(body: CallBody, again: Item | None = None) -> None:
            asked = self._builder.submit(None, body, clock.now(), timeout, service, idempotent)
            asked.token = again or window.add(body)  # only now: the body is valid
            self._submit_soon(asked)

        feed = Feed(bodies, ask, lambda item: ask(item.body, item), self._gate)
        return self._map(feed, window, signal, return_errors)

    async def _map(
        self, feed: Feed, window: Window, signal: asyncio.Event, return_errors: bool
    ) -> AsyncIterator[Reply | CallError]:
        await self._open()
        try:
            while True:
                signal.clear()
                ready = window.take()
                await feed.fill(window, signal)
                for outcome in ready:
                    if isinstance(outcome, CallError) and not return_errors:
                        raise outcome
                    yield outcome
                if feed.is_exhausted and window.is_empty:
                    return
                if not ready:
                    await signal.wait()
        finally:
            feed.stop()
            for item in window.running():
                self._submit(Cancel(item))

    # --- typed services ---------------------------------------------------------------------------
    def bind(
        self,
        protocol: Callable[..., P],
        service: str | None = None,
        *,
        version: str = "1",
        codec: str = "json",
        middleware: Sequence[Middleware] = (),
    ) -> P:
        """Return an object with the methods of a `Protocol` class, each of them a typed call.

            class Orders(Protocol):
                async def price(self, order: Order, *, timeout: float = ...) -> Quote: ...

            quote = await client.bind(Orders, "orders").price(Order("a", 2), timeout=2)

        A method has at most one parameter besides the options of `call` (`timeout`, `idempotent`,
        `idempotency_key`). One with partial replies is `def watch(...) -> AsyncIterator[Quote]`.
        `requite.raises` declares its errors.

        - `service`: the name of the typed service, if the URL does not name it.
        - `version`, `codec`: those of the service; of the version, only the first number matters.
        - `middleware`: async functions around each call, the first one outermost (`Middleware`).

        Methods raise the errors of `call`, the declared ones, `BadRequest` for a message that does
        not fit, and `BadReply`. Raises `ConfigurationError` for a class that cannot be bound, and
        for what the client's protocol does not carry.
        """
        from requite.typed.binding import Options, bind

        name = self._endpoints.service if service is None else service
        options = Options(name, version, codec, middleware, self.carries, is_async=True)
        bound: P = bind(self, protocol, options)
        return bound

    # --- callbacks of the shell -------------------------------------------------------------------
    def _fail(self, token: Any, error: CallError) -> None:
        if not token.done():  # a cancelled future is done
            token.set_exception(explain(error, self._shell))


def _go_on(_is_free: bool) -> None:
    """Ignore back-pressure: the engine buffers calls."""


def _deliver(token: Any, what: Any) -> None:
    if not token.done():  # a cancelled future is done
        token.set_result(what)


def _deliver_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    for token, what in pairs:
        if not token.done():
            token.set_result(what)
