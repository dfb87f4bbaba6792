"""Wait for a worker of a service before sending it a request.

A call to a service without workers then ends with `NoService`, and provably has not run. A request
that is sent at once could time out instead, which does not say whether it ran.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from requite.cli.failures import NotAdmitted, is_brokerless, place_of
from requite.cli.output import complain
from requite.errors import CallError, ConfigurationError, NoService
from requite.protocols.majordomo.keyed import managers_for
from requite.speaks.registry import parse_url

if TYPE_CHECKING:
    from requite.client import AsyncClient

T = TypeVar("T")

_ASK_S: Final = 0.5
_ASK_EVERY_S: Final = 0.1
_PRINT_AFTER_S: Final = 1.0


def name_service(url: str, option: str | None) -> str:
    """Return the name of the service, or raise `ConfigurationError` where there is none.

    SP has no service names: "" unless `option` is given, which the SP client refuses.
    """
    if is_brokerless(url):
        return option or ""
    name = option or parse_url(url).service
    if not name:
        raise ConfigurationError(
            f"the service is missing: add it to the URL ({place_of(url)}/SERVICE), or give"
            " --service NAME"
        )
    return name


def check_stores_requests(url: str) -> None:
    """Raise `ConfigurationError` for a protocol without durable requests."""
    if is_brokerless(url):
        raise ConfigurationError(
            f"{place_of(url)} cannot store requests: durable requests need a broker with a"
            " Titanic (mdp://HOST:PORT)"
        )


def can_be_asked(url: str, service: str) -> bool:
    """Whether a broker can report if `service` has workers (8/MMI). Elsewhere the query would be an
    ordinary request: on RabbitMQ it would start a group of a pool."""
    return bool(service) and not is_brokerless(url)


async def unless_refused(client: AsyncClient, asking: Coroutine[Any, Any, T]) -> T:
    """Return the result of `asking`.

    Raises `NotAdmitted` as soon as the broker refuses the client's credentials: retries until the
    timeout would be refused too.
    """
    asked = asyncio.ensure_future(asking)
    refused = asyncio.ensure_future(client.until_refused())
    try:
        await asyncio.wait((asked, refused), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise NotAdmitted(refused.result(), may_have_executed=False)
    finally:
        refused.cancel()
        asked.cancel()
        await asyncio.wait((asked, refused))
    return asked.result()


async def wait_for_worker(
    client: AsyncClient, service: str, timeout_s: float, *, unless_served: str = ""
) -> float:
    """Return the seconds left once a worker serves `service`; raise `NoService` after `timeout_s`.

    The wait ends as well once a worker serves `unless_served`, if that is given.
    The time runs from the broker's first answer that there is no worker. In a terminal a line on
    stderr says that the command waits.
    """
    left_s, has_printed = timeout_s, False
    while await _is_unserved(client, service) and not (
        unless_served and not await _is_unserved(client, unless_served)
    ):
        if left_s <= 0:
            text = f"no worker serves {service!r}, and none registered within {timeout_s:g} s"
            raise NoService(text, may_have_executed=False)
        if timeout_s - left_s > _PRINT_AFTER_S and not has_printed and sys.stderr.isatty():
            complain(f"waiting: no worker serves {service!r} yet")
            has_printed = True
        await asyncio.sleep(_ASK_EVERY_S)
        left_s -= _ASK_EVERY_S
    return max(left_s, _ASK_EVERY_S)


async def _is_unserved(client: AsyncClient, service: str) -> bool:
    """Ask the broker (8/MMI). False if the broker does not answer."""
    if service.startswith("mmi."):
        return False
    # The service of a pool has workers once a manager can start them.
    names = filter(None, (service, managers_for(service)))
    try:
        codes = [
            (await client.call(name.encode(), service="mmi.service", timeout=_ASK_S)).body
            for name in names
        ]
    except CallError:
        return False
    return all(code == b"404" for code in codes)
