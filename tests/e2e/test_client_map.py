"""`map` of both clients with a real broker and a real worker."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.e2e.clients import Make, echo, make, served, serving
from tests.e2e.serving import ClientMethods, Serving, eventually

from requite.errors import (
    ConfigurationError,
    Overloaded,
    RemoteFailure,
)
from requite.request import Reply

__all__ = ["echo", "make", "served", "serving"]

pytestmark = pytest.mark.e2e


def test_map_keeps_the_order_of_the_input(echo: ClientMethods) -> None:
    naps = [b"30", b"1", b"20", b"2", b"10"] * 4
    got = [reply.body for reply in echo.map(naps, service="nap", concurrency=8)]
    assert got == naps


def test_map_as_completed_yields_quick_replies_first(make: Make, served: Serving) -> None:
    client = make(served.url("nap"), timeout=10)
    got = [reply.body for reply in client.map([b"300", b"1", b"2"], as_completed=True)]
    assert sorted(got) == [b"1", b"2", b"300"]
    assert got[-1] == b"300"


def test_map_is_bounded_and_pipelined(make: Make, served: Serving) -> None:
    client = make(served.url("nap"), timeout=10)
    assert len(list(client.map([b"5"] * 40, concurrency=4))) == 40
    assert served.handlers.running_max == 4


@pytest.mark.parametrize("as_completed", [False, True])
def test_map_reads_an_endless_input_only_as_far_as_needed(
    echo: ClientMethods, as_completed: bool
) -> None:
    read = itertools.count()
    replies = echo.map(
        (b"%d" % number for number in read), concurrency=5, as_completed=as_completed
    )
    first = [int(next(replies).body) for _ in range(20)]
    assert sorted(first) == list(range(20))
    assert next(read) <= 20 + 2 * 5 + 1
    replies.close()  # type: ignore[attr-defined]
    assert echo.call(b"next").body == b"next"


def test_map_of_many_bodies(echo: ClientMethods) -> None:
    bodies = [b"%d" % number for number in range(2000)]
    assert [reply.body for reply in echo.map(bodies)] == bodies


@pytest.mark.parametrize("as_completed", [False, True])
def test_map_uses_no_more_slots_than_the_client_has(
    make: Make, served: Serving, as_completed: bool
) -> None:
    client = make(served.url("echo"), slots=3, timeout=10)
    bodies = [b"%d" % number for number in range(200)]
    replies = client.map(bodies, concurrency=100, as_completed=as_completed)
    assert sorted(reply.body for reply in replies) == sorted(bodies)


@pytest.mark.parametrize("as_completed", [False, True])
def test_map_uses_the_slots_that_other_calls_leave(
    make: Make, served: Serving, as_completed: bool
) -> None:
    client = make(served.url("echo"), slots=5, timeout=10)
    held = [client.start(b"held", service="hold") for _ in range(3)]
    bodies = [b"%d" % number for number in range(200)]
    replies = client.map(bodies, concurrency=100, as_completed=as_completed)
    assert sorted(reply.body for reply in replies) == sorted(bodies)
    served.handlers.gate.set()
    assert [call.result().body for call in held] == [b"held"] * 3


def test_map_fails_if_other_calls_use_all_slots(make: Make, served: Serving) -> None:
    """`map` waits only for slots of its own calls, and none of its calls has a slot here."""
    client = make(served.url("echo"), slots=2, timeout=10)
    held = [client.start(b"held", service="hold") for _ in range(2)]
    errors = list(client.map([b"x"] * 5, return_errors=True))
    assert [type(error) for error in errors] == [Overloaded] * 5
    with pytest.raises(Overloaded):
        list(client.map([b"x"] * 5))
    served.handlers.gate.set()
    assert [call.result().body for call in held] == [b"held"] * 2


def test_map_of_no_bodies(echo: ClientMethods) -> None:
    assert list(echo.map([])) == []


def test_map_ends_with_its_first_error_in_order(echo: ClientMethods) -> None:
    replies = echo.map([b"30", b"x", b"1"], service="nap")
    assert next(replies).body == b"30"
    with pytest.raises(RemoteFailure, match="invalid literal"):
        next(replies)
    assert list(replies) == []


def test_map_yields_errors_in_order_with_return_errors(echo: ClientMethods) -> None:
    got = list(echo.map([b"0", b"x", b"1"], service="nap", return_errors=True))
    assert [type(each) for each in got] == [Reply, RemoteFailure, Reply]


def test_closing_a_map_cancels_its_calls(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=10)
    replies = client.map([b"quick", b"a", b"b"], as_completed=True)
    with pytest.raises(TypeError):
        list(client.map([b"ok", "not bytes"], service="echo"))
    served.handlers.gate.set()
    next(replies)
    served.handlers.gate.clear()
    replies.close()  # type: ignore[attr-defined]
    assert client.call(b"next", service="echo").body == b"next"
    eventually(lambda: served.snapshot.pending == 0, "nothing is left at the broker")


@pytest.mark.parametrize("bodies", [b"bytes", "text", 7])
def test_map_of_a_single_body_is_refused(echo: ClientMethods, bodies: Any) -> None:
    with pytest.raises(TypeError, match="iterable of bodies"):
        echo.map(bodies)


def test_map_with_no_concurrency_is_refused(echo: ClientMethods) -> None:
    with pytest.raises(ConfigurationError, match="concurrency"):
        echo.map([b"x"], concurrency=0)
