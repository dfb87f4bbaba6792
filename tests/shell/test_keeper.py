"""All keeper of a shell: what is dialled when, and what is said when nobody is there."""

from __future__ import annotations

from typing import Any

from tests.shell.fakes import FakeStream, HostBench, LineFraming

from requite.backoff import Backoff
from requite.errors import TransportError
from requite.shell import clock
from requite.shell.connections import AddressList, Dialable, Endpoint, Keeper, Opened, opener
from requite.shell.link import Link
from requite.transport.address import TcpAddress
from requite.transport.tls import TlsSettings

A, B, C = (TcpAddress(name, 1) for name in "abc")
TLS = TlsSettings()


class Dialler:
    """Counts how often its way was to be dialled."""

    def __init__(self, way: Dialable, opened: Opened, tls: TlsSettings | None) -> None:
        self.way = way
        self.opened = opened
        self.tls = tls
        self.wanted = 0

    def want(self) -> None:
        self.wanted += 1

    def connect(self) -> Link:
        """Do as if the connection stood."""
        link = self.opened(FakeStream())
        self.way.opened(self.way.current, link)
        return link


class Bench:
    """The keeper of a host: a route to A, and B and C, which are kept."""

    def __init__(self) -> None:
        self.host = HostBench().host
        route = AddressList([A], Backoff(lambda: 0.0), clock.now)
        self.keeper: Keeper[Dialler] = Keeper(route, self.host.opened, Dialler)
        self.on_route = next(iter(self.keeper))
        self.kept_b = self.keeper.keep(Endpoint(B, LineFraming, "the back", TLS))
        self.kept_c = self.keeper.keep(Endpoint(C, LineFraming))

    @property
    def wanted(self) -> list[int]:
        return [dialler.wanted for dialler in self.keeper]

    def trouble(self, *listening: TcpAddress) -> str:
        return self.keeper.trouble(self.host.links, listening)


def test_what_is_kept_is_dialled_from_the_beginning_and_the_route_when_asked_for() -> None:
    bench = Bench()
    assert bench.wanted == [0, 0, 0]
    bench.keeper.begin()
    assert bench.wanted == [0, 1, 1]
    bench.keeper.connect()
    assert bench.wanted == [1, 1, 1]


def test_only_what_is_kept_is_dialled_again() -> None:
    bench = Bench()
    for dialler in bench.keeper:
        link = dialler.connect()
        bench.keeper.ended(link, "reset")
    assert bench.wanted == [0, 1, 1]


def test_a_link_is_opened_as_its_endpoint_says() -> None:
    bench = Bench()
    link = bench.kept_b.connect()
    assert (link.kept, link.accepted, link.place) == (True, False, "the back")
    assert isinstance(link.framing, LineFraming)
    assert (bench.kept_b.tls, bench.kept_c.tls) == (TLS, None)
    assert not bench.on_route.connect().kept


def test_a_listener_has_a_new_framing_for_each_stream() -> None:
    opened = opener(Bench().host.opened, Endpoint(A, LineFraming, "the front"), accepted=True)
    links = [opened(FakeStream()) for _ in range(2)]
    assert all(link.accepted and link.place == "the front" for link in links)
    assert links[0].framing is not links[1].framing


def test_trouble_is_that_of_all_ways_together_and_none_if_somebody_is_there() -> None:
    bench = Bench()
    bench.kept_b.way.failed(B, TransportError("refused"))
    assert bench.trouble(TcpAddress("d", 4)) == (
        "refused; tcp://c:1 has not answered yet; tcp://a:1 has not answered yet;"
        " nobody is connected to tcp://d:4"
    )
    link = bench.kept_c.connect()
    assert "tcp://c:1 has not completed the handshake yet" in bench.trouble()
    link.joined = True
    assert bench.trouble() == ""
    link.ended = True  # its stream is closing
    assert bench.trouble() != ""


def test_without_a_route_nothing_is_said_of_it() -> None:
    keeper: Keeper[Any] = Keeper(
        AddressList([], Backoff(lambda: 0.0), clock.now), lambda: None, Dialler
    )
    assert keeper.trouble([], []) == ""
