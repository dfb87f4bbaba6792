"""Titanic's engine: attempts, windows, availability, caching, limits, and draining."""

from __future__ import annotations

import json

import pytest
from tests.support.titanic_engine import TitanicBench

from requite.engine import Finished, Wake
from requite.errors import (
    ConfigurationError,
    LocalViolation,
    LogFailed,
    LogFull,
    NoService,
    Overloaded,
    RemoteFailure,
    TransportError,
)
from requite.protocols.titanic.inputs import Answered, Asked
from requite.protocols.titanic.policy import Replicate, TitanicPolicy
from requite.protocols.titanic.records import encode_submitted
from requite.protocols.titanic.requests import Recovered, RecoveredRequest
from requite.protocols.titanic.wire import CLOSE, LIST, REPLY, REQUEST, RETRY, SHOW, STATS
from requite.request import Reply

WAITING = encode_submitted(b"w" * 16, 1, b"echo", b"", [b"hi"])


def rows(answer: list[bytes]) -> list[dict[str, object]]:
    assert answer[0] == b"200"
    return [json.loads(line) for line in answer[1].splitlines()]


# --- attempts -------------------------------------------------------------------------------------
def test_a_request_is_retried_without_limit_and_with_back_off() -> None:
    bench = TitanicBench(backoff_s=1.0, backoff_s_max=8.0)
    ticket = bench.submitted(b"echo", b"hi")
    pauses = []
    for _ in range(6):
        began, n = bench.now, len(bench.calls)
        bench.fail(bench.calls[-1], RemoteFailure("boom"))
        while len(bench.calls) == n:
            bench.wait(0.25)
        pauses.append(round(bench.now - began, 2))
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert bench.ask(REPLY, ticket) == [b"300"]


def test_requests_carry_their_ticket_as_key_and_have_a_timeout() -> None:
    bench = TitanicBench(attempt_timeout_s=7.0)
    ticket = bench.submitted(b"echo", b"hi", key=b"mine")
    [call] = bench.calls
    assert call.idempotency_key == ticket
    assert call.idempotent
    assert call.deadline == bench.now + 7.0


def test_a_poisoned_request_is_listed_and_retried_on_demand() -> None:
    bench = TitanicBench(attempts_max=2, backoff_s=1.0)
    ticket = bench.submitted(b"echo", b"hi")
    for _ in range(2):
        bench.fail(bench.calls[-1], RemoteFailure("boom"))
        bench.wait(10.0)
    assert len(bench.calls) == 2
    [row] = rows(bench.ask(LIST, b"", b"", b"poisoned"))
    assert (row["ticket"], row["attempts"]) == (ticket.decode(), 2)
    assert row["reason"] == "RemoteFailure: boom"
    assert bench.ask(RETRY, ticket) == [b"200"]
    bench.reply(bench.calls[2], b"ho")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]
    assert bench.ask(RETRY, ticket)[0].startswith(b"400 the request is not poisoned, but answered")


@pytest.mark.parametrize(
    "error",
    [
        NoService("nobody", may_have_executed=False),
        Overloaded("full", may_have_executed=False),
        TransportError("down", may_have_executed=False),
    ],
)
def test_attempts_that_have_not_run_do_not_count(error: Overloaded) -> None:
    bench = TitanicBench(attempts_max=1, check_every_s=1.0)
    ticket = bench.submitted(b"echo", b"hi")
    for _ in range(5):
        bench.fail(bench.calls[-1], error)
        bench.wait(5.0)
    assert len(bench.calls) == 6
    bench.reply(bench.calls[-1], b"ho")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]


def test_late_replies_to_closed_requests_are_ignored() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    [call] = bench.calls
    assert bench.ask(CLOSE, ticket) == [b"200"]
    assert bench.cancelled == [call.token]
    bench.reply(call, b"ho")
    assert bench.ask(REPLY, ticket)[0].startswith(b"400")
    assert bench.engine.snapshot().sent == 0


def test_while_a_reply_cannot_be_stored_no_request_is_sent() -> None:
    bench = TitanicBench(store_retry_s=1.0, service_window=1)
    tickets = [bench.submitted(b"echo", b"%d" % n) for n in range(3)]
    bench.refuses = LogFull("the disk is full")
    bench.reply(bench.calls[0], b"one")
    bench.reply(bench.calls[1], b"two")  # it was already in flight
    bench.wait(10.0)
    assert bench.ask(REPLY, tickets[0]) == [b"300"]
    assert len(bench.calls) == 2
    bench.refuses = None
    bench.wait(1.0)
    assert bench.ask(REPLY, tickets[0]) == [b"200", b"one"]
    assert bench.ask(REPLY, tickets[1]) == [b"200", b"two"]
    assert bench.bodies() == [[b"0"], [b"1"], [b"2"]]


def test_a_reply_too_large_for_a_record_poisons_its_request() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], bytes(16 * 1024 * 1024))
    assert bench.ask(REPLY, ticket)[0].startswith(b"400 poisoned: its reply has 16777216 bytes")


def test_a_request_too_large_for_a_record_is_refused() -> None:
    bench = TitanicBench()
    [status] = bench.ask(REQUEST, b"echo", bytes(16 * 1024 * 1024))
    assert status.startswith(b"400 the request has more than")
    assert bench.engine.snapshot().lanes == 0


# --- windows and availability ---------------------------------------------------------------------
def test_windows_limit_requests_in_flight_and_services_take_turns() -> None:
    bench = TitanicBench(window=4, service_window=2)
    for n in range(6):
        bench.submitted(b"slow", b"slow %d" % n)
    assert len(bench.calls) == 2
    for n in range(6):
        bench.submitted(b"quick", b"quick %d" % n)
    assert [call.service for call in bench.calls] == ["slow"] * 2 + ["quick"]
    for _ in range(5):
        bench.reply(bench.calls[-1], b"ok")
    assert [call.service for call in bench.calls[3:]] == ["quick"] * 5
    assert bench.engine.snapshot().sent == 3  # the last quarter is for other owners


def test_the_service_is_checked_once_per_interval_unless_replies_arrive() -> None:
    bench = TitanicBench(check_every_s=1.0)
    for n in range(20):
        bench.submitted(b"echo", b"%d" % n)
        bench.wait(0.1)
        bench.reply(bench.calls[-1], b"ok")
    assert bench.asked == [b"echo"]
    bench.wait(10.0)
    bench.submitted(b"echo", b"later")
    assert bench.asked == [b"echo"] * 2


def test_a_missing_service_is_checked_once_per_interval() -> None:
    bench = TitanicBench(check_every_s=1.0)
    bench.there = False
    for n in range(100):
        bench.submitted(b"echo", b"%d" % n)
    bench.wait(10.0)
    assert 10 <= len(bench.asked) <= 21
    assert not bench.calls


def test_a_lost_service_is_checked_before_the_next_request_is_sent() -> None:
    bench = TitanicBench(service_window=1)
    bench.submitted(b"echo", b"1")
    bench.submitted(b"echo", b"2")
    bench.there = False
    bench.fail(bench.calls[0], NoService("gone", may_have_executed=False))
    bench.wait(30.0)
    assert len(bench.calls) == 1
    bench.there = True
    bench.wait(2.0)
    assert bench.bodies() == [[b"1"], [b"1"]]  # the oldest request is first


def test_without_check_service_requests_are_sent_at_once() -> None:
    bench = TitanicBench(check_service=False, check_every_s=1.0)
    bench.there = False
    bench.submitted(b"echo", b"1")
    assert len(bench.calls) == 1
    bench.fail(bench.calls[0], NoService("gone", may_have_executed=False))
    bench.wait(2.0)
    assert len(bench.calls) == 2
    assert bench.asked == []


def test_an_unanswered_check_is_repeated() -> None:
    bench = TitanicBench(check_every_s=1.0)
    bench.silent = True
    bench.submitted(b"echo", b"x")
    bench.wait(5.0)
    assert 5 <= len(bench.asked) <= 7
    assert not bench.calls
    bench.silent = False
    bench.wait(1.0)
    assert len(bench.calls) == 1


# --- batches --------------------------------------------------------------------------------------
def test_all_requests_of_a_turn_are_stored_together() -> None:
    bench = TitanicBench()
    bench.feed(*(Asked(n, REQUEST, [b"echo", b"%d" % n]) for n in range(64)))
    [store] = bench.stores
    assert len(store.records) == 64
    assert len({frames[1] for frames in bench.answers.values()}) == 64
    replies = [Answered(call.token, Reply([b"ok"])) for call in bench.calls]
    bench.feed(*replies)
    assert [len(one.records) for one in bench.stores[1:]] == [64]


# --- the cache ------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [0, 10, 1 << 20])
def test_uncached_bodies_are_read_from_disk(size: int) -> None:
    bench = TitanicBench(cache_bytes_max=size, service_window=2)
    tickets = [bench.submitted(b"echo", b"body %d" % n) for n in range(10)]
    for n in range(10):
        assert bench.calls[n].frames == [b"body %d" % n]
        bench.reply(bench.calls[n], b"reply %d" % n)
    for n, ticket in enumerate(tickets):
        assert bench.ask(REPLY, ticket) == [b"200", b"reply %d" % n]
    assert bench.engine.snapshot().cached_bytes <= size
    for ticket in tickets:
        bench.ask(CLOSE, ticket)
    assert bench.engine.snapshot().cached_bytes == 0


def test_a_damaged_request_is_poisoned_and_others_are_served() -> None:
    bench = TitanicBench(cache_bytes_max=0)
    bench.there = False
    one, two = bench.submitted(b"echo", b"1"), bench.submitted(b"echo", b"2")
    bench.damaged.add(next(spot for spot, record in bench.records.items() if b"1" in record[-1:]))
    bench.there = True
    bench.wait(2.0)
    assert bench.ask(REPLY, one)[0].startswith(b"400 poisoned: the request cannot be read")
    assert bench.ask(REPLY, two) == [b"300"]
    assert bench.bodies() == [[b"2"]]
    assert any("a bit turned round" in warning for warning in bench.warnings)


def test_a_request_with_a_damaged_reply_is_sent_again() -> None:
    bench = TitanicBench(cache_bytes_max=0)
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], b"ho")
    bench.damaged.add(list(bench.records)[-1])
    assert bench.ask(REPLY, ticket)[0].startswith(b"500 cannot be read")
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.reply(bench.calls[1], b"ho again")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho again"]


# --- limits and failures --------------------------------------------------------------------------
def test_a_request_beyond_requests_max_is_refused() -> None:
    bench = TitanicBench(requests_max=2)
    tickets = [bench.submitted(b"echo", b"%d" % n) for n in range(2)]
    assert bench.ask(REQUEST, b"echo", b"3")[0].startswith(b"500 the limit of 2")
    bench.ask(CLOSE, tickets[0])
    assert bench.submitted(b"echo", b"3")


def test_after_a_failed_sync_requests_are_refused_and_replies_served() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], b"ho")
    bench.refuses = LogFailed("cannot sync")
    assert bench.ask(REQUEST, b"echo", b"2")[0].startswith(b"500 not stored")
    assert bench.engine.failure is not None
    stores = len(bench.stores)
    assert bench.ask(REQUEST, b"echo", b"3")[0].startswith(b"500 the store has failed")
    assert len(bench.stores) == stores
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]


def test_uncollected_replies_expire() -> None:
    bench = TitanicBench(expire_s=10.0)
    one = bench.submitted(b"echo", b"1")
    two = bench.submitted(b"echo", b"2")
    bench.reply(bench.calls[0], b"one")
    bench.wait(9.0)
    bench.reply(bench.calls[1], b"two")
    bench.wait(2.0)
    assert bench.ask(REPLY, one)[0].startswith(b"400")
    assert bench.ask(REPLY, two) == [b"200", b"two"]
    bench.wait(10.0)
    assert bench.engine.snapshot().requests == 0


def test_waiting_requests_do_not_expire() -> None:
    bench = TitanicBench(expire_s=1.0)
    ticket = bench.submitted(b"echo", b"1")
    bench.wait(50.0)
    assert bench.ask(REPLY, ticket) == [b"300"]


# --- for operators --------------------------------------------------------------------------------
def test_the_list_is_paged() -> None:
    bench = TitanicBench()
    bench.there = False
    tickets = [bench.submitted(b"echo", b"%d" % n).decode() for n in range(25)]
    seen, cursor = [], b""
    while True:
        answer = bench.ask(LIST, cursor, b"10")
        seen += [row["ticket"] for row in rows(answer)]
        cursor = answer[2]
        if not cursor:
            break
        bench.ask(CLOSE, tickets[len(seen) - 1].encode())  # the cursor's request may be closed
    assert seen == tickets


@pytest.mark.parametrize("frames", [[b"x"], [b"", b"-1"], [b"", b"", b"lost"], [b"9" * 40]])
def test_an_invalid_list_query_is_refused(frames: list[bytes]) -> None:
    assert TitanicBench().ask(LIST, *frames)[0].startswith(b"400")


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_show_returns_a_request_with_its_frames_and_reply(size: int) -> None:
    bench = TitanicBench(cache_bytes_max=size)
    ticket = bench.submitted(b"echo", b"a", b"b", key=b"k")
    shown = bench.ask(SHOW, ticket.lower())
    assert shown[2:] == [b"a", b"b"]
    bench.reply(bench.calls[0], b"c")
    shown = bench.ask(SHOW, ticket)
    row = json.loads(shown[1])
    assert (row["request_frames"], row["reply_frames"]) == (2, 1)
    assert (row["service"], row["key"], row["state"]) == ("echo", "k", "answered")
    assert shown[2:] == [b"a", b"b", b"c"]


def test_stats_count_requests_by_state() -> None:
    bench = TitanicBench()
    bench.submitted(b"echo", b"1")
    bench.submitted(b"echo", b"2")
    bench.reply(bench.calls[0], b"one")
    stats = json.loads(bench.ask(STATS, b"")[1])
    assert (stats["requests"], stats["sent"], stats["answered"]) == (2, 1, 1)


# --- draining -------------------------------------------------------------------------------------
def test_a_drain_awaits_requests_in_flight_and_refuses_new_ones() -> None:
    bench = TitanicBench(service_window=1)
    ticket = bench.submitted(b"echo", b"1")
    bench.submitted(b"echo", b"2")
    bench.drain()
    assert not bench.stopped
    assert bench.ask(REQUEST, b"echo", b"3") == [b"500 shutting down"]
    bench.reply(bench.calls[0], b"one")
    assert bench.stopped
    assert bench.ask(REPLY, ticket) == [b"200", b"one"]
    assert len(bench.calls) == 1


def test_a_drain_ends_after_drain_timeout_s() -> None:
    bench = TitanicBench(drain_timeout_s=5.0)
    ticket = bench.submitted(b"echo", b"1")
    bench.drain()
    bench.wait(4.9)
    assert not bench.stopped
    bench.wait(0.2)
    assert bench.stopped
    assert len(bench.cancelled) == 1
    assert bench.ask(REPLY, ticket) == [b"300"]
    assert bench.engine.deadline() is None


def test_foreign_inputs_are_refused() -> None:
    bench = TitanicBench()
    with pytest.raises(LocalViolation):
        bench.feed(Finished(1, []))
    with pytest.raises(LocalViolation):
        bench.feed(Answered("nobody", Reply([b""])))
    bench.feed(Wake())


def test_tables_are_empty_when_everything_is_closed() -> None:
    bench = TitanicBench(key_window_s=1.0)
    tickets = [bench.submitted(b"s%d" % (n % 3), b"x", key=b"%d" % n) for n in range(30)]
    for call in bench.calls[::2]:
        bench.reply(call, b"y")
    for ticket in tickets:
        bench.ask(CLOSE, ticket)
    bench.wait(10.0)
    assert [value for value in bench.engine.snapshot() if value] == []


# --- recovery -------------------------------------------------------------------------------------
def test_stored_requests_continue_after_a_restart() -> None:
    waiting = RecoveredRequest(b"w" * 16, b"echo", location="w", submitted_us=1)
    poisoned = RecoveredRequest(
        b"p" * 16, b"echo", location="p", attempts=3, poisoned=True, reason="boom"
    )
    answered = RecoveredRequest(b"a" * 16, b"echo", location="a", reply_location="r", answered_us=5)
    damaged = RecoveredRequest(b"d" * 16, attempts=1, reason="late")
    found = Recovered([waiting, poisoned, answered, damaged])
    bench = TitanicBench(recovered=found, records={"w": WAITING})
    states = {row["ticket"]: row["state"] for row in rows(bench.ask(LIST))}
    assert list(states.values()) == ["sent", "poisoned", "answered", "poisoned"]
    assert bench.bodies() == [[b"hi"]]


# --- policies -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts_max": 0},
        {"attempt_timeout_s": 0},
        {"backoff_s": 2.0, "backoff_s_max": 1.0},
        {"jitter": 2},
        {"window": 0},
        {"expire_s": -1},
        {"cache_bytes_max": -1},
        {"standby": True, "replicate": Replicate.SYNC},
    ],
)
def test_an_invalid_policy_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        TitanicPolicy(**wrong)  # type: ignore[arg-type]
