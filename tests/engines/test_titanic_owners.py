"""Tickets and keys belong to the principal that submitted; so do limits."""

from __future__ import annotations

import json

import pytest
from tests.spec.requirement import requirement
from tests.support.titanic_engine import TitanicBench

from requite.errors import ConfigurationError, NoService, RemoteFailure
from requite.protocols.titanic.policy import REQUEST_OVERHEAD, TitanicPolicy
from requite.protocols.titanic.records import encode_submitted
from requite.protocols.titanic.requests import Recovered, RecoveredRequest
from requite.protocols.titanic.wire import CLOSE, LIST, REPLY, REQUEST, RETRY, SHOW

UNKNOWN = b"F" * 32


def answered(bench: TitanicBench, owner: bytes = b"ann") -> bytes:
    """Return the ticket of an answered request."""
    ticket = bench.submitted(b"echo", b"hi", owner=owner)
    bench.reply(bench.calls[-1], b"secret")
    return ticket


def waiting(bench: TitanicBench, owner: bytes = b"ann") -> bytes:
    """Return the ticket of a request that is with a worker."""
    return bench.submitted(b"echo", b"hi", owner=owner)


def poisoned(bench: TitanicBench, owner: bytes = b"ann") -> bytes:
    """Return the ticket of a request that was set aside."""
    ticket = bench.submitted(b"echo", b"hi", owner=owner)
    bench.fail(bench.calls[-1], RemoteFailure("boom"))
    return ticket


# --- tickets --------------------------------------------------------------------------------------
@requirement("tsp:owner:ticket")
@pytest.mark.parametrize("make", [answered, waiting, poisoned])
@pytest.mark.parametrize("stranger", [b"eve", b"an", b"ann ", b""])
@pytest.mark.parametrize("service", [REPLY, CLOSE])
def test_a_ticket_of_another_owner_is_unknown(make: object, stranger: bytes, service: str) -> None:
    bench = TitanicBench(attempts_max=1)
    ticket = make(bench)  # type: ignore[operator]
    of_nobody = bench.ask(service, UNKNOWN, owner=stranger)
    assert bench.ask(service, ticket, owner=stranger) == of_nobody
    assert bench.ask(REPLY, ticket, owner=b"ann") != of_nobody
    assert bench.cancelled == []


@requirement("tsp:owner:ticket")
def test_the_owner_fetches_and_closes_its_request() -> None:
    bench = TitanicBench()
    ticket = answered(bench)
    bench.ask(CLOSE, ticket, owner=b"eve")
    assert bench.ask(REPLY, ticket, owner=b"ann") == [b"200", b"secret"]
    assert bench.ask(CLOSE, ticket, owner=b"ann") == [b"200"]
    assert bench.ask(REPLY, ticket, owner=b"ann")[0].startswith(b"400")


@requirement("tsp:owner:nobody")
def test_a_request_without_an_owner_belongs_to_everybody_with_its_ticket() -> None:
    bench = TitanicBench()
    ticket = answered(bench, b"")
    assert bench.ask(REPLY, ticket, owner=b"ann") == [b"200", b"secret"]


@requirement("tsp:owner:operators")
def test_operators_see_owners_and_a_retry_keeps_the_owner() -> None:
    bench = TitanicBench(attempts_max=1)
    ticket = poisoned(bench)
    [row] = [json.loads(line) for line in bench.ask(LIST, owner=b"ops")[1].splitlines()]
    assert row["owner"] == "ann"
    assert json.loads(bench.ask(SHOW, ticket, owner=b"ops")[1])["owner"] == "ann"
    assert bench.ask(RETRY, ticket, owner=b"ops") == [b"200"]
    assert bench.calls[-1].principal == b"ann"
    bench.reply(bench.calls[-1], b"secret")
    assert bench.ask(REPLY, ticket, owner=b"ops")[0].startswith(b"400")
    assert bench.ask(REPLY, ticket, owner=b"ann") == [b"200", b"secret"]


# --- keys -----------------------------------------------------------------------------------------
@requirement("tsp:owner:key")
def test_a_key_of_another_owner_is_another_key() -> None:
    bench = TitanicBench(key_window_s=10.0)
    of_ann = bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann")
    of_eve = bench.submitted(b"echo", b"hi", key=b"k", owner=b"eve")
    of_none = bench.submitted(b"echo", b"hi", key=b"k")
    assert len({of_ann, of_eve, of_none}) == 3
    assert bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann") == of_ann
    assert bench.ask(REQUEST, b"pay", b"ho", key=b"k", owner=b"pat")[0] == b"200"
    bench.ask(CLOSE, of_ann, owner=b"ann")
    assert bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann") == of_ann
    assert bench.submitted(b"echo", b"hi", key=b"k", owner=b"eve") == of_eve
    bench.wait(11.0)
    assert bench.submitted(b"echo", b"hi", key=b"k", owner=b"ann") != of_ann


# --- dispatch -------------------------------------------------------------------------------------
@requirement("tsp:owner:dispatch")
def test_requests_are_sent_for_their_owner() -> None:
    bench = TitanicBench()
    bench.submitted(b"echo", b"hi", owner=b"ann")
    bench.submitted(b"echo", b"hi")
    assert [call.principal for call in bench.calls] == [b"ann", b""]


# --- limits ---------------------------------------------------------------------------------------
@requirement("tsp:owner:limits")
def test_the_requests_of_an_owner_are_limited() -> None:
    bench = TitanicBench(owner_requests_max=2)
    tickets = [bench.submitted(b"echo", b"hi", owner=b"eve") for _ in range(2)]
    [refusal] = bench.ask(REQUEST, b"echo", b"hi", owner=b"eve")
    assert refusal == (
        b"500 eve has reached the maximum of 2 stored requests (owner_requests_max): fetch and"
        b" close finished ones"
    )
    bench.submitted(b"echo", b"hi", owner=b"ann")
    for _ in range(3):
        bench.submitted(b"echo", b"hi")
    bench.ask(CLOSE, tickets[0], owner=b"eve")
    bench.submitted(b"echo", b"hi", owner=b"eve")


@requirement("tsp:owner:limits")
def test_the_bytes_of_an_owner_are_limited_and_replies_count() -> None:
    bench = TitanicBench(owner_bytes_max=2 * REQUEST_OVERHEAD + 1000)
    ticket = bench.submitted(b"echo", bytes(100), owner=b"eve")
    bench.submitted(b"echo", bytes(100), owner=b"eve")
    bench.reply(bench.calls[0], bytes(800))
    [refusal] = bench.ask(REQUEST, b"echo", b"", owner=b"eve")
    assert refusal.startswith(b"500 the stored requests of eve take 1512 of at most 1512 bytes")
    bench.ask(CLOSE, ticket, owner=b"eve")
    bench.submitted(b"echo", bytes(100), owner=b"eve")


@requirement("tsp:owner:limits")
def test_replies_may_take_as_much_again_and_others_are_served() -> None:
    """Else one owner could fill the disk with the replies to requests that were accepted."""
    bench = TitanicBench(owner_bytes_max=1000 + 3 * REQUEST_OVERHEAD)
    tickets = [bench.submitted(b"echo", b"", owner=b"eve") for _ in range(3)]
    others = bench.submitted(b"echo", b"", owner=b"ann")
    for call in bench.calls[:2]:
        bench.reply(call, bytes(1000))
    bench.reply(bench.calls[2], bytes(1000))
    assert bench.ask(REPLY, tickets[1], owner=b"eve") == [b"200", bytes(1000)]
    status, word, reason = bench.ask(REPLY, tickets[2], owner=b"eve")
    assert (status[:3], word) == (b"400", b"poisoned")
    assert b"the reply is not stored: with it, the requests and replies of eve take 3768" in reason
    bench.reply(bench.calls[3], bytes(1000))
    assert bench.ask(REPLY, others, owner=b"ann") == [b"200", bytes(1000)]
    bench.ask(CLOSE, tickets[0], owner=b"eve")
    assert bench.ask(RETRY, tickets[2]) == [b"200"]
    bench.reply(bench.calls[4], bytes(1000))
    assert bench.ask(REPLY, tickets[2], owner=b"eve") == [b"200", bytes(1000)]


@requirement("tsp:owner:limits")
def test_requests_of_an_earlier_process_count() -> None:
    kept = RecoveredRequest(b"w" * 16, b"echo", location="w", size=5, owner=b"eve")
    records = {"w": encode_submitted(b"w" * 16, 1, b"echo", b"", [b"hello"], b"eve")}
    bench = TitanicBench(recovered=Recovered([kept]), records=records, owner_requests_max=1)
    assert bench.ask(REQUEST, b"echo", b"hi", owner=b"eve")[0].startswith(
        b"500 eve has reached the maximum of 1"
    )


@pytest.mark.parametrize("name", ["owner_requests_max", "owner_bytes_max"])
def test_limits_must_be_positive(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be at least 1"):
        TitanicPolicy(**{name: 0})  # type: ignore[arg-type]


# --- windows --------------------------------------------------------------------------------------
def test_an_owner_cannot_fill_the_window() -> None:
    bench = TitanicBench(window=64, service_window=16)
    for n in range(4 * 16):
        bench.submitted(b"slow.%d" % (n % 4), b"", owner=b"eve")
    assert len(bench.calls) == 48
    for owner, count in ((b"shop", 12), (b"ann", 3), (b"", 1)):
        before = len(bench.calls)
        for n in range(16):
            bench.submitted(b"of " + owner, b"%d" % n, owner=owner)
        sent = bench.calls[before:]
        assert [call.principal for call in sent] == [owner] * count
        assert bench.bodies()[before:] == [[b"%d" % n] for n in range(count)]
    assert bench.engine.snapshot().sent == 64


def test_a_freed_slot_goes_to_any_owner_that_waits_at_any_service() -> None:
    bench = TitanicBench(window=4, attempt_timeout_s=1000.0)
    for n in range(6):
        bench.submitted(b"slow.%d" % n, b"", owner=b"eve")
    bench.submitted(b"pay", b"1", owner=b"shop")
    bench.submitted(b"pay", b"2", owner=b"shop")
    assert [call.service for call in bench.calls] == ["slow.0", "slow.1", "slow.2", "pay"]
    for _ in range(4):
        bench.reply(bench.calls[-1], b"ok")
    assert [call.service for call in bench.calls[4:]] == ["pay"]
    for n in range(3):
        bench.reply(bench.calls[n], b"ok")
    assert [call.service for call in bench.calls[5:]] == ["slow.3", "slow.4", "slow.5"]


def test_owners_take_turns_at_a_service_and_each_keeps_its_order() -> None:
    bench = TitanicBench(service_window=1)
    for n in range(4):
        bench.submitted(b"pay", b"eve %d" % n, owner=b"eve")
    for owner in (b"shop", b""):
        for n in range(2):
            bench.submitted(b"pay", owner + b" %d" % n, owner=owner)
    bench.fail(bench.calls[0], NoService("gone", may_have_executed=False))
    bench.wait(1.0)
    for n in range(1, 9):
        bench.reply(bench.calls[n], b"ok")
    expected = b"eve 0,eve 0,shop 0, 0,eve 1,shop 1, 1,eve 2,eve 3"
    assert [body for [body] in bench.bodies()] == expected.split(b",")


def test_closed_requests_leave_their_owners_line() -> None:
    bench = TitanicBench(service_window=1)
    for owner in (b"eve", b"shop"):
        tickets = [bench.submitted(b"pay", owner + b" %d" % n, owner=owner) for n in range(200)]
        for ticket in tickets[1:-1]:
            bench.ask(CLOSE, ticket, owner=owner)
    for n in range(4):
        bench.reply(bench.calls[n], b"ok")
    sent = [body for [body] in bench.bodies()]
    assert sent == [b"eve 0", b"eve 199", b"shop 0", b"shop 199"]
