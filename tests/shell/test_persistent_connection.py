"""When a connection that is kept up is dialled again, and what is said of its trouble."""

from __future__ import annotations

import pytest
from tests.shell.fakes import FakeStream, LineFraming

from requite.backoff import Backoff
from requite.errors import LocalViolation, TransportError
from requite.shell.connections import Endpoint, PersistentConnection, no_framing
from requite.shell.link import Link
from requite.transport.address import TcpAddress

A, B = TcpAddress("a", 1), TcpAddress("b", 2)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def kept(clock: Clock, address: TcpAddress = A) -> PersistentConnection:
    return PersistentConnection(
        Endpoint(address, LineFraming), Backoff(lambda: 0.0, first_s=0.05), clock
    )


def open_link(way: PersistentConnection, joined: bool = True) -> Link:
    link = Link(FakeStream(), LineFraming(), accepted=False, kept=True)
    link.joined = joined
    way.opened(way.current, link)
    return link


def test_it_is_dialled_at_once_and_then_after_growing_pauses(clock: Clock) -> None:
    way = kept(clock)
    assert (way.current, way.pause_s()) == (A, 0.0)
    pauses = []
    for _ in range(3):
        way.failed(A, TransportError("refused"))
        pauses.append(way.pause_s())
    assert pauses == [0.05, 0.1, 0.2]


def test_a_connection_that_lived_is_dialled_again_at_once(clock: Clock) -> None:
    way = kept(clock)
    for _ in range(5):
        way.failed(A, TransportError("refused"))
        way.pause_s()
    link = open_link(way)
    clock.now += 2.0
    assert way.ended(link, "reset")
    assert way.pause_s() == 0.0
    way.failed(A, TransportError("refused"))
    assert way.pause_s() == 0.05


@pytest.mark.parametrize("joined", [True, False])
def test_one_that_was_short_is_not(clock: Clock, joined: bool) -> None:
    way = kept(clock)
    pauses = []
    for _ in range(3):
        link = open_link(way, joined)
        clock.now += 0.5 if joined else 9.0  # a handshake that was never completed is no life
        way.ended(link, "hung up")
        pauses.append(way.pause_s())
    assert pauses == [0.05, 0.1, 0.2]


def test_the_end_of_another_link_is_no_concern(clock: Clock) -> None:
    way, other = kept(clock), kept(clock, B)
    link, others = open_link(way), open_link(other)
    assert not way.ended(others, "reset")
    assert way.trouble == ""
    assert way.ended(link, "reset")
    assert not way.ended(link, "reset")  # nor the end of one that has ended


def test_trouble_is_told_in_words(clock: Clock) -> None:
    way = kept(clock)
    assert way.trouble == "tcp://a:1 has not answered yet"
    way.failed(A, TransportError("cannot connect to tcp://a:1: refused"))
    assert way.trouble == "cannot connect to tcp://a:1: refused"
    link = open_link(way, joined=False)
    assert way.trouble == "tcp://a:1 has not completed the handshake yet"
    link.joined = True
    assert way.trouble == ""
    way.ended(link, "reset")
    assert way.trouble == "the connection to tcp://a:1 ended: reset"


def test_why_a_handshake_failed_is_told_while_the_next_one_goes_on(clock: Clock) -> None:
    way = kept(clock)
    way.ended(open_link(way, joined=False), "HTTP 404")
    again = open_link(way, joined=False)
    assert way.trouble == "the connection to tcp://a:1 ended: HTTP 404"
    again.joined = True
    assert way.trouble == ""


def test_a_shell_without_a_framing_says_so() -> None:
    with pytest.raises(LocalViolation, match="framing"):
        no_framing()
