"""The addresses that a client or worker dials and listens at: its parsed `url` and `bind`.

A protocol with a broker has one URL, which may name several addresses; one is used at a time. SP
may have any number of URLs: it connects to all of them, and may listen as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias
from urllib.parse import quote

from requite.errors import ConfigurationError
from requite.speaks.url import ServiceUrl
from requite.transport.address import Address, InprocAddress, IpcAddress, TcpAddress

Urls: TypeAlias = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of a client, worker or device side: at least one, all of one protocol."""

    dials: tuple[ServiceUrl, ...]
    binds: tuple[ServiceUrl, ...] = ()

    @property
    def protocol(self) -> str:
        """The protocol of the URLs."""
        return (self.dials + self.binds)[0].protocol

    @property
    def service(self) -> str:
        """The service that the URLs name, or ""."""
        return next((url.service for url in self.dials + self.binds if url.service), "")

    @property
    def is_inproc(self) -> bool:
        """Whether any address is `inproc`, which works within one event loop only."""
        places = (address for url in self.dials + self.binds for address in url.addresses)
        return any(isinstance(address, InprocAddress) for address in places)

    @property
    def peer_queries(self) -> list[str]:
        """For each address to listen at, the query of the peers' URLs."""
        return [url.peer_query for url in self.binds for _ in url.addresses]

    def only_dialled(self) -> ServiceUrl:
        """Return the single URL to dial. Raises `ConfigurationError` for several, or for `bind`."""
        name = self.protocol.upper()
        if self.binds:
            raise ConfigurationError(
                f"{name} connects to its broker and cannot listen; pass the URL without `bind`"
            )
        if len(self.dials) > 1:
            raise ConfigurationError(
                f"{name} takes one URL; separate the addresses of a pair of brokers by commas"
                " (mdp://a:5555,b:5555/echo)"
            )
        return self.dials[0]

    def __str__(self) -> str:
        return ", ".join([*map(str, self.dials), *(f"{url} (bound)" for url in self.binds)])


def bound_at(
    addresses: Iterable[Address], queries: Iterable[str] = repeat(""), protocol: str = "sp"
) -> list[str]:
    """Return the URLs by which peers dial these bound addresses, each with its query
    (`Endpoints.peer_queries`)."""
    return [
        _as_in_url(address, protocol) + query
        for address, query in zip(addresses, queries, strict=False)
    ]


def _as_in_url(address: Address, protocol: str) -> str:
    if isinstance(address, IpcAddress):
        return f"{protocol}+{quote(str(address), safe=':/')}"
    if isinstance(address, TcpAddress) and protocol != "sp":  # only SP names TCP in its scheme
        return f"{protocol}://{address.authority}"
    return f"{protocol}+{address}"
