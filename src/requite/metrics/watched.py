"""What a monitor shows of each kind of server. Each takes the functions that read the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from prometheus_client.registry import Collector

from requite.metrics.brokers import StoreFigures, of_broker, of_pair, of_services, of_titanic
from requite.metrics.families import Family
from requite.metrics.selection import Selection
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.census import Census, Traffic
from requite.protocols.titanic.core import TitanicSnapshot
from requite.shell import clock


class HasTrouble(Protocol):
    """A server that knows whether it can do its work."""

    @property
    def trouble(self) -> str: ...


class WatchedServer:
    """A server whose metrics `read` returns."""

    def __init__(self, server: HasTrouble, read: Callable[[], Sequence[Family]]) -> None:
        self._server: Final = server
        self._read: Final = read

    @property
    def trouble(self) -> str:
        """See `Watched.trouble`."""
        return self._server.trouble

    async def read(self) -> Sequence[Collector]:
        """See `Watched.read`."""
        return self._read()

    async def read_service(self, _name: str) -> None:
        """Return None: only brokers have services to ask for."""


class TitanicReader(Protocol):
    """A Titanic."""

    def snapshot(self) -> TitanicSnapshot: ...
    def store_view(self) -> StoreFigures: ...


class PairReader(Protocol):
    """A server of a pair."""

    @property
    def view(self) -> PairView: ...


class BrokerReader(HasTrouble, Protocol):
    """A broker."""

    def census(self) -> Census: ...
    def traffic(self, service: str) -> Traffic | None: ...
    @property
    def titanic(self) -> TitanicReader | None: ...
    @property
    def pair(self) -> PairReader | None: ...


class WatchedBroker:
    """A broker, with its Titanic and its pair. `named_max`: how many services have metrics of their
    own."""

    def __init__(self, broker: BrokerReader, named_max: int) -> None:
        self._broker: Final = broker
        self._selection: Final = Selection(named_max)

    @property
    def trouble(self) -> str:
        """See `Watched.trouble`."""
        return self._broker.trouble

    async def read(self) -> Sequence[Collector]:
        """See `Watched.read`."""
        broker = self._broker
        census = broker.census()
        await asyncio.sleep(0)  # 10,000 services and as many peers take 1 ms
        families = of_broker(census)
        if broker.titanic is not None:
            families += read_titanic(broker.titanic)
        if broker.pair is not None:
            families += of_pair(broker.pair.view)
        services = await self._selection.read(census)
        return [*families, *await of_services(services, clock.now())]

    async def read_service(self, name: str) -> Sequence[Collector] | None:
        """See `Watched.read_service`. These are all that the service counted, also before it had
        metrics of its own at `/metrics`."""
        seen = self._broker.traffic(name)
        return None if seen is None else await of_services([seen], clock.now())


def read_titanic(titanic: TitanicReader) -> list[Family]:
    """Return the metrics of a Titanic."""
    return of_titanic(titanic.snapshot(), titanic.store_view())
