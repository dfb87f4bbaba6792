"""Ask a broker for its typed services, and services for their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from requite.protocols.majordomo.listing import MMI_LIST, service_names
from requite.typed.described import Description, read_description
from requite.typed.names import DESCRIBE

if TYPE_CHECKING:
    from requite.client import AsyncClient

SUFFIX: Final = f".{DESCRIBE}"
"""What follows the name of a service in the address of its method `describe`."""


class _Describing(Protocol):
    """The method that every typed service has."""

    async def describe(self) -> bytes:
        """Return the description as JSON."""
        ...


async def known_services(client: AsyncClient) -> tuple[str, ...]:
    """Return the names of the typed services that a broker knows (`orders`, `orders.v2`).

    Raises `RemoteViolation` for a broker that answers something else, and the errors of calls.
    """
    listing = await client.call(b"", service=MMI_LIST)
    names = service_names(listing.body)
    return tuple(sorted(n.removesuffix(SUFFIX) for n in names if n.endswith(SUFFIX)))


async def fetch_description(client: AsyncClient, service: str) -> Description:
    """Return the description of a service. Raises `RemoteViolation` for one that returns something
    else, and the errors of calls."""
    body = await client.bind(_Describing, service).describe()
    return read_description(body, f"what {service}{SUFFIX} returns")
