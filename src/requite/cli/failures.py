"""Failed calls in words: what happened, whether the request may have run, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from requite.cli.output import printable
from requite.errors import (
    BadReply,
    BadRequest,
    CallError,
    CallTimeout,
    Cancelled,
    Denied,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    RequiteError,
    StoreUnavailable,
    TransportError,
    UnknownTicket,
    WorkerLost,
)
from requite.speaks.url import redact


class NotAdmitted(TransportError):
    """The broker refused the credentials, or requires some; no request was sent."""


class Kind(NamedTuple):
    """A kind of failure: its name in JSON, and advice for users of requite's broker, of no broker
    and of RabbitMQ.

    {place} is replaced by the URL without its service.
    """

    name: str
    advice: str
    brokerless: str = ""
    rabbit: str = ""


_RABBIT: Final = ("amqp", "amqps")
_BROKERLESS: Final = ("sp", "flp", "pirate", *_RABBIT)
_AGAIN: Final = "try again later"
_LOGS: Final = "read its workers' logs before you try again"
_NO_CONNECTION: Final = Kind(
    "NO_CONNECTION",
    "check that a broker listens at {place}",
    "check that a service or device is reachable at {place}",
    "check that RabbitMQ listens at {place}",
)
_KINDS: Final[dict[type[CallError], Kind]] = {
    CallTimeout: Kind("TIMEOUT", "`requite services {place}` shows workers and queues"),
    NoService: Kind("NO_SERVICE", "`requite services {place}` shows which services have workers"),
    Overloaded: Kind("OVERLOADED", _AGAIN, _AGAIN, _AGAIN),
    BadRequest: Kind("BAD_REQUEST", "`requite describe {place}` shows what it takes"),
    BadReply: Kind("BAD_REPLY", ""),
    RemoteFailure: Kind("FAILED", ""),
    Denied: Kind("DENIED", "`requite access whoami {place}` shows what you may do"),
    WorkerLost: Kind("WORKER_LOST", "read its worker's log before you try again", "", _LOGS),
    Poisoned: Kind("POISONED", _LOGS, "", _LOGS),
    UnknownTicket: Kind("UNKNOWN_TICKET", "`requite titanic ls {place}` lists the stored requests"),
    StoreUnavailable: Kind("STORE_UNAVAILABLE", _AGAIN),
    Cancelled: Kind("CANCELLED", ""),
    NotAdmitted: Kind("NO_CONNECTION", ""),  # its message has the advice
    # RabbitMQ's own message gives the reason.
    TransportError: _NO_CONNECTION._replace(rabbit=""),
}


def is_unsent(error: RequiteError) -> bool:
    """Whether a call timed out before a connection was open."""
    return isinstance(error, CallTimeout) and not error.attempts and not error.may_have_executed


def kind_of(error: CallError) -> Kind:
    """Return the kind of a failure."""
    if is_unsent(error):
        return _NO_CONNECTION
    return next(kind for type_, kind in _KINDS.items() if isinstance(error, type_))


@contextmanager
def advised(url: str, *, is_request: bool = True) -> Iterator[None]:
    """Add notes to each `CallError` of the block: whether the request may have run, and advice.

    `is_request`: the call is the user's own request, not a query to the broker, so the error must
    say whether it may have run.
    """
    try:
        yield
    except CallError as error:
        # Most messages of the engines say it already, in more detail.
        says_it = " run" in str(error) or _is_of_handler(error)
        if is_request and not says_it:
            ran = "may have run" if error.may_have_executed else "has not run"
            error.add_note(f"the request {ran}")
        if not error.says_what_to_do:
            error.add_note(_advice(kind_of(error), url).format(place=place_of(url)))
        raise


def _advice(kind: Kind, url: str) -> str:
    if _is_rabbit(url):
        return kind.rabbit
    return kind.brokerless if is_brokerless(url) else kind.advice


def sentence(error: RequiteError) -> str:
    """Return an error and its notes as one line; escape control characters from peers."""
    text = f"the handler failed: {error}" if _is_of_handler(error) else str(error)
    parts = filter(None, [text.rstrip("."), *getattr(error, "__notes__", ())])
    return printable("; ".join(parts))


def _is_of_handler(error: RequiteError) -> bool:
    return isinstance(error, RemoteFailure) and not isinstance(error, BadReply)


def is_brokerless(url: str) -> bool:
    """Whether the protocol of a URL has no broker that lists its services."""
    scheme = url.partition("://")[0]
    return scheme == "inproc" or scheme.partition("+")[0] in _BROKERLESS


def has_users(url: str) -> bool:
    """Whether the protocol of a URL has user names and passwords."""
    return _is_rabbit(url) or not is_brokerless(url)


def _is_rabbit(url: str) -> bool:
    return url.partition("://")[0] in _RABBIT


def place_of(url: str) -> str:
    """Return a URL without its service, password and options."""
    scheme, _, rest = redact(url).partition("://")
    place = rest.partition("?")[0]
    names_service = scheme in ("mdp", "mdp+tls", "mdp+inproc")
    return f"{scheme}://{place.partition('/')[0] if names_service else place}"
