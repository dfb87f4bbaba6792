"""Candidates of tab completion: the services of the broker that a command line names.

Shells call `requite __complete WORDS` for them. cyclopts ignores errors there, so no broker, no
right and no reply mean no candidates.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from requite.cli.descriptions import DESCRIBE
from requite.cli.failures import is_brokerless
from requite.cli.options import Connection
from requite.protocols.majordomo.listing import MMI_LIST, service_names

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

_REPLY_S: Final = 1.0
_WHOLE_S: Final = 2  # also for what cannot be cancelled, such as a look-up of a host
_NAME: Final = re.compile(r"[\w./:-]+")  # others would have to be quoted
_URL: Final = re.compile(r"mdp(\+tls)?://[^/?]+(?=/[^?]*$|$)")


def urls_of_services(context: CompletionContext) -> list[str]:
    """Return URLs of the services at the broker of an incomplete URL."""
    broker = _URL.match(context.incomplete)
    if broker is None:
        return []
    names = _names(context, broker[0])
    return [f"{broker[0]}/{name}" for name in names if not name.endswith(DESCRIBE)]


def services(context: CompletionContext) -> list[str]:
    """Return the services at the broker of the URL on the command line."""
    names = _names(context, context["url"].raw or "")
    return [name for name in names if not name.endswith(DESCRIBE)]


def typed_services(context: CompletionContext) -> list[str]:
    """Return the typed services at the broker of the URL on the command line."""
    names = _names(context, context["url"].raw or "")
    return [name.removesuffix(DESCRIBE) for name in names if name.endswith(DESCRIBE)]


def _names(context: CompletionContext, url: str) -> list[str]:
    if is_brokerless(url):
        return []
    given = {field.name: context[field.name].value for field in fields(Connection)}
    with _limited():
        return list(filter(_NAME.fullmatch, asyncio.run(_ask(url, Connection(**given)))))


async def _ask(url: str, connection: Connection) -> list[str]:
    from requite.client import AsyncClient

    async with AsyncClient(
        connection.complete(url), timeout=_REPLY_S, dialect=connection.dialect
    ) as client:
        listing = await client.call(b"", service=MMI_LIST)
        return service_names(listing.body)


@contextmanager
def _limited() -> Iterator[None]:
    """End the process without candidates if the block takes longer than a user would wait."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.alarm(_WHOLE_S)
    try:
        yield
    finally:
        signal.alarm(0)
