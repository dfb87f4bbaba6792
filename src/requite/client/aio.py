"""`AsyncClient`: calls on an event loop.

A call costs one future beside what the engine does; `map` and `stream` none per message. All calls
of a client share its connection, and there may be as many at a time as it has slots.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import replace
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeVar

from requite.chronicle import WriterRole
from requite.client.asking import TIMEOUT_S, Asking, CallBody, Taker, Timeout, explain
from requite.client.durable import Durable, Pause, Script
from requite.client.feed import Feed
from requite.client.gate import Gate
from requite.client.incoming import Incoming
from requite.client.window import Item, Window
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Cancel, Drain, Submit
from requite.errors import CallError, Cancelled, LocalViolation
from requite.framing import Limits
from requite.request import Deadline, Partial, Reply, RetryPolicy
from requite.shell import clock
from requite.shell.aio import AioShell
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.speaks.endpoints import Urls, bound_at
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import client_plan, read_endpoints

T = TypeVar("T")


class AsyncClient:
    """Makes calls to the service that `url` names; for use on one event loop.

        async with AsyncClient("mdp://localhost:5555/echo") as client:
            reply = await client.call(b"hello", timeout=2.5)

    Nothing is connected until the first call or `async with`. A broker or service that is away is
    waited for, and what it had not answered when it went is sent again where that is safe, until
    each call's timeout has passed.

    - `url`: where to dial. Of SP several, in one URL or as a sequence: the client is connected to
      all of them, and each request goes to the next one. Of Freelance as well, and each request
      goes to one that lives.
    - `bind`: where to listen for services that dial; SP only. A client that listens is opened by
      `async with`, which raises `TransportError` for an address that cannot be had.
    - `service`: the service, where it is not in the URL (SP has no names for services).
    - `timeout`: seconds for calls that give none themselves; None: no limit.
    - `retry`: when and how often an attempt is repeated. SP sends a request again at once when the
      connection that carried it is gone, and every 60 seconds, without a limit, where nothing is
      given (`RetryPolicy.attempt_timeout`, None: never by time; or `?resend=` in the URL, one of
      both); with `attempts=1` it does neither. The default `timeout` of 30 seconds is over before
      that: for requests to be sent again by time, raise the timeout or lower `resend`. Freelance
      goes to another server at once when one is lost, and by time after `attempt_timeout`. A Lazy
      Pirate asks three times in all, by time after 2.5 seconds where that is not given.
    - `slots`: how many calls may be outstanding at a time; more end with `Overloaded`.
    - `heartbeat`: seconds of silence after which the broker is asked for a sign of life, or a
      `HeartbeatPolicy`; MDP 0.3 and Freelance (2 seconds, and 3 of them), where it is each server.
    - `dialect`: the version of MDP, "0.3" unless the URL says otherwise.
    - `connections`: with MDP 0.1 and 0.2 and the Pirates, how many requests may be out at a time.
    - `hold_back`: the share of each call's time that the broker is not told of; MDP 0.3 (0: none).
      The broker then ends a call that has no reply before the client does, and the error says
      whether a worker ever had it: with 0.1 and `timeout=5.5`, the broker has 5 seconds.
    - `message_size_max`: bytes of one body, in either direction. Messages that come in may have
      1 KiB more, for headers; larger ones cost the connection.
    - `journal`: a folder in which to keep a journal of calls (`requite.journal`), or that
      and its `JournalSettings`, as a pair; None: none.

    Raises `ConfigurationError` for URLs and settings that cannot work, at once.
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
        journal: JournalOption | None = None,
    ) -> None:
        endpoints = read_endpoints(url, bind)
        settings = ClientSettings(
            retry, slots, heartbeat, dialect, connections, message_size_max, hold_back or None
        )
        plan = client_plan(endpoints, settings)
        self._endpoints = endpoints
        self._slots = slots
        name = endpoints.service if service is None else service
        self._asking = Asking(name, timeout, plan.traits, message_size_max)
        self._durable = Durable(name, self._asking, plan.traits)
        self._gate = Gate()
        origin = new_name()
        self._journal = journal_in(journal, WriterRole.CLIENT, origin)
        self._shell = AioShell(
            plan.make_engine(origin, chronicle_of(self._journal)),
            plan.connections,
            deliver=_deliver,
            deliver_all=_deliver_all,
            fail=self._fail,
            flow=_go_on if plan.holds else self._gate.set,
            logger="requite.client",
            reports_dials=True,  # in the errors of calls
        )
        self._submit = self._shell.submit
        self._submit_soon = self._shell.host.submit_soon
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._opening = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncClient {self._endpoints}>"

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as URLs, with the ports it really got; empty before it is opened."""
        return bound_at(self._shell.addresses, self._endpoints.peer_queries)

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
        """End the outstanding calls with `Cancelled`, tell the broker so, and disconnect."""
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
        """Wait until the broker refuses this client for its credentials, and return what is wrong.

        Calls go on trying until their timeouts, since a broker may be restarted with other
        credentials. Who would rather give up awaits this beside them: it never returns once there
        has been a connection, so no request has left.
        """
        return await self._shell.until_refused()

    async def _open(self) -> None:
        """Do what `start` does, and listen first, once, where there is something to listen at."""
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
        if self._journal is not None and self._loop is None:
            self._journal.start()
        self._shell.start()
        self._loop = asyncio.get_running_loop()
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
        """Send a request, and return its reply.

        `timeout` is seconds from now. With `idempotent=False` the request is never sent a second
        time once it may have run. `idempotency_key` lets the far end recognise repetitions.
        Cancelling the awaiting task cancels the call, at the broker and the worker, too.

        Raises a `CallError` that says what happened and whether the request may have run,
        `ConfigurationError` for what this client's protocol cannot do, `TypeError` for a body that
        is not bytes.
        """
        loop = self._loop
        # To ask which loop runs is a system call; whether ours does, and here, is not.
        if loop is None or not loop.is_running() or get_ident() != self._thread:
            await self._open()
            loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        asked = self._asking.submit(
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
        """Send a request, and return the future of its reply. Cancelling that cancels the call."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.start_for(
            future,
            body,
            timeout=timeout,
            service=service,
            idempotent=idempotent,
            idempotency_key=idempotency_key,
        )
        future.add_done_callback(self._forget_if_cancelled)
        return future

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
        """Send a request whose end `taker` is told: a third of the price of a future.

        It is told on the event loop, while replies are handed out, by `set_result` with the `Reply`
        or `set_exception` with the `CallError`, once, as long as it is not `done`; neither may
        raise. `cancel_for` cancels the call.
        """
        if self._thread != get_ident() or self._loop is None or not self._loop.is_running():
            self._start()
        self._submit_soon(
            self._asking.submit(
                taker, body, clock.now(), timeout, service, idempotent, idempotency_key
            )
        )

    def cancel_for(self, taker: Taker) -> None:
        """Cancel the call whose end a taker is to be told; no harm where it has ended."""
        self._submit(Cancel(taker))

    def _forget_if_cancelled(self, future: asyncio.Future[Reply]) -> None:
        if future.cancelled():
            self._submit(Cancel(future))

    def stream(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> AsyncIterator[Partial | Reply]:
        """Send a request; iterate over its partial replies and then, once, its final one.

        Sent when the iteration begins; leaving it early (with `aclose`, or by an exception) cancels
        the call. Once partial replies have come, a lost call is not tried again. Raises as `call`.
        """
        signal = asyncio.Event()
        incoming = Incoming(signal.set)
        asked = self._asking.submit(
            incoming, body, 0.0, timeout, service, idempotent, idempotency_key, partials=True
        )
        return self._stream(incoming, asked, signal)

    async def _stream(
        self, incoming: Incoming, asked: Submit, signal: asyncio.Event
    ) -> AsyncIterator[Partial | Reply]:
        await self._open()
        asked = replace(asked, deadline=clock.now() + asked.deadline)
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
        """Call once per body, up to `concurrency` at a time, and iterate over the replies.

        They come in the order of the bodies, or with `as_completed` as they arrive. `bodies` may be
        endless: it is read as room permits. The first call that fails ends the iteration with its
        error and cancels those that are out; with `return_errors` the error is given in the place
        of the reply instead. `timeout` holds for each call. There are never more out than the
        client has slots; where others use these, too, a call waits until another one of the
        iteration ends.
        """
        signal = asyncio.Event()
        window = Window(concurrency, as_completed, signal.set, slots=self._slots)

        def ask(body: CallBody, again: Item | None = None) -> None:
            asked = self._asking.submit(None, body, clock.now(), timeout, service, idempotent)
            self._submit(replace(asked, token=again or window.add(body)))

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

    # --- requests that are kept (Titanic) ---------------------------------------------------------
    async def submit(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109 - the calls themselves keep it
        service: str | None = None,
        idempotency_key: bytes = b"",
    ) -> str:
        """Have a request kept, beyond this process, until it has been answered; return its ticket.

        The ticket, 32 hex digits, is all it takes to get the reply: here with `result`, later, in
        any process. It is returned once the request is on the disk of the Titanic behind the broker
        (`requite broker --titanic DIR`). With an `idempotency_key` the same request may be
        submitted again, also by another process: the ticket is the same, and it is kept once.

        Raises `NoService` where the broker has no Titanic, `StoreUnavailable` where that cannot
        write, `ConfigurationError` for what can never be kept, and otherwise as `call`.
        """
        return await self._play(self._durable.submit(body, service, idempotency_key, timeout))

    async def result(
        self,
        ticket: str,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109
    ) -> Reply:
        """Wait for the reply to a kept request; it stays there until `forget`.

        Raises `CallTimeout` where there is none in time (the request is still kept), `Poisoned`
        for a request that was put aside since its attempts are used up, `UnknownTicket` where
        nothing is kept under the ticket, `StoreUnavailable` where it cannot be read, and otherwise
        as `call`.
        """
        return await self._play(self._durable.result(ticket, timeout))

    async def forget(
        self,
        ticket: str,
        *,
        timeout: Timeout = ...,  # noqa: ASYNC109
    ) -> None:
        """Drop a kept request and its reply. To do so again, or of any ticket, does nothing."""
        await self._play(self._durable.forget(ticket, timeout))

    async def _play(self, script: Script[T]) -> T:
        try:
            step = next(script)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.until - clock.now())
                    step = script.send(None)
                    continue
                service, frames, until, key = step
                try:
                    reply = await self.call(
                        frames, timeout=Deadline(until), service=service, idempotency_key=key
                    )
                except CallError as error:
                    step = script.throw(error)
                else:
                    step = script.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result

    # --- what the shell tells ---------------------------------------------------------------------
    def _fail(self, token: Any, error: CallError) -> None:
        if not token.done():  # a cancelled future is
            token.set_exception(explain(error, self._shell))


def _go_on(_is_free: bool) -> None:
    """Let calls come: the engine holds those that nobody takes."""


def _deliver(token: Any, what: Any) -> None:
    if not token.done():  # a cancelled future is
        token.set_result(what)


def _deliver_all(pairs: Sequence[tuple[Any, Any]]) -> None:
    for token, what in pairs:
        if not token.done():
            token.set_result(what)
