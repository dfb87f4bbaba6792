"""Ask typed services for their descriptions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

from requite.cli.failures import is_brokerless
from requite.cli.presence import unless_refused, wait_for_worker
from requite.errors import (
    BadReply,
    BadRequest,
    CallError,
    ConfigurationError,
    RemoteFailure,
    RemoteViolation,
)

if TYPE_CHECKING:
    from requite.cli.options import Connection
    from requite.client import AsyncClient
    from requite.typed.described import Description

DESCRIBE: Final = ".describe"
"""The end of the name under which a typed service describes itself."""


class Describing(Protocol):
    """The method that every typed service has."""

    async def describe(self) -> bytes:
        """Return the description as JSON."""
        ...


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


def facts_of(error: CallError) -> dict[str, Any]:
    """Return what a typed service says of an error, besides its text: `path` and `reason` of a
    message that does not fit, `error` and `data` of a declared error."""
    if isinstance(error, BadRequest | BadReply):
        return {"path": error.path, "reason": error.reason}
    if not isinstance(error.__cause__, RemoteFailure):
        return {}
    try:
        told = json.loads(str(error.__cause__))
        return {name: told[name] for name in ("error", "data") if name in told}
    except (ValueError, TypeError, RecursionError):
        return {}


async def _known(client: AsyncClient, url: str) -> tuple[str, ...]:
    from requite.speaks.registry import parse_url

    if named := parse_url(url).service:
        return (named,)
    if is_brokerless(url):
        raise ConfigurationError(
            "there is no broker to ask for its services: name one after the URL"
        )
    names = await names_at(client)
    return tuple(sorted(n.removesuffix(DESCRIBE) for n in names if n.endswith(DESCRIBE)))


async def names_at(client: AsyncClient) -> list[str]:
    """Return the names of the services at a broker. Raises `RemoteViolation` for another answer."""
    listed = (await client.call(b"", service="mmi.list")).body
    try:
        return [str(row["service"]) for row in json.loads(listed)]
    except (ValueError, TypeError, KeyError) as error:
        raise RemoteViolation(
            f"the broker answers mmi.list with {listed[:40]!r}: it is not a requite broker; name"
            " the service after the URL"
        ) from error


async def describe_one(client: AsyncClient, url: str, service: str) -> Description:
    """Return the description of one service; see `fetch`."""
    from requite.typed.described import read_description

    if not is_brokerless(url):
        await wait_for_worker(client, service + DESCRIBE, 1.0)
    body = await client.bind(Describing, service).describe()
    return read_description(body, f"what {service}{DESCRIBE} returns")
