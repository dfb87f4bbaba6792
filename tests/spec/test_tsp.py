"""Requirements of 9/TSP for Titanic and its clients."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.support.titanic_engine import TitanicBench
from tests.titanic.pairs import compact_all, pair, restarted

from requite.errors import CallTimeout, LogFull, RemoteFailure, RemoteViolation
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.wire import (
    CLOSE,
    LIST,
    PROMOTE,
    REPLY,
    REQUEST,
    RETRY,
    SERVICES,
    STATUSES,
    decode_answer,
    decode_status,
    decode_ticket,
    encode_ticket,
)

TICKET = b"0123456789ABCDEF0123456789ABCDEF"
INVALID_TICKETS = [
    b"",
    b"../../../../../../../etc/passwd.",
    b"/" * 32,
    b"0" * 31,
    b"0" * 33,
    b"G" * 32,
    b"0" * 31 + b"\n",
    b"0" * 31 + b"\0",
    b"\xd9\xa0" * 16,  # digits, but not ASCII
    b"0" * 100_000,
    b"\xff" * 32,
]


# --- architecture ---------------------------------------------------------------------------------
@requirement("tsp:services")
@pytest.mark.parametrize("service", [REQUEST, REPLY, CLOSE])
def test_the_three_services_exist(service: str) -> None:
    assert service in SERVICES
    [status] = TitanicBench().ask(service, b"")
    assert decode_status(status).code in (200, 400)
    assert b"no service" not in status


@requirement("tsp:over-mdp", "tsp:execution:asynchronous")
def test_requests_wait_until_their_service_is_available() -> None:
    bench = TitanicBench(check_every_s=1.0)
    bench.there = False
    ticket = bench.submitted(b"echo", b"hi")
    bench.wait(60.0)
    assert bench.calls == []
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.there = True
    bench.wait(2.0)
    [call] = bench.calls
    assert (call.service, call.frames) == ("echo", [b"hi"])
    bench.reply(call, b"ho")
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]


# --- titanic.request ------------------------------------------------------------------------------
@requirement("tsp:request:frames", "tsp:request:reply", "tsp:request:uuid")
@pytest.mark.parametrize("body", [[b"hi"], [b""], [b"a", b"", b"c"], [b"x" * 100_000]])
def test_a_request_is_a_service_and_a_body(body: list[bytes]) -> None:
    bench = TitanicBench()
    status, ticket = bench.ask(REQUEST, b"echo", *body)
    assert status == b"200"
    assert len(ticket) == 32
    assert decode_ticket(ticket)
    assert bench.bodies() == [body]


@requirement("tsp:request:persistent")
def test_no_ticket_is_returned_before_the_request_is_stored() -> None:
    bench = TitanicBench()
    bench.holds = True
    token = bench.begin(REQUEST, b"echo", b"hi")
    bench.wait(5.0)
    assert token not in bench.answers
    assert bench.calls == []
    assert b"hi" in bench.held[0].records[0]
    bench.holds = False
    bench.release()
    assert bench.answers[token][0] == b"200"


@requirement("tsp:request:status", "tsp:status:500")
def test_a_request_that_cannot_be_stored_is_refused_with_500() -> None:
    bench = TitanicBench()
    bench.refuses = LogFull("the disk is full")
    [status] = bench.ask(REQUEST, b"echo", b"hi")
    assert decode_status(status).code == 500
    assert b"the disk is full" in status
    assert bench.calls == []
    assert bench.engine.snapshot().requests == 0


@requirement("tsp:request:status")
@pytest.mark.parametrize(
    "frames", [[], [b"", b"hi"], [b"\xff", b"hi"], [b"e\n", b"hi"], [b"x" * 256, b"hi"]]
)
def test_a_request_without_a_valid_service_is_refused(frames: list[bytes]) -> None:
    bench = TitanicBench()
    [status] = bench.ask(REQUEST, *frames)
    assert decode_status(status).code == 400
    assert bench.stores == []


# --- titanic.reply --------------------------------------------------------------------------------
@requirement("tsp:reply:request", "tsp:reply:reply", "tsp:reply:status", "tsp:status:200")
@pytest.mark.parametrize("reply", [[b"ho"], [b""], [b"a", b"", b"c"]])
def test_a_reply_is_200_and_its_frames(reply: list[bytes]) -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.reply(bench.calls[0], *reply)
    assert bench.ask(REPLY, ticket) == [b"200", *reply]


@requirement("tsp:reply:uuid", "tsp:close:uuid")
def test_tickets_are_case_insensitive() -> None:
    bench = TitanicBench()
    bench.engine._core.new_uuid = lambda: b"\xab\xcd\xef" * 5 + b"\x01"
    ticket = bench.submitted(b"echo", b"hi")
    assert ticket != ticket.lower()
    bench.reply(bench.calls[0], b"ho")
    for shown in (ticket, ticket.lower(), ticket.lower().title()):
        assert bench.ask(REPLY, shown) == [b"200", b"ho"]
    assert bench.ask(CLOSE, ticket.lower()) == [b"200"]
    assert bench.engine.snapshot().requests == 0


@requirement("tsp:reply:uuid", "tsp:reply:status", "tsp:status:400")
@pytest.mark.parametrize("frame", INVALID_TICKETS)
def test_a_reply_query_with_an_invalid_ticket_gets_400(frame: bytes) -> None:
    bench = TitanicBench()
    [status] = bench.ask(REPLY, frame)
    assert decode_status(status).code == 400
    assert len(status) < 200
    assert bench.stores == []


@requirement("tsp:reply:keeps", "tsp:reply:idempotent")
def test_a_reply_can_be_fetched_repeatedly() -> None:
    bench = TitanicBench(cache_bytes_max=0)
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], b"ho")
    before = len(bench.stores)
    for _ in range(5):
        bench.wait(10_000.0)
        assert bench.ask(REPLY, ticket) == [b"200", b"ho"]
    assert len(bench.stores) == before


@requirement("tsp:reply:reply")
def test_no_reply_is_returned_before_it_is_stored() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.holds = True
    bench.reply(bench.calls[0], b"ho")
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.holds = False
    bench.release()
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]


# --- titanic.close --------------------------------------------------------------------------------
@requirement("tsp:close:deletes", "tsp:close:reply", "tsp:close:status")
def test_a_closed_request_is_deleted() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], b"ho")
    assert bench.ask(CLOSE, ticket) == [b"200"]
    [status] = bench.ask(REPLY, ticket)
    assert decode_status(status).code == 400
    assert bench.engine.snapshot().requests == 0


@requirement("tsp:close:unknown")
def test_closing_an_unknown_ticket_gets_200() -> None:
    bench = TitanicBench()
    assert bench.ask(CLOSE, TICKET) == [b"200"]
    ticket = bench.submitted(b"echo", b"hi")
    assert [bench.ask(CLOSE, ticket) for _ in range(3)] == [[b"200"]] * 3


@requirement("tsp:close:uuid", "tsp:close:unknown")
@pytest.mark.parametrize("frames", [[], *([frame] for frame in INVALID_TICKETS)])
@pytest.mark.parametrize("standby", [False, True])
def test_closing_an_invalid_ticket_gets_200_and_changes_nothing(
    standby: bool, frames: list[bytes]
) -> None:
    bench = TitanicBench(standby=standby)
    assert bench.ask(CLOSE, *frames) == [b"200"]
    assert bench.stores == []


@requirement("tsp:close:status", "tsp:close:deletes")
def test_a_close_that_cannot_be_stored_fails_and_keeps_the_request() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    bench.reply(bench.calls[0], b"ho")
    bench.refuses = LogFull("the disk is full")
    [status] = bench.ask(CLOSE, ticket)
    assert decode_status(status).code == 500
    bench.refuses = None
    assert bench.ask(REPLY, ticket) == [b"200", b"ho"]
    assert bench.ask(CLOSE, ticket) == [b"200"]


# --- statuses -------------------------------------------------------------------------------------
@requirement("tsp:status:format", "tsp:status:known")
@given(st.sampled_from(STATUSES), st.text(max_size=50))
def test_a_status_has_three_digits_and_an_optional_text(code: int, text: str) -> None:
    assert decode_status(b"%d" % code).code == code
    assert decode_status(f"{code} {text}".encode()) == (code, text, False, False)


@requirement("tsp:status:known")
@pytest.mark.parametrize(
    "frame", [b"", b"2", b"20", b"2000", b"200OK", b"201", b"404", b"OK", b"\xff\xff\xff", b" 200"]
)
def test_an_unknown_status_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteViolation, match="not a status"):
        decode_status(frame)


@requirement("tsp:status:known", "tsp:status:format")
@given(
    service=st.sampled_from(SERVICES),
    frames=st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from(INVALID_TICKETS)), max_size=4
    ),
)
def test_every_answer_begins_with_a_status(service: str, frames: list[bytes]) -> None:
    bench = TitanicBench()
    answer = bench.ask(service, *frames)
    assert decode_status(answer[0]).code in STATUSES


@requirement("tsp:status:text")
@given(st.text(max_size=50))
def test_the_text_of_a_status_is_not_interpreted(text: str) -> None:
    assert not decode_answer([f"400 poisoned {text}".encode()]).is_poisoned
    assert decode_answer([f"400 {text}".encode(), b"poisoned", b""]).is_poisoned


def test_the_status_of_a_request_while_it_waits_runs_and_fails() -> None:
    """Pending while the request waits, runs or has failed; poisoned after the last attempt."""
    bench = TitanicBench(attempts_max=2)
    bench.there = False
    ticket = bench.submitted(b"echo", b"hi")
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.there = True
    bench.wait(2.0)
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.fail(bench.calls[-1], CallTimeout("late"))
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.wait(60.0)
    bench.fail(bench.calls[-1], RemoteFailure("boom"))
    answer = bench.ask(REPLY, ticket)
    assert decode_answer(answer) == (400, "poisoned: RemoteFailure: boom", True, False)
    assert answer[1:] == [b"poisoned", b"RemoteFailure: boom"]


# --- negative replies -----------------------------------------------------------------------------
@requirement("tsp:negative:stored", "tsp:negative:answer")
@pytest.mark.parametrize("cache_bytes_max", [0, 1 << 20])
def test_a_final_negative_reply_ends_the_request(cache_bytes_max: int) -> None:
    bench = TitanicBench(cache_bytes_max=cache_bytes_max)
    ticket = bench.submitted(b"echo", b"hi")
    bench.fail(bench.calls[-1], RemoteFailure("boom"))
    bench.wait(60.0)
    bench.fail(bench.calls[-1], final("out of stock"))
    bench.wait(3600.0)
    assert len(bench.calls) == 2
    for _ in range(2):
        answer = bench.ask(REPLY, ticket)
        assert answer == [b"400 refused: out of stock", b"poisoned", b"out of stock", b"final"]
    assert decode_answer(answer) == (400, "out of stock", False, True)
    assert decode_answer(answer[:3]).is_poisoned
    [line] = bench.ask(LIST)[1].splitlines()
    listed = json.loads(line)
    assert (listed["state"], listed["negative"], listed["attempts"]) == ("answered", True, 2)
    assert bench.ask(RETRY, ticket)[0].startswith(b"400")
    assert bench.ask(CLOSE, ticket) == [b"200"]
    assert not decode_answer(bench.ask(REPLY, ticket)).is_negative


@requirement("tsp:negative:others")
def test_any_other_negative_reply_is_a_failed_attempt() -> None:
    bench = TitanicBench()
    ticket = bench.submitted(b"echo", b"hi")
    for reason in ("boom", '{"error":"BadRequest"}', "final"):
        bench.fail(bench.calls[-1], RemoteFailure(reason))
        assert bench.ask(REPLY, ticket) == [b"300"]
        bench.wait(60.0)
    assert len(bench.calls) == 4


@requirement("tsp:negative:stored")
def test_a_final_negative_reply_that_the_disk_refuses_is_stored_later() -> None:
    bench = TitanicBench(store_retry_s=1.0)
    ticket = bench.submitted(b"echo", b"hi")
    bench.refuses = LogFull("no space")
    bench.fail(bench.calls[-1], final("no"))
    assert bench.ask(REPLY, ticket) == [b"300"]
    bench.refuses = None
    bench.wait(2.0)
    assert decode_answer(bench.ask(REPLY, ticket)).is_negative
    assert len(bench.calls) == 1


@requirement("tsp:negative:stored")
@pytest.mark.parametrize("owner", [b"", b"ann"])
@pytest.mark.parametrize("how", ["restart", "compaction", "replica"])
def test_a_final_negative_reply_survives(how: str, owner: bytes) -> None:
    primary, replica = pair()
    primary.serves = False
    refused = primary.submit(b"hi", owner=owner)
    primary.feed([Answered(primary.submits.pop().token, final("out of stock"))])
    primary.serves = True
    served = primary.submit(b"ho", owner=owner)
    expected = primary.ask(REPLY, refused, owner=owner)
    assert decode_answer(expected) == (400, "out of stock", False, True)
    primary.wait(1.0)
    if how == "compaction":
        compact_all(primary)
    if how == "replica":
        primary.close()
        assert replica.ask(PROMOTE) == [b"200"]
        later = replica
    else:
        later = restarted(primary, 5)
    assert later.ask(REPLY, refused, owner=owner) == expected
    assert later.ask(REPLY, served, owner=owner) == [b"200", b"re:ho"]
    assert later.submits == []
    later.close()


def final(reason: str) -> RemoteFailure:
    """Return a negative reply that the service would give each time."""
    failure = RemoteFailure(reason, attempts=1)
    failure.is_final = True
    return failure


def test_tickets_survive_the_round_trip() -> None:
    assert decode_ticket(encode_ticket(bytes(range(16)))) == bytes(range(16))
