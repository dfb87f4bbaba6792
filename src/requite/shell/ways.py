"""All the ways of one shell, and who dials each; shared by the shells, which bring the diallers.

There is the route by which an engine's `Connect` goes, and one way for each address that the shell
stays connected to by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from requite.errors import TransportError
from requite.shell import clock
from requite.shell.host import Host
from requite.shell.keeping import Endpoint, Kept
from requite.shell.link import Link
from requite.shell.route import Route
from requite.transport.address import Address, InprocAddress
from requite.transport.backoff import Backoff
from requite.transport.descriptors import shortage
from requite.transport.tls import TlsSettings


class Way(Protocol):
    """How to get to a peer: where to dial now, after which pause, and what became of it."""

    @property
    def current(self) -> Address:
        """The address to dial now."""

    @property
    def trouble(self) -> str:
        """What keeps us from being connected, for the message of an error; "" if nothing does."""

    def pause_s(self) -> float:
        """Return how long to wait before dialling."""

    def patience_s(self) -> float:
        """Return how long to wait for an answer, at most (`inf`: as long as others allow)."""

    def failed(self, address: Address, error: TransportError) -> None:
        """Note that nobody could be reached."""

    def opened(self, address: Address, link: Link) -> None:
        """Note that a connection stands."""


class Dialling(Protocol):
    """Who dials one way."""

    def want(self) -> None:
        """Dial once more, unless dialling has stopped for good."""


D = TypeVar("D", bound=Dialling)
Opened = Callable[[Any], Link]
"""Gives a new stream to the host."""


class Ways(Generic[D]):
    """The ways of a shell; iterate over it for their diallers.

    `make_dialler(way, opened, tls)` makes one. `opened` is the host's method.
    """

    def __init__(
        self,
        route: Route,
        opened: Callable[..., Link],
        make_dialler: Callable[[Way, Opened, TlsSettings | None], D],
    ) -> None:
        self.route = route
        self._opened = opened
        self._make_dialler = make_dialler
        self._on_route = make_dialler(route, self._open_on_route, None)
        self._kept: dict[Kept, D] = {}

    def __iter__(self) -> Iterator[D]:
        yield self._on_route
        yield from self._kept.values()

    def connect(self) -> None:
        """Do what an engine's `Connect` stands for."""
        self._on_route.want()

    def begin(self) -> None:
        """Dial all that is kept for the first time."""
        for dialler in self._kept.values():
            dialler.want()

    def keep(self, endpoint: Endpoint) -> D:
        """Make the way to one more endpoint, and return who dials it."""
        kept = Kept(endpoint, Backoff(random.random), clock.now)
        opened = opener(self._opened, endpoint, kept=True)
        self._kept[kept] = dialler = self._make_dialler(kept, opened, endpoint.tls)
        return dialler

    def ended(self, link: Link, reason: str) -> None:
        """Note that a link has ended; see to it that it is dialled again, if it is kept."""
        self.route.ended(link, reason)
        for kept, dialler in self._kept.items():
            if kept.ended(link, reason):
                dialler.want()

    def trouble(self, links: Iterable[Link], listening: Iterable[Address]) -> str:
        """Return why there is nobody to talk to, for the message of an error; "" if there is."""
        if any(link.joined and not link.ended for link in links):
            return ""
        troubles = [kept.trouble for kept in self._kept]
        if self.route.addresses:
            troubles.append(self.route.trouble)
        troubles += [f"nobody is connected to {address}" for address in listening]
        return "; ".join(dict.fromkeys(troubles))  # there may be several ways to one address

    def troubles(self) -> list[tuple[Address, str]]:
        """Return for each way where it leads now, and why there is no connection; "" where there
        is. Those that are kept up come first, in their order."""
        ways: list[Way] = [*self._kept]
        if self.route.addresses:
            ways.append(self.route)
        return [(way.current, way.trouble) for way in ways]

    def kept_trouble(self) -> str:
        """Return why connections that are kept up do not stand; "" if they do."""
        return "; ".join(filter(None, (kept.trouble for kept in self._kept)))

    def _open_on_route(self, stream: Any) -> Link:
        return self._opened(stream, patience_s=self.route.patience_s())


def accepter(host: Host, endpoint: Endpoint) -> Opened:
    """Return what gives the streams that an endpoint accepts to the host, which makes room for them
    where file descriptors run short."""
    give = opener(host.opened, endpoint, accepted=True)
    if isinstance(endpoint.address, InprocAddress):  # it takes none
        return give

    def accept(stream: Any) -> Link:
        link = give(stream)
        if told := shortage(host.giving_way):
            host.make_room(link, told)
        return link

    return accept


def opener(opened: Callable[..., Link], endpoint: Endpoint, **how: bool) -> Opened:
    """Return what gives the streams of an endpoint to the host."""

    def give(stream: Any) -> Link:
        return opened(stream, framing=endpoint.make_framing(), place=endpoint.place, **how)

    return give
