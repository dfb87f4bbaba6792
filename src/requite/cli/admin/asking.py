"""Send a management request that changes something, and print its answer."""

from __future__ import annotations

import json
from typing import Final

from requite.cli.exit_codes import ExitCode
from requite.cli.failures import advised, is_brokerless, place_of
from requite.cli.options import Connection
from requite.cli.output import complain, counted, printable, say, say_json
from requite.cli.presence import unless_refused
from requite.errors import ConfigurationError, RemoteViolation

_TOLD: Final = {
    "kicked": "connection",
    "queued": "request",
    "purged": "request",
    "draining": "request",
}


def operate(
    url: str,
    act: str,
    subject: str,
    *more: str,
    timeout_s: float,
    as_json: bool,
    connection: Connection,
) -> ExitCode:
    """Ask a broker for `mmi.ACT` of a subject; return `FAILED` if it does not know the subject."""
    from requite.shell.aio import run

    if is_brokerless(url):
        raise ConfigurationError(f"{place_of(url)} has no broker to ask")
    with advised(url):
        answer = run(_ask(connection, url, act, [subject, *more], timeout_s))
    if answer == b"404":
        complain(f"the broker knows no {printable(subject)}; see `requite services --workers`")
        return ExitCode.FAILED
    try:
        ((what, count),) = json.loads(answer).items()
        told = _TOLD[what]
        text = f"{what}: {counted(int(count), told)}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RemoteViolation(
            f"the broker answers mmi.{act} with {answer[:40]!r}: it is an older broker, or none of"
            " requite"
        ) from error
    if as_json:
        say_json({what: count})
    else:
        say(text)
    return ExitCode.OK


async def _ask(
    connection: Connection, url: str, act: str, body: list[str], timeout_s: float
) -> bytes:
    from requite.client import AsyncClient

    dialect = connection.dialect
    async with AsyncClient(connection.complete(url), timeout=timeout_s, dialect=dialect) as client:
        frames = [part.encode() for part in body]
        # An act that was sent twice could hit a peer that has just come back.
        asking = client.call(frames, service=f"mmi.{act}", idempotent=False)
        return (await unless_refused(client, asking)).body
