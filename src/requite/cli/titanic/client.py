"""Send one request to a Titanic through its broker, for the verbs of `requite titanic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from cyclopts import Parameter

from requite.cli.failures import advised
from requite.cli.options import Connection
from requite.client.durable import check_ticket
from requite.errors import CallError, RemoteViolation, StoreUnavailable, UnknownTicket
from requite.protocols.titanic.wire import STATUSES, UNKNOWN, TitanicStatus, decode_status
from requite.request import Reply

_OK: Final = STATUSES[0]

Ticket = Annotated[
    str, Parameter(help="The ticket that `requite call --submit` printed: 32 hex digits.")
]


class Titanic:
    """A Titanic behind a broker. Each request times out after `timeout_s` seconds."""

    def __init__(self, url: str, connection: Connection, timeout_s: float) -> None:
        self._url = url
        self._connection = connection
        self._timeout_s = timeout_s

    def ask(self, service: str, *frames: bytes) -> list[bytes]:
        """Return the frames behind a 200. Raises `CallError`: `UnknownTicket` for a 400,
        `StoreUnavailable` for a 500."""
        from requite.client import Client

        url = self._connection.complete(self._url)
        dialect = self._connection.dialect
        with (
            advised(self._url, is_request=False),
            Client(url, timeout=self._timeout_s, dialect=dialect) as client,
        ):
            return frames_after_status(client.call(frames or (b"",), service=service))

    def ask_about(self, service: str, ticket: str, *frames: bytes) -> list[bytes]:
        """Call `service` with a ticket; return the frames behind a 200."""
        return self.ask(service, check_ticket(ticket).encode(), *frames)


def frames_after_status(reply: Reply) -> list[bytes]:
    """Return the frames behind a 200; raise the `CallError` of another status."""
    status = decode_status(reply.frames[0])
    if status.code != _OK:
        raise _error_of(status)
    return list(reply.frames[1:])


def _error_of(status: TitanicStatus) -> CallError:
    kind = UnknownTicket if status.code == UNKNOWN else StoreUnavailable
    return kind(status.text or f"status {status.code}", may_have_executed=False)


def first_frame(frames: Sequence[bytes], service: str) -> bytes:
    """Return the first frame of an answer; raise `RemoteViolation` if there is none."""
    if not frames:
        raise RemoteViolation(f"the reply of {service} has a status, but no data")
    return frames[0]
