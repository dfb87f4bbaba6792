"""The client side of 9/TSP: the steps of `submit`, `result` and `forget`, without I/O.

Each is a *script*: a generator that yields the next step, `Ask` or `Pause`. The client, blocking or
asynchronous, performs the step, then sends the reply or throws the call's error into the generator.

Each submission carries an idempotency key. If its answer is lost, the client submits it again and
the Titanic still stores it once. MDP 0.1 and 0.2 carry no key: only the client's retries apply, and
a submission whose answer was lost may be stored twice.

Source: 9/TSP ("TSP/Request", "TSP/Reply", "TSP/Close"), docs/protocols/tsp-conformance.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Final, NamedTuple, TypeVar

from requite.client.call_arguments import CallBody, SubmitBuilder, Timeout, frames_of
from requite.errors import (
    CallError,
    CallTimeout,
    ConfigurationError,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    RemoteViolation,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
    WorkerLost,
)
from requite.protocols.titanic.wire import (
    CLOSE,
    OK,
    REPLY,
    REQUEST,
    STATUSES,
    TitanicStatus,
    decode_answer,
    decode_status,
    decode_ticket,
)
from requite.request import Reply, Status
from requite.shell import clock, entropy
from requite.speaks.plans import Traits

T = TypeVar("T")

_new: Final = tuple.__new__  # half the cost of calling a NamedTuple's class

_OK, _PENDING, _UNKNOWN, _ERROR = STATUSES

_ATTEMPT_S: Final = 5.0
_PAUSE_S: Final = 0.005
_PAUSE_MAX_S: Final = 1.0
_PAUSE_GROWTH: Final = 1.5
_NAMES_MAX: Final = 1024
_KEY_SIZE: Final = 12  # before it is written in hex
# Errors after which the next attempt may succeed.
_PASSING: Final = (CallTimeout, TransportError, Overloaded, WorkerLost, Poisoned)


class Ask(NamedTuple):
    """Call a service with these frames; the call ends at the instant `until` at the latest."""

    service: str
    frames: Sequence[bytes]
    until: float
    key: bytes = b""


class Pause(NamedTuple):
    """Wait until an instant."""

    until: float


Step = Ask | Pause
Script = Generator[Step, Reply | None, T]


class Durable:
    """The scripts of one client, with its defaults and its protocol's traits."""

    def __init__(self, service: str, builder: SubmitBuilder, traits: Traits) -> None:
        self._service = service
        self._builder = builder
        self._traits = traits
        self._has_keys = _carries_keys(traits)
        # An MDP 0.3 broker reports a lost query. Older dialects do not: repeat it after a while.
        self._attempt_s = inf if self._has_keys else _ATTEMPT_S
        self._names: dict[str, bytes] = {}

    def submit(
        self, body: CallBody, service: str | None, key: bytes, timeout: Timeout
    ) -> Script[str]:
        """Submit a durable request; return its ticket."""
        name = self._name_of(self._service if service is None else service)
        if not key and self._has_keys:
            key = entropy.source.randbytes(_KEY_SIZE).hex().encode()
        until = self._builder.until(clock.now(), timeout)
        frames = (name, body) if body.__class__ is bytes else (name, *frames_of(body))
        return _submit(_new(Ask, (REQUEST, frames, until, key)))

    def _name_of(self, service: str) -> bytes:
        """Return the encoded name of a service; validate it on first use."""
        name = self._names.get(service)
        if name is None:
            self._traits.check_service(service)
            name = service.encode()
            if len(self._names) < _NAMES_MAX:
                self._names[service] = name
        return name

    def result(self, ticket: str, timeout: Timeout) -> Script[Reply]:
        """Wait for the reply to a durable request; return it."""
        ask = Ask(REPLY, _frames_of(ticket), self._builder.until(clock.now(), timeout))
        return _result(ask, ticket, self._attempt_s)

    def forget(self, ticket: str, timeout: Timeout) -> Script[None]:
        """Delete a durable request and its reply."""
        ask = Ask(CLOSE, _frames_of(ticket), self._builder.until(clock.now(), timeout))
        return _forget(ask, ticket, self._attempt_s)


def check_ticket(ticket: str) -> str:
    """Return the ticket; raise `ConfigurationError` unless it is 32 hex digits."""
    try:
        decode_ticket(ticket.encode())
    except (RemoteViolation, AttributeError, UnicodeEncodeError):
        raise ConfigurationError(f"a ticket must have 32 hex digits, not {ticket!r:.60}") from None
    return ticket


# --- the scripts ----------------------------------------------------------------------------------
def _submit(ask: Ask) -> Script[str]:
    pauses = Pauses(ask.until)
    while True:
        try:
            reply = yield from _answer(ask, pauses, inf if ask.key else None)
        except CallError as error:
            if pauses.may_have_arrived and not error.may_have_executed:
                why = "an earlier attempt may have been stored, and run"
                raise _that_may_have_run(error, why) from error
            raise
        if reply.frames[0] == OK:  # the usual case
            return _ticket_of(reply)
        status = decode_status(reply.frames[0])
        if status.code == _OK:
            return _ticket_of(reply)
        reason = status.text or "no reason was given"
        if status.code != _ERROR:
            raise ConfigurationError(
                f"the request was refused, and a retry would be refused, too: {reason}"
            )
        yield from pauses.after(StoreUnavailable(f"the request was not accepted: {reason}"))


def _result(ask: Ask, ticket: str, attempt_s: float) -> Script[Reply]:
    began = clock.now()
    pauses = Pauses(ask.until)
    while True:
        try:
            reply = yield from _answer(ask, pauses, attempt_s)
        except CallError as error:
            raise _still_stored(error, ticket) from error
        status = decode_answer(reply.frames)
        if status.code == _OK:
            frames = reply.frames[1:] or (b"",)
            return Reply(frames, Status.OK, reply.attempts, clock.now() - began)
        if status.code == _UNKNOWN:
            raise _ended(ticket, status)
        yield from pauses.after(_no_reply_yet(ticket, status))


def _forget(ask: Ask, ticket: str, attempt_s: float) -> Script[None]:
    pauses = Pauses(ask.until)
    while True:
        try:
            reply = yield from _answer(ask, pauses, attempt_s)
        except CallError as error:
            raise _still_stored(error, ticket) from error
        status = decode_status(reply.frames[0])
        if status.code in (_OK, _UNKNOWN):  # another store's 400: it has nothing to delete
            return
        yield from pauses.after(StoreUnavailable(f"the request is still stored: {status.text}"))


def _answer(ask: Ask, pauses: Pauses, attempt_s: float | None) -> Script[Reply]:
    """Query until there is an answer; repeat after `attempt_s` seconds (None: query only once)."""
    service, frames, until, key = ask
    while True:
        limit = inf if attempt_s is None else clock.now() + attempt_s
        try:
            reply = yield _new(Ask, (service, frames, limit if limit < until else until, key))
        except _PASSING as error:
            if attempt_s is None:
                raise
            problem: CallError = error
        except NoService as error:
            if service == REQUEST:  # no Titanic came within the broker's grace period
                raise
            problem = error
        else:
            assert reply is not None
            return reply
        yield from pauses.after(problem, is_known=not isinstance(problem, CallTimeout))


class Pauses:
    """Growing pauses between queries, until the deadline; then the last known error is raised.

    A query's timeout does not replace an earlier, more specific error (no reply yet, no service).
    `may_have_arrived`: whether one of the queries so far may have arrived.
    """

    def __init__(self, until: float, rng: Callable[[], float] | None = None) -> None:
        self._until = until
        self._rng = rng or entropy.jitter
        self._pause_s = _PAUSE_S
        self._known: CallError | None = None
        self.may_have_arrived = False

    def after(self, error: CallError, *, is_known: bool = True) -> Script[None]:
        """Wait for the next attempt; once the deadline has passed, raise the last known error."""
        if is_known:
            self._known = error
        self.may_have_arrived |= error.may_have_executed
        pause_s = self._pause_s * (1 - self._rng() / 2)
        self._pause_s = min(_PAUSE_MAX_S, self._pause_s * _PAUSE_GROWTH)
        yield Pause(min(self._until, clock.now() + pause_s))
        if clock.now() >= self._until:
            raise self._known or error


# --- answers --------------------------------------------------------------------------------------
def _ticket_of(reply: Reply) -> str:
    if len(reply.frames) < 2:
        raise RemoteViolation(
            "the Titanic answered a submission with status 200 but without a ticket; the"
            " request may be stored, and may run"
        )
    decode_ticket(reply.frames[1])
    return reply.frames[1].decode()


def _still_stored(error: CallError, ticket: str) -> CallError:
    """Return a query's error as an error about the durable request itself."""
    if error.may_have_executed and ticket in str(error):
        return error
    return _that_may_have_run(error, f"request {ticket} is stored and may have run")


def _that_may_have_run(error: CallError, why: str) -> CallError:
    return error.reworded(f"{error}; {why}", may_have_executed=True)


def _ended(ticket: str, status: TitanicStatus) -> CallError:
    """Return the error of a request that gets no reply but, perhaps, a negative one."""
    if status.is_negative:
        failure = RemoteFailure(status.text, attempts=1)
        failure.is_final = True
        return failure
    if status.is_poisoned:
        return Poisoned(f"the request {ticket} was set aside: {status.text}")
    return UnknownTicket(f"no request is stored under the ticket {ticket}{_because(status)}")


def _no_reply_yet(ticket: str, status: TitanicStatus) -> CallError:
    if status.code == _PENDING:
        return CallTimeout(
            f"no reply to request {ticket} yet; it is stored and may have run; fetch it again later"
        )
    return StoreUnavailable(f"the reply to {ticket} cannot be read now{_because(status)}")


def _because(status: TitanicStatus) -> str:
    return f": {status.text}" if status.text else ""


def _frames_of(ticket: str) -> tuple[bytes]:
    return (check_ticket(ticket).encode(),)


def _carries_keys(traits: Traits) -> bool:
    try:
        traits.check(key=bytes(_KEY_SIZE), partials=False, idempotent=True)
    except ConfigurationError:
        return False
    return True
