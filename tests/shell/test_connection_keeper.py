"""The connection keeper: which addresses are dialled, and the trouble it reports."""

from __future__ import annotations

from tests.shell.fakes import FakeStream, HostBench, LineFraming

from requite.errors import TransportError
from requite.shell.connections import (
    AddressList,
    ConnectionKeeper,
    Connections,
    Endpoint,
    Opened,
    opener,
)
from requite.shell.link import Link
from requite.transport.address import TcpAddress
from requite.transport.tls import TlsSettings

A, B, C = (TcpAddress(name, 1) for name in "abc")
TLS = TlsSettings()


class Dialler:
    """A dialler that counts requested connections."""

    def __init__(self, addresses: AddressList, opened: Opened, tls: TlsSettings | None) -> None:
        self.addresses = addresses
        self.opened = opened
        self.tls = tls
        self.wanted = 0

    def go_on(self) -> None:
        self.wanted = self.addresses.wanted

    def connect(self) -> Link:
        """Simulate an established connection."""
        link = self.opened(FakeStream())
        self.addresses.opened(self.addresses.current, link)
        self.wanted = self.addresses.wanted
        return link


class Bench:
    """A host that dials A on request, and keeps connections to B and C."""

    def __init__(self) -> None:
        self.host = HostBench().host
        endpoints = [Endpoint(B, LineFraming, "the back", TLS), Endpoint(C, LineFraming)]
        connections = Connections(LineFraming, dial_to=[A], keep=endpoints)
        self.keeper = ConnectionKeeper(connections, self.host.opened, Dialler)
        self.on_demand, self.kept_b, self.kept_c = self.keeper

    @property
    def wanted(self) -> list[int]:
        return [dialler.wanted for dialler in self.keeper]

    def trouble(self, *listening: TcpAddress) -> str:
        return self.keeper.trouble(self.host.links, listening)


def test_persistent_connections_are_dialled_at_start_others_on_request() -> None:
    bench = Bench()
    assert bench.wanted == [0, 0, 0]
    bench.keeper.begin()
    assert bench.wanted == [0, 1, 1]
    bench.keeper.connect()
    assert bench.wanted == [1, 1, 1]


def test_only_persistent_connections_are_redialled() -> None:
    bench = Bench()
    bench.keeper.begin()
    bench.keeper.connect()
    for dialler in bench.keeper:
        link = dialler.connect()
        bench.keeper.ended(link, "reset")
    assert bench.wanted == [0, 1, 1]


def test_a_link_has_the_framing_of_its_endpoint() -> None:
    bench = Bench()
    link = bench.kept_b.connect()
    assert (link.kept, link.accepted, link.place) == (True, False, "the back")
    assert isinstance(link.framing, LineFraming)
    assert (bench.kept_b.tls, bench.kept_c.tls) == (TLS, None)
    assert not bench.on_demand.connect().kept


def test_a_listener_has_a_new_framing_for_each_stream() -> None:
    opened = opener(Bench().host.opened, Endpoint(A, LineFraming, "the front"), accepted=True)
    links = [opened(FakeStream()) for _ in range(2)]
    assert all(link.accepted and link.place == "the front" for link in links)
    assert links[0].framing is not links[1].framing


def test_trouble_lists_all_addresses_unless_one_is_connected() -> None:
    bench = Bench()
    bench.kept_b.addresses.failed(B, TransportError("refused"))
    assert bench.trouble(TcpAddress("d", 4)) == (
        "refused; tcp://c:1 has not answered yet; tcp://a:1 has not answered yet;"
        " no peer is connected to tcp://d:4"
    )
    link = bench.kept_c.connect()
    assert "tcp://c:1 has not completed the handshake yet" in bench.trouble()
    link.joined = True
    assert bench.trouble() == ""
    link.ended = True  # its stream is closing
    assert bench.trouble() != ""


def test_a_shell_that_dials_nothing_has_no_trouble() -> None:
    keeper = ConnectionKeeper(Connections(), HostBench().host.opened, Dialler)
    assert keeper.trouble([], []) == ""


def test_a_keeper_stopped_before_its_start_dials_nothing() -> None:
    bench = Bench()
    bench.kept_b.addresses.stop()
    bench.keeper.begin()
    assert bench.wanted == [0, 0, 1]
