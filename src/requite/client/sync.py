"""`Client`: blocking calls, without an event loop or a background thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import inf
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakSet

from requite.access.exposure import check_exposure
from requite.chronicle import WriterRole
from requite.client.call_arguments import (
    TIMEOUT_S,
    CallBody,
    SubmitBuilder,
    Timeout,
    check_bodies,
    check_timeout,
    explain,
)
from requite.client.durable import Durable
from requite.client.incoming import Incoming
from requite.client.submitting import Submitter
from requite.client.window import Item, Window
from requite.core.liveness import HeartbeatPolicy
from requite.engine import Cancel, Submit
from requite.errors import CallError, Cancelled, ConfigurationError, TransportError
from requite.framing import Limits
from requite.request import Partial, Reply, RetryPolicy
from requite.shell import clock
from requite.shell.journaling import JournalOption, chronicle_of, journal_in, new_name
from requite.shell.sync import Signal, SyncShell
from requite.shell.uses import Uses
from requite.speaks.endpoints import Urls, bound_at
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import carries, client_plan, read_endpoints
from requite.tracing.calls import call_spans

if TYPE_CHECKING:
    from requite.typed.context import Middleware

P = TypeVar("P")

# A `map` sends requests together if they can be made within this time.
_BATCH_S: Final = 0.002
_FOREIGN: Final = (
    "a client that listens cannot be used after a fork: create another one in the child process"
)


class Call(Signal):
    """A call in flight, made by `Client.start`."""

    __slots__ = ("_outcome", "_shell")

    def __init__(self, shell: SyncShell) -> None:
        super().__init__()
        self._shell = shell
        self._outcome: Reply | CallError | None = None

    def done(self) -> bool:
        """Whether the call has ended."""
        return self.is_set or bool(self._shell.lost)

    def result(self, timeout: float | None = None) -> Reply:
        """Wait at most `timeout` seconds for the reply (None: until the call ends) and return it.

        Raises the call's error, or `TimeoutError` if the call is still in flight after that time.
        """
        until = inf if timeout is None else clock.now() + check_timeout(timeout)
        if not self._shell.wait(self, until):
            raise TimeoutError(f"no reply within {timeout:g} s; the call continues")
        outcome = self._outcome
        if isinstance(outcome, CallError):
            raise outcome
        assert outcome is not None
        return outcome

    def cancel(self) -> bool:
        """Cancel the call, also at the broker and the worker; return False if it had ended."""
        if self.is_set:
            return False
        self._shell.submit(Cancel(self))  # a lost shell has ended the call already
        return isinstance(self._outcome, Cancelled)

    def set_result(self, reply: Reply) -> None:
        """End the call with its reply. For the client only."""
        self._outcome = reply
        self._shell.set(self)

    def set_exception(self, error: CallError) -> None:
        """End the call with an error. For the client only."""
        self._outcome = error
        self._shell.set(self)


class Client(Submitter):
    """A blocking client of the service that `url` names; any number of threads may share it.

        with Client("mdp://localhost:5555/echo") as client:
            reply = client.call(b"hello", timeout=2.5)

    Arguments and behaviour are those of `AsyncClient`, except that there is no `hold_back`. With
    SP, calls time out (30 seconds) before the first timed resend (60): raise `timeout`, or lower
    `?resend=`.

    While no thread is in a call, the client reads nothing and sends no heartbeats; a client that
    listens (`bind`, from its construction on) accepts no connections then. After a fork, the child
    opens a new connection with its next call; calls in flight stay with the parent. A client that
    listens stays with the parent, too: in the child its calls end with `TransportError`.

    An exception raised by a signal handler (`KeyboardInterrupt`) always reaches the caller. If it
    strikes while messages are handled, not merely awaited, the client drops the connection: calls
    of other threads end with `TransportError`, and the next call reconnects.
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
        message_size_max: int = Limits().message_size_bytes_max,
        insecure: bool = False,
        journal: JournalOption | None = None,
    ) -> None:
        endpoints = read_endpoints(url, bind)
        if endpoints.is_inproc:
            raise ConfigurationError("inproc connects objects of one event loop; use AsyncClient")
        settings = ClientSettings(retry, slots, heartbeat, dialect, connections, message_size_max)
        self._plan = client_plan(endpoints, settings)
        check_exposure(self._plan.connections.listen, is_guarded=False, insecure=insecure)
        self._endpoints = endpoints
        self._slots = slots
        self._dialect = dialect
        name = endpoints.service if service is None else service
        self._builder = SubmitBuilder(name, timeout, self._plan.traits, message_size_max)
        self._durable = Durable(name, self._builder, self._plan.traits)
        self._connections = self._plan.connections
        self._closed = False
        self._is_foreign = False  # the parent of this fork listens
        self._journal_folder = journal
        self._opening = Lock()
        self._spans = call_spans()
        self._open_journal()
        try:
            self._open()
        except BaseException:
            self._close_journal()
            raise
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<Client {self._endpoints}>"

    def _open_journal(self) -> None:
        """Begin a journal, whose thread no forked child inherits."""
        self._journal = journal_in(self._journal_folder, WriterRole.CLIENT, new_name())
        if self._journal is not None:
            self._journal.start()

    def _open(self) -> None:
        self._engine = self._plan.make_engine(new_name(), chronicle_of(self._journal))
        uses = Uses(
            deliver=_deliver,
            fail=self._fail,
            logger="requite.client",
            reports_dials=True,  # in the errors of calls
        )
        spans = self._spans
        self._shell = SyncShell(
            self._engine, self._connections, **(uses if spans is None else spans.watching(uses))
        )
        listen = [
            each._replace(address=self._shell.listen(each)) for each in self._connections.listen
        ]
        # Reopen on the same ports.
        self._connections = self._connections._replace(listen=listen)

    @property
    def addresses(self) -> list[str]:
        """URLs at which the client listens, with actual ports."""
        return bound_at(self._shell.addresses, self._endpoints.peer_queries)

    # --- life -------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End calls in flight with `Cancelled`, cancel them at the broker, and disconnect."""
        was_open = not self._closed
        self._closed = True
        self._shell.close()
        if was_open and self._shell.lost:
            self._write_off()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _reopen_after_fork(self) -> None:
        shell = self._shell
        self._opening = Lock()  # a thread of the parent may hold the old one
        self._is_foreign = bool(self._connections.listen)
        if self._is_foreign:
            self._journal = None  # the parent's, too
        elif not self._closed:
            self._open_journal()
            self._spans = call_spans()  # those of the parent stay there
            self._open()
        shell.discard()

    def _ready(self) -> SyncShell:
        """Return a usable shell; open a new one if an interruption lost the last."""
        if self._shell.lost:
            with self._opening:
                if self._closed:
                    raise Cancelled("the client is closed", may_have_executed=False)
                if self._is_foreign:
                    raise TransportError(_FOREIGN, may_have_executed=False)
                if self._shell.lost:
                    self._write_off()
                    self._open()
        return self._shell

    def _write_off(self) -> None:
        """Journal that the calls of a lost shell have failed, and end their spans."""
        error = TransportError(self._shell.lost)
        self._engine.calls.abandon_all(error, clock.now())
        if self._spans is not None:
            self._spans.abandon(error)

    # --- calls ------------------------------------------------------------------------------------
    def call(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Reply:
        """Send a request and return its reply; arguments and errors as in `AsyncClient.call`.

        An exception that interrupts the wait (`KeyboardInterrupt`) cancels the call.
        """
        call = self.start(
            body,
            timeout=timeout,
            service=service,
            idempotent=idempotent,
            idempotency_key=idempotency_key,
        )
        try:
            return call.result()
        except BaseException:
            call.cancel()
            raise

    def start(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Call:
        """Send a request and return a handle to wait for its reply or to cancel it.

        If there is a connection, the request is sent at once; otherwise the client begins to
        connect. Handshakes proceed and replies are read only while some thread is in a call or
        waits for a result. Only the DNS lookup blocks.
        """
        call = Call(self._ready())
        asked = self._builder.submit(
            call, body, clock.now(), timeout, service, idempotent, idempotency_key
        )
        while not self._submit(call._shell, asked):
            call._shell = self._ready()
        return call

    def _submit(self, shell: SyncShell, *batch: Submit) -> bool:
        """Submit calls; return False if another thread has just lost the shell."""
        spans = self._spans
        if spans is None:
            return shell.submit(*batch)
        for asked in batch:
            spans.begin(asked)
        if shell.submit(*batch):
            return True
        for asked in batch:
            spans.forget(asked.token)
        return False

    def stream(
        self,
        body: CallBody,
        *,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
        idempotency_key: bytes = b"",
    ) -> Iterator[Partial | Reply]:
        """Send a request and iterate over its partial replies, then its final reply.

        The request is sent when the iteration begins; ending it early cancels the call. See
        `AsyncClient.stream`.
        """
        signal = Signal()
        incoming = Incoming(lambda: self._shell.set(signal))
        asked = self._builder.submit(
            incoming, body, 0.0, timeout, service, idempotent, idempotency_key, partials=True
        )
        return self._stream(incoming, asked, signal, timeout)

    def _stream(
        self, incoming: Incoming, asked: Submit, signal: Signal, timeout: Timeout
    ) -> Iterator[Partial | Reply]:
        shell = self._ready()
        until = self._builder.until(clock.now(), timeout)
        asked = replace(asked, deadline=until)
        while not self._submit(shell, asked):
            shell = self._ready()
        try:
            while not incoming.is_through:
                signal.is_set = False
                yield from incoming.take()
                if not incoming.done():
                    shell.wait(signal)
        finally:
            if not incoming.done():
                shell.submit_soon(Cancel(incoming))

    def map(
        self,
        bodies: Iterable[CallBody],
        *,
        concurrency: int = 64,
        as_completed: bool = False,
        return_errors: bool = False,
        timeout: Timeout = ...,
        service: str | None = None,
        idempotent: bool = True,
    ) -> Iterator[Reply | CallError]:
        """Call once per body, up to `concurrency` at a time; see `AsyncClient.map`."""
        check_bodies(bodies)
        signal = Signal()
        window = Window(
            concurrency, as_completed, lambda: self._shell.set(signal), slots=self._slots
        )

        def ask(body: CallBody, again: Item | None = None) -> Submit:
            asked = self._builder.submit(None, body, clock.now(), timeout, service, idempotent)
            return replace(asked, token=again or window.add(body))

        return _map(self._ready, self._submit, iter(bodies), ask, window, signal, return_errors)

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

        See `AsyncClient.bind`. Methods are declared with `def`, those with partial replies as
        `def watch(...) -> Iterator[Quote]`; middleware must not await anything besides `proceed`.
        """
        from requite.typed.binding import Options, bind

        name = self._endpoints.service if service is None else service
        carried = carries(self._endpoints, self._dialect)
        options = Options(name, version, codec, middleware, carried, is_async=False)
        bound: P = bind(self, protocol, options)
        return bound

    def _fail(self, token: Any, error: CallError) -> None:
        token.set_exception(explain(error, self._shell))


def _deliver(token: Any, what: Any) -> None:
    token.set_result(what)


def _map(
    ready_shell: Callable[[], SyncShell],
    submit: Callable[..., bool],
    bodies: Iterator[CallBody],
    ask: Callable[..., Submit],
    window: Window,
    signal: Signal,
    return_errors: bool,
) -> Iterator[Reply | CallError]:
    shell = ready_shell()
    try:
        while True:
            signal.is_set = False
            ready = window.take()
            batch, is_cut = _batch(bodies, ask, window)
            while batch and not submit(shell, *batch):  # lost, with the calls that were in flight
                _end({*window.running()} - {each.token for each in batch}, shell.lost)
                shell = ready_shell()
            for outcome in ready:
                if isinstance(outcome, CallError) and not return_errors:
                    raise outcome
                yield outcome
            if window.is_empty:
                return
            if not ready and not is_cut and not _wait(shell, signal):
                _end(window.running(), shell.lost)
                shell = ready_shell()
    finally:
        shell.submit_soon(*map(Cancel, window.running()))


def _wait(shell: SyncShell, signal: Signal) -> bool:
    try:
        return shell.wait(signal)
    except TransportError:
        return False


def _end(items: Iterable[Item], reason: str) -> None:
    for item in items:
        item.set_exception(TransportError(reason))


def _batch(
    bodies: Iterator[CallBody], ask: Callable[..., Submit], window: Window
) -> tuple[list[Submit], bool]:
    """Make as many requests as there is room for; return True if slow input cut the batch short.

    Requests already made must not wait for slow input: their deadlines run.
    """
    until = clock.now() + _BATCH_S
    batch = [ask(item.body, item) for item in window.again()]
    room = max(0, window.room)
    for taken, body in enumerate(islice(bodies, room), 1):
        batch.append(ask(body))
        if clock.now() > until:
            return batch, taken < room
    return batch, False


# --- forks ----------------------------------------------------------------------------------------
_clients: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._reopen_after_fork()


with suppress(AttributeError):  # a platform without fork
    os.register_at_fork(after_in_child=_after_fork)
