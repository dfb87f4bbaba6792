"""Ask typed services for their descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from requite.cli.failures import is_brokerless
from requite.cli.presence import unless_refused, wait_for_worker
from requite.errors import BadReply, BadRequest, CallError, ConfigurationError, RemoteFailure

if TYPE_CHECKING:
    from requite.cli.options import Connection
    from requite.client import AsyncClient
    from requite.typed.described import Description

DESCRIBE: Final = ".describe"
"""The end of the name under which a typed service describes itself."""


async def fetch(
    url: str, services: tuple[str, ...], connection: Connection, timeout_s: float
) -> list[Description]:
    """Return the descriptions of typed services, of all that a broker knows if none is named.

    Raises `ConfigurationError` where none is named and no broker can be asked, `RemoteViolation`
    for a broker or a service that answers something else, and the errors of calls.
    """
    from requite.client import AsyncClient

    async with AsyncClient(
        connection.complete(url), timeout=timeout_s, dialect=connection.dialect
    ) as client:
        if not services:
            services = await unless_refused(client, _known(client, url))
        return [await unless_refused(client, describe_one(client, url, each)) for each in services]


def typed_error(failure: RemoteFailure) -> Exception:
    """Return the error of a typed service that a negative reply is (`BadRequest`), or `failure`."""
    if not str(failure).startswith("{"):
        return failure
    try:
        from requite.typed.refusals import error_of
    except ConfigurationError:  # without msgspec
        return failure
    return error_of(failure, {})


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise the errors of typed services as what they are, not as negative replies."""
    try:
        yield
    except RemoteFailure as failure:
        if (error := typed_error(failure)) is failure:
            raise
        raise error from failure


def facts_of(error: CallError) -> dict[str, Any]:
    """Return what a typed service says of an error, besides its text: `path` and `reason` of a
    message that does not fit, `error` and `data` of a declared error."""
    if isinstance(error, BadRequest | BadReply):
        return {"path": error.path, "reason": error.reason}
    if not isinstance(error.__cause__, RemoteFailure):
        return {}
    from requite.typed.refusals import told_by

    told = told_by(error.__cause__) or {}
    return {name: told[name] for name in ("error", "data") if name in told}


async def _known(client: AsyncClient, url: str) -> tuple[str, ...]:
    from requite.speaks.registry import parse_url
    from requite.typed.fetching import known_services

    if named := parse_url(url).service:
        return (named,)
    if is_brokerless(url):
        raise ConfigurationError(
            "there is no broker to ask for its services: name one after the URL"
        )
    return await known_services(client)


async def describe_one(client: AsyncClient, url: str, service: str) -> Description:
    """Return the description of one service; see `fetch`."""
    from requite.typed.fetching import fetch_description

    if not is_brokerless(url):
        await wait_for_worker(client, service + DESCRIBE, 1.0)
    return await fetch_description(client, service)
