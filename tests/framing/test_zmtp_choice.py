"""A listener with several mechanisms: each peer chooses one; refused peers hear of it."""

from __future__ import annotations

import pytest
from tests.framing.logins import receive

from requite.errors import RemoteViolation
from requite.framing import (
    Mechanism,
    Null,
    PlainClient,
    PlainServer,
    RefusedByPeer,
    SocketType,
    Zmtp,
    known_users,
)
from requite.principal import Credential

PLAIN = PlainServer(known_users({"ann": "secret"}))
WAITING = Null(waits=True)


def talk(left: Zmtp, right: Zmtp, chunk: int = 1 << 16) -> None:
    """Exchange bytes in chunks of this size until neither side has any more to say."""
    to_right, to_left = left.opening(), right.opening()
    while to_right or to_left:
        for at in range(0, len(to_right), chunk):
            receive(right, to_right[at : at + chunk])
        for at in range(0, len(to_left), chunk):
            receive(left, to_left[at : at + chunk])
        to_right, to_left = left.output(), right.output()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize(
    ("mechanism", "credential"),
    [(Null(), None), (PlainClient("ann", "secret"), Credential("plain", ("ann",)))],
    ids=["null", "plain"],
)
@pytest.mark.parametrize("offered", [(PLAIN, WAITING), (WAITING, PLAIN), (Null(), PLAIN)])
def test_each_peer_gets_the_mechanism_that_it_announces(
    offered: tuple[Mechanism, ...], mechanism: Mechanism, credential: Credential | None, chunk: int
) -> None:
    peer = Zmtp(SocketType.DEALER, mechanism=mechanism, features=["denied"])
    listener = Zmtp(SocketType.ROUTER, mechanism=offered)
    talk(peer, listener, chunk)
    assert peer.ready
    assert listener.ready
    assert listener.peer_credential == credential
    assert listener.peer_features == {"denied"}


def test_a_peer_with_another_mechanism_learns_what_the_listener_uses() -> None:
    peer = Zmtp(SocketType.DEALER, mechanism=PlainClient("ann", "secret"))
    listener = Zmtp(SocketType.ROUTER, mechanism=(Null(waits=True), Null(waits=True)))
    with pytest.raises(RemoteViolation, match="user names and passwords"):
        listener.receive(peer.opening())
    with pytest.raises(RemoteViolation, match="the broker does not use credentials"):
        peer.receive(listener.opening() + listener.output())
    assert peer.refusal


def test_the_greeting_of_a_listener_with_several_mechanisms_ends_before_the_mechanism() -> None:
    several = Zmtp(SocketType.ROUTER, mechanism=(PLAIN, WAITING)).opening()
    one = Zmtp(SocketType.ROUTER, mechanism=PLAIN).opening()
    assert (len(several), len(one)) == (12, 64)
    assert one.startswith(several)


@pytest.mark.parametrize("offered", [(WAITING,), (PLAIN, WAITING)])
def test_a_peer_that_is_not_admitted_gets_an_error_in_place_of_ready(
    offered: tuple[Mechanism, ...],
) -> None:
    peer, listener = Zmtp(SocketType.DEALER), Zmtp(SocketType.ROUTER, mechanism=offered)
    listener.receive(peer.opening())
    peer.receive(listener.opening() + listener.output())
    listener.receive(peer.output())
    assert listener.ready
    listener.refuse("400")
    with pytest.raises(RefusedByPeer, match=r"does not admit this peer \(status 400\)"):
        peer.receive(listener.output())
    assert not peer.ready
    assert "no user of its access file" in peer.refusal


def test_two_sides_that_wait_for_each_other_never_become_ready() -> None:
    left, right = (Zmtp(SocketType.ROUTER, mechanism=WAITING) for _ in range(2))
    talk(left, right)
    assert not left.ready


@pytest.mark.parametrize("offered", [(PLAIN,), (PLAIN, WAITING), (WAITING, PLAIN)])
def test_only_the_handshake_of_plain_waits_for_the_check_of_a_password(
    offered: tuple[Mechanism, ...],
) -> None:
    listener = Zmtp(SocketType.ROUTER, mechanism=offered)
    peer = Zmtp(SocketType.DEALER, mechanism=PlainClient("ann", "secret"))
    listener.receive(peer.opening())
    assert listener.login is None
    peer.receive(listener.opening() + listener.output())
    listener.receive(peer.output())
    assert listener.login is not None
    assert not listener.ready
    another = Zmtp(SocketType.ROUTER, mechanism=(WAITING, PLAIN))
    another.receive(Zmtp(SocketType.DEALER).opening())
    assert another.login is None
