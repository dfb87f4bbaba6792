"""The address list: the next address to dial, back-off, and the reported trouble."""

from __future__ import annotations

from math import inf

import pytest
from tests.shell.fakes import FakeStream, LineFraming

from requite.backoff import Backoff
from requite.errors import TransportError
from requite.shell.connections import AddressList, backoff_for
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


def address_list(clock: Clock, *addresses: TcpAddress) -> AddressList:
    return AddressList(addresses, Backoff(lambda: 0.0, first_s=0.05), clock)


def link(joined: bool = True) -> Link:
    made = Link(FakeStream(), LineFraming(), accepted=False)
    made.joined = joined
    return made


def fail(address_list: AddressList) -> None:
    address_list.failed(
        address_list.current, TransportError(f"cannot connect to {address_list.current}: refused")
    )


def test_an_open_connection_reduces_the_number_wanted(clock: Clock) -> None:
    lone = address_list(clock, A)
    lone.want()
    lone.want()
    fail(lone)
    assert lone.wanted == 2
    lone.opened(A, link())
    assert lone.wanted == 1


def test_a_stopped_list_wants_no_connections(clock: Clock) -> None:
    lone = address_list(clock, A)
    lone.want()
    lone.stop()
    lone.want()
    assert lone.wanted == 1


def test_the_end_of_a_foreign_connection_is_ignored(clock: Clock) -> None:
    lone = address_list(clock, A)
    ours = link()
    lone.opened(A, ours)
    assert not lone.ended(link(), "reset")
    assert lone.ended(ours, "reset")
    assert not lone.ended(ours, "reset")


def test_a_short_connection_does_not_count_as_a_failure(clock: Clock) -> None:
    """The engine that requested the connection backs off by itself."""
    lone = address_list(clock, A)
    short = link()
    lone.opened(A, short)
    lone.ended(short, "reset")
    assert lone.pause_s() == 0.0


def test_a_single_address_is_dialled_with_growing_pauses(clock: Clock) -> None:
    lone = address_list(clock, A)
    assert lone.pause_s() == 0.0
    pauses = []
    for _ in range(3):
        fail(lone)
        pauses.append(lone.pause_s())
        assert lone.current == A
    assert pauses == [0.05, 0.1, 0.2]


def test_back_off_starts_once_every_address_has_failed(clock: Clock) -> None:
    both = address_list(clock, A, B)
    fail(both)
    assert (both.current, both.pause_s()) == (B, 0.0)
    fail(both)
    assert (both.current, both.pause_s()) == (A, 0.05)


def test_the_next_address_is_dialled_after_a_connection_ends(clock: Clock) -> None:
    both = address_list(clock, A, B)
    first, second = link(), link()
    both.opened(A, first)
    both.opened(A, second)
    assert both.current == A
    both.ended(first, "reset")
    both.ended(second, "reset")  # it had the same address, so the next address is unaffected
    assert both.current == B
    assert both.pause_s() == 0.0


def test_a_connection_that_never_joined_counts_as_a_failure(clock: Clock) -> None:
    lone = address_list(clock, A)
    for expected in (0.05, 0.1):
        refused = link(joined=False)
        lone.opened(A, refused)
        lone.ended(refused, "the peer refused the handshake")
        assert lone.pause_s() == expected


def test_only_a_long_connection_resets_the_back_off(clock: Clock) -> None:
    lone = address_list(clock, A)
    fail(lone)
    lone.pause_s()
    for lived_s, expected in ((0.5, 0.1), (2.0, 0.05)):
        joined = link()
        lone.opened(A, joined)
        clock.now += lived_s
        lone.ended(joined, "reset")
        fail(lone)
        assert lone.pause_s() == expected


def test_trouble_is_described_in_words(clock: Clock) -> None:
    both = address_list(clock, A, B)
    assert both.trouble == "tcp://a:1 or tcp://b:2 has not answered yet"
    fail(both)
    assert both.trouble == "cannot connect to tcp://a:1: refused"
    half = link(joined=False)
    both.opened(B, half)
    assert both.trouble == (
        "cannot connect to tcp://a:1: refused; tcp://b:2 has not completed the handshake yet"
    )
    half.joined = True
    assert both.trouble == ""
    both.ended(half, "reset")
    assert both.trouble == "the connection to tcp://b:2 ended: reset"
    fail(both)
    assert both.trouble == (
        "cannot connect to tcp://a:1: refused; the connection to tcp://b:2 ended: reset"
    )


def refused(address_list: AddressList, why: str) -> None:
    """Let the current address refuse the credentials on the next connection."""
    turned_away = link(joined=False)
    turned_away.framing.refusal = why
    address_list.opened(address_list.current, turned_away)
    address_list.ended(turned_away, why)


def test_trouble_remains_during_the_next_handshake(clock: Clock) -> None:
    lone = address_list(clock, A)
    refused(lone, "wrong password")
    lone.opened(A, link(joined=False))
    assert lone.trouble == "the connection to tcp://a:1 ended: wrong password"


def test_credentials_are_refused_once_every_address_refuses_them(clock: Clock) -> None:
    both = address_list(clock, A, B)
    refused(both, "wrong password")
    assert both.refusal == ""
    refused(both, "wrong password")
    assert both.refusal == (
        "the connection to tcp://a:1 ended: wrong password; "
        "the connection to tcp://b:2 ended: wrong password"
    )
    fail(both)  # the server may restart with other credentials
    assert both.refusal == ""


def test_a_refusal_after_a_connection_is_not_final(clock: Clock) -> None:
    """A request may have been sent by then."""
    lone = address_list(clock, A)
    refused(lone, "wrong password")
    working = link()
    lone.opened(A, working)
    assert lone.refusal == ""
    lone.ended(working, "reset")
    refused(lone, "wrong password")
    assert lone.refusal == ""


def test_one_of_several_addresses_has_a_short_timeout(clock: Clock) -> None:
    both = address_list(clock, A, B)
    times = []
    for _ in range(10):
        times.append(both.patience_s())
        fail(both)
    assert times == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    joined = link()
    both.opened(A, joined)
    both.ended(joined, "reset")
    assert both.patience_s() == 1.0


def test_a_single_address_has_the_full_timeout(clock: Clock) -> None:
    lone = address_list(clock, A)
    fail(lone)
    assert lone.patience_s() == inf


def test_back_off_is_shorter_with_several_addresses() -> None:
    longest = {}
    for addresses in ([A], [A, B]):
        backoff = backoff_for(addresses)
        longest[len(addresses)] = max(backoff.next_s() for _ in range(50))
    assert longest[1] > 0.5 >= longest[2]


def test_accepted_links_are_ignored(clock: Clock) -> None:
    lone = address_list(clock, A)
    lone.ended(link(), "reset")
    assert lone.trouble == "tcp://a:1 has not answered yet"
