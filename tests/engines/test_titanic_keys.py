"""Titanic's idempotency keys: one stored request per key."""

from __future__ import annotations

import pytest
from tests.support.builds import constant_replaced
from tests.support.titanic_engine import TitanicBench

from requite.errors import (
    LogFull,
)
from requite.protocols.titanic import closed_keys
from requite.protocols.titanic.records import encode_submitted
from requite.protocols.titanic.requests import ClosedKey, Recovered, RecoveredRequest
from requite.protocols.titanic.wire import CLOSE, ERASE, REPLY, REQUEST


def test_requests_with_the_same_key_get_the_same_ticket() -> None:
    bench = TitanicBench(key_window_s=10.0)
    ticket = bench.submitted(b"echo", b"hi", key=b"k")
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket
    assert bench.submitted(b"echo", b"hi", key=b"other") != ticket
    bench.reply(bench.calls[0], b"ho")
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket
    bench.ask(CLOSE, ticket)
    bench.wait(9.0)
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket
    assert len(bench.calls) == 2
    bench.wait(2.0)
    assert bench.submitted(b"echo", b"hi", key=b"k") != ticket


@pytest.mark.parametrize("other", [(b"echo", b"ho"), (b"echo", b"longer"), (b"else", b"hi")])
def test_a_key_is_refused_for_another_request(other: tuple[bytes, bytes]) -> None:
    """Otherwise the client would get the reply to the first request."""
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi", key=b"k")
    assert bench.ask(REQUEST, *other, key=b"k")[0].startswith(b"400 this key was used")
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket
    assert len(bench.calls) == 1


def test_bodies_of_a_repeated_key_are_compared_also_with_the_log() -> None:
    bench = TitanicBench(cache_bytes_max=0)
    ticket = bench.submitted(b"echo", b"hi", key=b"k")
    bench.reply(bench.calls[0], b"ho")
    assert bench.ask(REQUEST, b"echo", b"no", key=b"k") == [
        b"400 this key was used for another request"
    ]
    assert bench.ask(REQUEST, b"echo", b"h", b"i", key=b"k")[0].startswith(b"400 this key")
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket
    bench.damaged |= set(bench.records)
    assert bench.submitted(b"echo", b"hi", key=b"k") == ticket  # it cannot be compared any more
    assert bench.engine.snapshot().storing == 0


@constant_replaced
def test_the_number_of_stored_keys_of_closed_requests_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_keys, "CLOSED_KEYS_MAX", 3)
    bench = TitanicBench()
    tickets = [bench.submitted(b"echo", b"hi", key=b"%d" % n) for n in range(5)]
    for call in list(bench.calls):
        bench.reply(call, b"ho")
    for ticket in tickets:
        bench.ask(CLOSE, ticket)
    again = [bench.submitted(b"echo", b"hi", key=b"%d" % n) for n in reversed(range(5))]
    assert [mine == before for mine, before in zip(reversed(again), tickets, strict=True)] == [
        False,
        False,
        True,
        True,
        True,
    ]


@constant_replaced
def test_an_owner_with_many_closed_keys_pushes_out_only_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_keys, "CLOSED_KEYS_MAX", 10)
    bench = TitanicBench(key_window_s=100.0)

    def close(owner: bytes, key: bytes) -> bytes:
        ticket = bench.submitted(b"echo", b"hi", key=key, owner=owner)
        bench.ask(CLOSE, ticket, owner=owner)
        bench.wait(1.0)
        return ticket

    mine = [close(b"shop", b"%d" % n) for n in range(3)]
    others = [close(b"eve", b"%d" % n) for n in range(30)]
    assert bench.engine.snapshot().keys == 10
    again = [bench.submitted(b"echo", b"hi", key=b"%d" % n, owner=b"shop") for n in range(3)]
    assert again == mine
    again = [bench.submitted(b"echo", b"hi", key=b"%d" % n, owner=b"eve") for n in range(23, 30)]
    assert again == others[23:]
    assert bench.submitted(b"echo", b"hi", key=b"22", owner=b"eve") != others[22]
    bench.wait(100.0)
    assert bench.engine.snapshot().keys == 1  # of the last submission, which is open


def test_erased_keys_can_be_used_again_for_a_whole_window() -> None:
    bench = TitanicBench(key_window_s=10.0)
    bench.ask(CLOSE, bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann"), owner=b"ann")
    bench.wait(5.0)
    assert bench.ask(ERASE, b"ann")[0] == b"200"
    ticket = bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann")
    bench.ask(CLOSE, ticket, owner=b"ann")
    bench.wait(8.0)
    assert bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann") == ticket


def test_a_duplicate_waits_while_the_first_request_is_being_stored() -> None:
    bench = TitanicBench()
    bench.holds = True
    tokens = [bench.begin(REQUEST, b"echo", b"hi", key=b"k") for _ in range(3)]
    assert len(bench.held) == 1
    bench.holds = False
    bench.release()
    assert len({tuple(bench.answers[token]) for token in tokens}) == 1
    assert len(bench.calls) == 1


def test_a_key_whose_request_could_not_be_stored_is_free() -> None:
    bench = TitanicBench()
    bench.refuses = LogFull("full")
    assert bench.ask(REQUEST, b"echo", b"hi", key=b"k")[0].startswith(b"500")
    bench.refuses = None
    assert bench.submitted(b"echo", b"hi", key=b"k")
    assert len(bench.calls) == 1


def test_keys_survive_a_restart() -> None:
    kept = RecoveredRequest(
        bytes(15) + b"\x07", b"echo", b"k", location="somewhere", submitted_us=1
    )
    kept.size = 2
    until_us = int((1_700_000_000 + 100 + 50) * 1e6)
    waiting = encode_submitted(b"w" * 16, 1, b"echo", b"", [b"hi"])
    closed = ClosedKey(b"c", bytes(15) + b"\x08", until_us)
    bench = TitanicBench(recovered=Recovered([kept], [closed]), records={"somewhere": waiting})
    assert bench.submitted(b"echo", b"hi", key=b"k").endswith(b"07")
    assert bench.submitted(b"echo", b"", key=b"c").endswith(b"08")
    bench.wait(60.0)
    assert not bench.submitted(b"echo", b"", key=b"c").endswith(b"08")


def test_the_status_of_an_unknown_request_mentions_a_damaged_log() -> None:
    bench = TitanicBench(recovered=Recovered(is_damaged=True))
    assert bench.ask(REPLY, b"0" * 32)[0].endswith(b"or lost: the log is damaged")
    assert TitanicBench().ask(REPLY, b"0" * 32)[0].endswith(b"closed, or never accepted")
