"""A persistent connection: when it is redialled, and the trouble it reports."""

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


def open_link(connection: PersistentConnection, joined: bool = True) -> Link:
    link = Link(FakeStream(), LineFraming(), accepted=False, kept=True)
    link.joined = joined
    connection.opened(connection.current, link)
    return link


def test_it_is_wanted_at_start_and_whenever_it_ends(clock: Clock) -> None:
    connection = kept(clock)
    assert connection.wanted == 1
    link = open_link(connection)
    assert connection.wanted == 0
    connection.ended(link, "reset")
    assert connection.wanted == 1


def test_a_stopped_connection_is_not_wanted_again(clock: Clock) -> None:
    connection = kept(clock)
    link = open_link(connection)
    connection.stop()
    connection.ended(link, "reset")
    assert connection.wanted == 0


def test_it_is_dialled_at_once_and_then_with_growing_pauses(clock: Clock) -> None:
    connection = kept(clock)
    assert (connection.current, connection.pause_s()) == (A, 0.0)
    pauses = []
    for _ in range(3):
        connection.failed(A, TransportError("refused"))
        pauses.append(connection.pause_s())
    assert pauses == [0.05, 0.1, 0.2]


def test_a_long_connection_is_redialled_at_once(clock: Clock) -> None:
    connection = kept(clock)
    for _ in range(5):
        connection.failed(A, TransportError("refused"))
        connection.pause_s()
    link = open_link(connection)
    clock.now += 2.0
    assert connection.ended(link, "reset")
    assert connection.pause_s() == 0.0
    connection.failed(A, TransportError("refused"))
    assert connection.pause_s() == 0.05


@pytest.mark.parametrize("joined", [True, False])
def test_a_short_connection_is_not_redialled_at_once(clock: Clock, joined: bool) -> None:
    connection = kept(clock)
    pauses = []
    for _ in range(3):
        link = open_link(connection, joined)
        clock.now += 0.5 if joined else 9.0  # an incomplete handshake never counts as a connection
        connection.ended(link, "hung up")
        pauses.append(connection.pause_s())
    assert pauses == [0.05, 0.1, 0.2]


def test_the_end_of_another_link_is_ignored(clock: Clock) -> None:
    connection, other = kept(clock), kept(clock, B)
    link, others = open_link(connection), open_link(other)
    assert not connection.ended(others, "reset")
    assert connection.trouble == ""
    assert connection.ended(link, "reset")
    assert not connection.ended(link, "reset")  # a second end of the same connection has no effect


def test_trouble_is_described_in_words(clock: Clock) -> None:
    connection = kept(clock)
    assert connection.trouble == "tcp://a:1 has not answered yet"
    connection.failed(A, TransportError("cannot connect to tcp://a:1: refused"))
    assert connection.trouble == "cannot connect to tcp://a:1: refused"
    link = open_link(connection, joined=False)
    assert connection.trouble == "tcp://a:1 has not completed the handshake yet"
    link.joined = True
    assert connection.trouble == ""
    connection.ended(link, "reset")
    assert connection.trouble == "the connection to tcp://a:1 ended: reset"


def test_trouble_remains_during_the_next_handshake(clock: Clock) -> None:
    connection = kept(clock)
    connection.ended(open_link(connection, joined=False), "HTTP 404")
    again = open_link(connection, joined=False)
    assert connection.trouble == "the connection to tcp://a:1 ended: HTTP 404"
    again.joined = True
    assert connection.trouble == ""


def test_a_shell_without_a_framing_reports_it() -> None:
    with pytest.raises(LocalViolation, match="framing"):
        no_framing()
