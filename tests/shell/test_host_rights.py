"""The host: owners of accepted links, their connections, and changes of their rights."""

from __future__ import annotations

from typing import Any

import pytest
from tests.shell.fakes import FakeStream, HostBench, warnings_of

from requite.engine import PeerLost, RightsChanged
from requite.framing import IdentityTable, SocketType, Zmtp
from requite.framing.base import CredentialsRefused
from requite.framing.zmtp import RefusedByPeer
from requite.principal import Principal, Quota
from requite.shell.link import Link


class Users:
    """A table of users; every peer is `shop`, unless `refuses`."""

    def __init__(self) -> None:
        self.shop = Principal("shop")
        self.refuses = False

    def identify(self, _credential: Any, _peer_name: str, _place: Any) -> Principal:
        if self.refuses:
            raise CredentialsRefused("no user has it")
        return self.shop


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def bench(users: Users) -> HostBench:
    return HostBench(identify=users.identify)


def joined(bench: HostBench) -> list[str]:
    """Return the names of the peers whose links are open."""
    return [link.stream.peer_name for link in bench.host.links if link.joined and not link.ended]


def test_a_principal_has_as_many_connections_as_its_quota_allows(
    bench: HostBench, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    users.shop.quota = Quota(connections=2)
    links = [bench.open(name)[0] for name in "abc"]
    assert joined(bench) == ["a", "b"]
    assert "shop has 2 connections, the maximum" in warnings_of(caplog)[0]
    bench.host.closed(links[0], "")
    bench.open("d")
    assert joined(bench) == ["b", "d"]


@pytest.mark.parametrize("by_quota", [True, False])
def test_a_refused_peer_is_told_whether_its_credentials_or_its_quota_are_the_reason(
    bench: HostBench, users: Users, by_quota: bool
) -> None:
    users.shop.quota = Quota(connections=1)
    bench.open("a")
    users.refuses = not by_quota
    peer, listener = Zmtp(SocketType.DEALER), Zmtp(SocketType.ROUTER)
    stream = FakeStream("b")
    link = bench.host.opened(stream, accepted=True, framing=listener)
    opening = listener.opening()
    peer.receive(opening)
    bench.host.received(link, peer.opening() + peer.output())
    told = b"".join(call for call in stream.calls if isinstance(call, bytes))
    with pytest.raises(RefusedByPeer, match="too-many-connections" if by_quota else "status 400"):
        peer.receive(told.removeprefix(opening))


def test_connections_from_before_a_quota_count(bench: HostBench, users: Users) -> None:
    links = [bench.open(name)[0] for name in "abc"]
    users.shop.quota = Quota(connections=2)
    bench.open("d")
    assert joined(bench) == ["a", "b", "c"]
    for link in links[:2]:
        bench.host.closed(link, "")
    for name in "ef":
        bench.open(name)
    assert joined(bench) == ["c", "e"]


def test_incomplete_messages_from_before_a_quota_count(bench: HostBench, users: Users) -> None:
    early, _ = bench.open("early")
    bench.host.received(early, b"x" * 600)
    users.shop.quota = Quota(bytes=1000)
    late, _ = bench.open("late")
    bench.host.received(late, b"x" * 500)
    assert joined(bench) == ["late"], "the one with the largest message is dropped"
    bench.host.received(late, b"x" * 400)
    assert joined(bench) == ["late"]


def test_no_incomplete_messages_are_counted_in_the_end(bench: HostBench, users: Users) -> None:
    link, _ = bench.open("a")
    bench.host.received(link, b"x" * 600)
    bench.host.received(link, b"\n")
    assert not bench.host._limiter._partials.sizes._by_owner


def test_the_engine_reviews_rights_before_connections_end(bench: HostBench, users: Users) -> None:
    """It must know all changes before it handles the loss of a peer."""
    bench.open("a")
    users.refuses = True
    bench.host.rights_changed()
    kinds = [type(each) for each in bench.engine.inputs if type(each) in (PeerLost, RightsChanged)]
    assert kinds == [RightsChanged, PeerLost]
    assert joined(bench) == []


@pytest.mark.parametrize("handover", [True, False])
def test_nobody_takes_over_the_identity_of_another_principal(handover: bool) -> None:
    owners = {"a": Principal("shop"), "b": Principal("thief"), "c": Principal("shop")}
    identities: IdentityTable[Link] = IdentityTable(start=1, handover=handover)
    bench = HostBench(identify=lambda _, name, _place: owners[name], identities=identities)
    links = {}
    for name in "ab":
        links[name] = bench.open(name, joined=False)[0]
        bench.host.received(links[name], b"me\n")
    assert joined(bench) == ["a", "b"]
    assert links["a"].identity == b"me"
    assert links["b"].identity == b"\0" + bytes((0, 0, 0, 1)), "an assigned one"
    again = bench.open("c", joined=False)[0]
    bench.host.received(again, b"me\n")
    assert joined(bench) == (["b", "c"] if handover else ["a", "b"]), "within a principal as before"
