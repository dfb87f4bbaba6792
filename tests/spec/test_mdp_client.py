"""Requirements of the dialects of MDP for a client."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.broker_side import BrokerSide

from requite.engine import Cancel, Received, Submit
from requite.errors import (
    CallError,
    CallTimeout,
    Cancelled,
    NoService,
    Overloaded,
    Poisoned,
    RemoteFailure,
    TransportError,
    WorkerLost,
)
from requite.protocols.majordomo.calls import ClientPolicy
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    NOT_IDEMPOTENT,
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
)
from requite.request import Partial, Reply, RetryPolicy, Status

every_version = pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
NO_RETRY = RetryPolicy(attempts=1)


def client(version: str = "0.3", **policy: Any) -> BrokerSide:
    dialect = by_version(version)
    engine = client_engine(dialect, ClientPolicy(**policy), rng=lambda: 0.5, first_sequence=0)
    side = BrokerSide(engine, dialect, "client")
    side.start()
    return side


def call(side: BrokerSide, token: str, timeout_s: float = 60.0, **fields: Any) -> None:
    side.feed(Submit(token, "echo", [b"hello"], side.now + timeout_s, **fields))


def answer(side: BrokerSide, body: bytes = b"hi", nth: int = -1, status: int = 0) -> None:
    """Send the broker's final reply to the nth request on the newest connection."""
    request_id = side.sent(ClientRequest)[nth].request_id
    side.say(ClientFinal, b"echo", [body], request_id, status, 1)


def replies(side: BrokerSide) -> list[tuple[str, bytes]]:
    return [(token, what.body) for token, what in side.delivered if isinstance(what, Reply)]


# --- requests and replies -------------------------------------------------------------------------
@requirement("mdp03:client-first", "mdp02:frames:client", "mdp01:frames:client")
@requirement("mdp01:client:empty-frame")
@every_version
def test_a_request_is_the_first_message(version: str) -> None:
    side = client(version)
    call(side, "t")
    (request,) = side.sent()
    assert isinstance(request, ClientRequest)
    assert (request.service, request.body) == (b"echo", [b"hello"])
    answer(side)
    assert replies(side) == [("t", b"hi")]


@requirement("mdp02:client:partials", "mdp03:client-partials")
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_any_number_of_partials_may_precede_the_final(version: str, count: int) -> None:
    side = client(version)
    call(side, "stream", partials=True)
    request_id = side.sent(ClientRequest)[0].request_id
    for n in range(count):
        side.say(ClientPartial, b"echo", [b"%d" % n], request_id, n)
    answer(side, b"end")
    assert [what for _, what in side.delivered[:-1]] == [
        Partial([b"%d" % n], n) for n in range(count)
    ]
    assert replies(side) == [("stream", b"end")]


@requirement("mdp02:client:partials")
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_partials_not_asked_for_are_joined_with_the_reply(version: str) -> None:
    side = client(version)
    call(side, "t")
    request_id = side.sent(ClientRequest)[0].request_id
    side.say(ClientPartial, b"echo", [b"a", b"b"], request_id, 0)
    side.say(ClientPartial, b"echo", [b"c"], request_id, 1)
    answer(side, b"d")
    assert [what.frames for _, what in side.delivered] == [[b"a", b"b", b"c", b"d"]]


@requirement("mdp03:client-partials")
def test_a_gap_in_the_partials_closes_the_connection() -> None:
    side = client(retry=NO_RETRY)
    call(side, "t", partials=True)
    request_id = side.sent(ClientRequest)[0].request_id
    side.say(ClientPartial, b"echo", [b"0"], request_id, 0)
    side.say(ClientPartial, b"echo", [b"2"], request_id, 2)
    assert 1 in side.closed
    assert [type(error) for _, error in side.failed] == [TransportError]


@requirement("mdp03:client-id")
def test_request_ids_are_not_reused() -> None:
    side = client(slots=100)
    for n in range(100):
        call(side, f"t{n}")
    ids = [request.request_id for request in side.sent(ClientRequest)]
    assert len(set(ids)) == 100
    for n in range(50):
        answer(side, nth=n)
    for n in range(50):
        call(side, f"u{n}")
    later = [request.request_id for request in side.sent(ClientRequest)[100:]]
    assert len(later) == 50
    assert not set(later) & set(ids)


@requirement("mdp03:client-id", "mdp03:client-stray")
def test_a_second_attempt_has_a_new_id() -> None:
    side = client(retry=RetryPolicy(attempts=2, attempt_timeout=1.0, backoff=0.0))
    call(side, "t")
    side.advance(1.5)
    first, second = side.sent(ClientRequest)
    assert first.request_id != second.request_id
    answer(side, b"late", nth=0)
    assert side.delivered == []
    answer(side, b"true", nth=1)
    assert replies(side) == [("t", b"true")]


@requirement("mdp03:client-stray")
@pytest.mark.parametrize("command", [ClientPartial, ClientFinal])
@pytest.mark.parametrize("whose", ["never given", "answered", "cancelled"])
def test_a_reply_to_a_request_that_is_not_pending_is_ignored(command: str, whose: str) -> None:
    side = client()
    call(side, "t")
    call(side, "other")
    request_id = side.sent(ClientRequest)[0].request_id
    if whose == "answered":
        answer(side, nth=0)
    elif whose == "cancelled":
        side.feed(Cancel("t"))
    else:
        request_id = (1 << 64) - 1
    delivered, failed = list(side.delivered), list(side.failed)
    fields = (request_id, 0) if command == ClientPartial else (request_id, 0, 1)
    side.say(command, b"echo", [b"stray"], *fields)
    assert (side.delivered, side.failed) == (delivered, failed)
    assert not side.closed
    answer(side, b"mine", nth=1)
    assert replies(side)[-1] == ("other", b"mine")


@requirement("mdp03:client-cancel")
def test_a_cancelled_call_is_cancelled_at_the_broker() -> None:
    side = client()
    call(side, "t")
    side.feed(Cancel("t"))
    assert side.sent(ClientCancel) == [ClientCancel(side.sent(ClientRequest)[0].request_id)]
    assert [(token, type(error)) for token, error in side.failed] == [("t", Cancelled)]


@requirement("mdp03:timeout", "mdp03:flags")
def test_a_request_carries_its_timeout_and_whether_it_is_idempotent() -> None:
    side = client()
    call(side, "a", timeout_s=2.5)
    call(side, "b", timeout_s=float("inf"), idempotent=False, idempotency_key=b"k")
    call(side, "c", timeout_s=0.0002)
    told = [
        (request.timeout_ms, request.flags, request.key) for request in side.sent(ClientRequest)
    ]
    assert told == [(2500, 0, b""), (0, NOT_IDEMPOTENT, b"k"), (1, 0, b"")]


# --- negative replies -----------------------------------------------------------------------------
@requirement("mdp03:status-reason")
@pytest.mark.parametrize(
    ("status", "error", "may_have_run"),
    [
        (Status.FAILED, RemoteFailure, True),
        (Status.NO_SERVICE, NoService, True),
        (Status.OVERLOADED, Overloaded, False),
        (Status.EXPIRED, CallTimeout, True),
        (Status.WORKER_LOST, WorkerLost, True),
        (Status.POISONED, Poisoned, True),
        (Status.CANCELLED, Cancelled, True),
    ],
)
def test_a_negative_reply_becomes_an_error_with_its_reason(
    status: Status, error: type[CallError], may_have_run: bool
) -> None:
    side = client(retry=NO_RETRY)
    call(side, "t")
    answer(side, b"because of this", status=status)
    ((token, failure),) = side.failed
    assert token == "t"
    assert type(failure) is error
    assert str(failure) == "because of this"
    assert failure.may_have_executed == may_have_run


@requirement("mdp03:attempts")
@pytest.mark.parametrize(("attempts", "may_have_run"), [(0, False), (1, True)])
@pytest.mark.parametrize("status", [Status.EXPIRED, Status.CANCELLED, Status.NO_SERVICE])
def test_a_request_without_an_attempt_cannot_have_run(
    status: Status, attempts: int, may_have_run: bool
) -> None:
    side = client(retry=NO_RETRY)
    call(side, "t")
    request_id = side.sent(ClientRequest)[0].request_id
    side.say(ClientFinal, b"echo", [b"no"], request_id, status, attempts)
    ((_, failure),) = side.failed
    assert isinstance(failure, CallError)
    assert failure.may_have_executed == may_have_run


@requirement("mdp03:status-final")
@pytest.mark.parametrize(
    ("more", "is_final"),
    [((), False), ((b"final",), True), ((b"x",), False), ((b"x", b"final"), False)],
)
def test_a_negative_reply_says_whether_it_is_final(more: tuple[bytes, ...], is_final: bool) -> None:
    side = client()
    call(side, "t")
    request_id = side.sent(ClientRequest)[-1].request_id
    side.say(ClientFinal, b"echo", [b"no", *more], request_id, Status.FAILED, 1)
    [(_, error)] = side.failed
    assert isinstance(error, RemoteFailure)
    assert (str(error), error.is_final) == ("no", is_final)
    assert pickle.loads(pickle.dumps(error)).is_final is is_final


@requirement("mdp03:status-reason")
def test_a_reason_that_is_not_utf_8_is_accepted() -> None:
    side = client(retry=NO_RETRY)
    call(side, "t")
    answer(side, b"\xff\xfe", status=Status.FAILED)
    assert [type(error) for _, error in side.failed] == [RemoteFailure]
    assert not side.closed


# --- loss of the broker ---------------------------------------------------------------------------
@requirement("mdp03:client-heartbeat")
def test_a_waiting_client_sends_heartbeats() -> None:
    side = client()
    call(side, "t", timeout_s=600)
    for _ in range(20):
        side.advance(0.9)
        if side.sent(ClientHeartbeat):
            side.say(ClientHeartbeat, 1000)
    assert 8 <= len(side.sent(ClientHeartbeat)) <= 18
    assert not side.closed
    answer(side)
    assert replies(side) == [("t", b"hi")]


@requirement("mdp03:client-heartbeat")
def test_a_client_without_requests_sends_no_heartbeats() -> None:
    side = client()
    call(side, "t")
    answer(side)
    side.advance(3600)
    assert side.sent(ClientHeartbeat) == []
    assert not side.closed
    assert side.engine.deadline() is None


@requirement("mdp03:client-heartbeat", "mdp03:client-resend")
def test_after_a_silent_broker_times_out_the_request_is_resent() -> None:
    side = client()
    call(side, "t")
    side.advance(2.9)
    assert not side.closed
    side.advance(0.2)
    assert 1 in side.closed
    assert side.connection == 2
    assert [request.body for request in side.sent(ClientRequest, on=2)] == [[b"hello"]]
    answer(side)
    assert replies(side) == [("t", b"hi")]


@requirement("mdp03:client-resend")
@pytest.mark.parametrize(
    ("version", "how"),
    [(version, how) for version in ("0.1", "0.2", "0.3") for how in ("lost", "malformed")]
    + [("0.3", "silent")],  # only MDP 0.3 has heartbeats between client and broker
)
def test_a_request_that_is_not_idempotent_is_not_resent(version: str, how: str) -> None:
    side = client(version)
    call(side, "once", idempotent=False)
    if how == "lost":
        side.lose()
    elif how == "silent":
        side.advance(3.5)
    else:
        side.feed(Received(1, [[b"garbage"]]))
    side.advance(5)
    assert [(token, type(error)) for token, error in side.failed] == [("once", TransportError)]
    (failure,) = [error for _, error in side.failed if isinstance(error, CallError)]
    assert failure.may_have_executed
    sent = [command for number in side.commands for command in side.sent(ClientRequest, on=number)]
    assert len(sent) == 1


@requirement("mdp03:client-resend")
@every_version
def test_an_idempotent_request_is_resent_over_a_new_connection(version: str) -> None:
    side = client(version)
    call(side, "t")
    side.lose()
    side.advance(1)
    assert side.connection == 2
    answer(side)
    assert replies(side) == [("t", b"hi")]
    assert side.failed == []


@requirement("mdp03:client-resend")
def test_an_unsent_request_may_be_sent_later_although_it_is_not_idempotent() -> None:
    side = client()
    side.refuse = True
    call(side, "once", idempotent=False)
    side.advance(5)
    assert side.failed == []
    side.accept()
    assert [request.flags for request in side.sent(ClientRequest)] == [NOT_IDEMPOTENT]


# --- dialects without ids -------------------------------------------------------------------------
@requirement("mdp01:broker:one-reply", "mdp02:broker:after-final")
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_a_connection_has_one_outstanding_request(version: str) -> None:
    side = client(version)
    for n in range(3):
        call(side, f"t{n}")
    assert side.connection == 3
    assert [len(side.sent(ClientRequest, on=n)) for n in (1, 2, 3)] == [1, 1, 1]
    side.say(ClientFinal, b"echo", [b"two"], 0, 0, 1, on=2)
    assert [body for _, body in replies(side)] == [b"two"]
    side.say(ClientFinal, b"echo", [b"again"], 0, 0, 1, on=2)
    assert [body for _, body in replies(side)] == [b"two"]
