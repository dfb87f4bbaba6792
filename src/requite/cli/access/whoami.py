"""`requite access whoami`: as whom a broker knows this client, and what it may do."""

from __future__ import annotations

import json
from typing import Any

from requite.cli.failures import advised, is_brokerless, place_of
from requite.cli.options import PLAIN, QUIET, BrokerUrl, Connection, JsonFlag, Logging, Timeout
from requite.cli.output import printable, say, say_json
from requite.cli.presence import unless_refused
from requite.errors import ConfigurationError, RemoteViolation


def whoami(
    url: BrokerUrl,
    /,
    *,
    timeout: Timeout = 5.0,
    as_json: JsonFlag = False,
    connection: Connection = PLAIN,
    logging: Logging = QUIET,
) -> None:
    """Show as whom a broker knows this client, and what it may do there.

    $ requite access whoami mdp://127.0.0.1:5555
    """
    from requite.shell.aio import run

    logging.start()
    if is_brokerless(url):
        raise ConfigurationError(f"{place_of(url)} has no broker to ask")
    with advised(url):
        told = run(_ask(connection.complete(url), connection.dialect, timeout))
    if as_json:
        say_json(told)
        return
    say(printable(f"{told['principal'] or 'anonymous'}"))
    rights = told["rights"]
    if rights is None:
        say("  may do everything: the broker has no access file")
        return
    for verb, globs in rights.items():
        if globs:
            say(printable(f"  {verb:<8} {', '.join(globs)}"))
    if not any(rights.values()):
        say("  may do nothing")


async def _ask(url: str, dialect: str | None, timeout_s: float) -> dict[str, Any]:
    from requite.client import AsyncClient

    async with AsyncClient(url, timeout=timeout_s, dialect=dialect) as client:
        reply = await unless_refused(client, client.call(b"", service="mmi.whoami"))
    try:
        told: dict[str, Any] = json.loads(reply.body)
        return {"principal": told["principal"], "rights": told["rights"]}
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteViolation(
            f"the broker answers mmi.whoami with {reply.body[:40]!r}: it is an older broker, or"
            " none of requite"
        ) from error
