"""Requirements of the dialects of MDP for a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.broker_side import BrokerSide

from requite.core.liveness import HeartbeatPolicy
from requite.engine import Drain, Finished, PeerJoined, Produced, Progressed, Received
from requite.errors import ConfigurationError, LocalViolation
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import (
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.request import Request, Status

OLD = ("0.1", "0.2")
old_version = pytest.mark.parametrize("version", OLD)
every_version = pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])


def worker(version: str = "0.3", **policy: Any) -> BrokerSide:
    """Return a worker that has registered."""
    dialect = by_version(version)
    engine = MajordomoWorker(dialect, "echo", WorkerPolicy(**policy), rng=lambda: 0.5)
    side = BrokerSide(engine, dialect, "worker")
    side.start()
    return side


def ask(side: BrokerSide, dispatch_id: int = 1, body: bytes = b"hello", timeout_ms: int = 0) -> Any:
    """Send the worker a request; return the token of its delivery."""
    side.say(WorkerRequest, b"addr", [body], dispatch_id, timeout_ms, 1, b"")
    token, request = side.delivered[-1]
    assert isinstance(request, Request)
    assert request.body == body
    return token


def finish(side: BrokerSide, token: Any, body: bytes = b"hi", status: Status = Status.OK) -> None:
    side.feed(Finished(token, [body], status))


# --- opening --------------------------------------------------------------------------------------
@requirement("mdp01:worker:one-ready", "mdp02:worker:one-ready", "mdp03:worker-ready")
@every_version
def test_ready_is_sent_first_and_once(version: str) -> None:
    side = worker(version)
    assert side.sent() == [Ready(b"echo", 1, 1000 if version == "0.3" else 0, 0)]
    for n in range(3):
        finish(side, ask(side, n))
        side.keep_alive(5)
    assert len(side.sent(Ready)) == 1


@requirement("mdp03:worker-ready", "mdp03:worker-lease", "mdp03:worker-heartbeat")
def test_ready_carries_capacity_interval_and_lease() -> None:
    side = worker(capacity=16, lease_s=30, heartbeat=HeartbeatPolicy(2.5))
    assert side.sent() == [Ready(b"echo", 16, 2500, 30_000)]


@requirement("mdp01:worker:one-broker", "mdp02:worker:one-broker")
@every_version
def test_a_worker_has_one_connection(version: str) -> None:
    side = worker(version)
    side.keep_alive(10)
    assert side.connection == 1
    side.feed(PeerJoined(99))
    assert 99 in side.closed
    assert side.sent(on=99) == []


@requirement("mdp01:worker:one-at-a-time", "mdp02:worker:one-at-a-time")
@old_version
def test_a_worker_takes_one_request_at_a_time(version: str) -> None:
    with pytest.raises(ConfigurationError, match="one request at a time"):
        worker(version, capacity=2)


@requirement("mdp02:worker:assume-registered")
@old_version
def test_registration_needs_no_confirmation(version: str) -> None:
    side = worker(version)
    side.advance(2.5)
    assert not side.closed
    finish(side, ask(side))
    assert side.sent(WorkerFinal) == [WorkerFinal(b"addr", [b"hi"])]


# --- replies --------------------------------------------------------------------------------------
@requirement("mdp02:worker:one-final", "mdp03:worker-dispatch")
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_partials_and_then_exactly_one_final(version: str, count: int) -> None:
    side = worker(version)
    token = ask(side, 9)
    for n in range(count):
        side.feed(Produced(token, [b"%d" % n]))
    finish(side, token, b"end")
    said = side.sent()[1:]
    side.feed(Produced(token, [b"more"]))
    finish(side, token, b"again")
    assert side.sent()[1:] == said
    assert [type(command) for command in said] == [WorkerPartial] * count + [WorkerFinal]
    assert [command.body[0] for command in said] == [b"%d" % n for n in range(count)] + [b"end"]
    assert {command.dispatch_id for command in said} == {9 if version == "0.3" else 0}


@requirement("mdp01:frames:address", "mdp02:frames:address")
@old_version
def test_the_reply_goes_to_the_address_that_came_with_the_request(version: str) -> None:
    side = worker(version)
    finish(side, ask(side))
    assert side.sent(WorkerFinal) == [WorkerFinal(b"addr", [b"hi"])]


@requirement("mdp01:broker:one-reply")
def test_partials_are_joined_with_the_reply_in_0_1() -> None:
    side = worker("0.1")
    token = ask(side)
    side.feed(Produced(token, [b"a"]))
    side.feed(Produced(token, [b"b"]))
    finish(side, token, b"c")
    assert side.sent()[1:] == [WorkerFinal(b"addr", [b"a", b"b", b"c"])]


@requirement("mdp03:worker-dispatch", "mdp03:worker-capacity")
def test_each_reply_carries_the_id_of_its_request() -> None:
    side = worker(capacity=3)
    tokens = {n: ask(side, n) for n in (5, 6, 7)}
    for n in (6, 5, 7):
        finish(side, tokens[n], b"%d" % n)
    told = [(final.dispatch_id, final.body) for final in side.sent(WorkerFinal)]
    assert told == [(6, [b"6"]), (5, [b"5"]), (7, [b"7"])]


@requirement("mdp03:worker-capacity")
def test_a_worker_closes_the_connection_to_a_broker_that_exceeds_its_capacity() -> None:
    side = worker(capacity=2)
    for n in range(3):
        side.say(WorkerRequest, b"", [b"x"], n, 0, 1, b"")
    assert len(side.delivered) == 2
    assert 1 in side.closed


@requirement("mdp03:status-worker", "mdp03:status-reason")
@pytest.mark.parametrize("status", list(Status))
def test_a_worker_uses_three_statuses(status: Status) -> None:
    side = worker()
    token = ask(side)
    if status in (Status.OK, Status.FAILED, Status.CANCELLED):
        finish(side, token, b"a sentence", status)
        assert side.sent(WorkerFinal) == [WorkerFinal(b"", [b"a sentence"], 1, status)]
    else:
        with pytest.raises(LocalViolation):
            finish(side, token, b"a sentence", status)
        assert side.sent(WorkerFinal) == []


# --- the end of a connection ----------------------------------------------------------------------
def disconnect(side: BrokerSide) -> None:
    side.say(Disconnect)


def lose(side: BrokerSide) -> None:
    side.lose()


def time_out(side: BrokerSide) -> None:
    side.advance(3.5)


def send_garbage(side: BrokerSide) -> None:
    side.feed(Received(side.connection, [[b"garbage"]]))


@requirement("mdp01:worker:reconnect", "mdp02:worker:reconnect", "mdp02:worker:restart")
@requirement("mdp03:worker-reconnect", "mdp01:worker:one-ready", "mdp02:worker:one-ready")
@pytest.mark.parametrize("end", [disconnect, lose, time_out, send_garbage])
@every_version
def test_a_worker_reconnects_and_registers_again(
    version: str, end: Callable[[BrokerSide], None]
) -> None:
    side = worker(version)
    end(side)
    side.advance(0.5)
    assert side.connection == 2
    assert (1 in side.closed) == (end is not lose)
    assert len(side.sent(Ready, on=1)) == len(side.sent(Ready, on=2)) == 1
    assert isinstance(side.sent(on=2)[0], Ready)
    finish(side, ask(side))
    assert len(side.sent(WorkerFinal, on=2)) == 1


@requirement("mdp02:worker:silent-after-disconnect", "mdp03:worker-reconnect")
@pytest.mark.parametrize("end", [disconnect, lose, time_out])
@every_version
def test_results_for_a_former_connection_are_not_sent(
    version: str, end: Callable[[BrokerSide], None]
) -> None:
    side = worker(version)
    token = ask(side)
    end(side)
    side.advance(0.5)
    said = len(side.sent(on=1))
    assert side.abandoned == [token]
    side.feed(Produced(token, [b"late"]))
    side.feed(Progressed(token))
    finish(side, token, b"late")
    side.keep_alive(10)
    assert len(side.sent(on=1)) == said
    assert side.sent(WorkerPartial, on=2) == side.sent(WorkerFinal, on=2) == []
    assert side.sent(Progress, on=2) == []


@requirement("mdp02:worker:silent-after-disconnect", "mdp03:worker-reconnect")
@every_version
def test_a_worker_sends_nothing_after_the_brokers_disconnect(version: str) -> None:
    side = worker(version)
    side.refuse = True
    said = len(side.sent())
    side.say(Disconnect)
    side.advance(60)
    assert len(side.sent()) == said


@requirement("mdp03:worker-drain")
@pytest.mark.parametrize("busy", [False, True])
def test_a_draining_worker_finishes_and_disconnects(busy: bool) -> None:
    side = worker(capacity=2)
    token = ask(side) if busy else None
    side.feed(Drain())
    assert side.sent(DrainNotice) == [DrainNotice()]
    if busy:
        side.keep_alive(5)
        assert side.sent(Disconnect) == []
        finish(side, token)
        assert len(side.sent(WorkerFinal)) == 1
    side.advance(1)
    assert isinstance(side.sent()[-1], Disconnect)
    assert side.stopped
    assert side.connection == 1


# --- heartbeats -----------------------------------------------------------------------------------
@requirement("mdp01:heartbeat:regular", "mdp02:heartbeat:regular", "mdp03:worker-heartbeat")
@requirement("mdp01:heartbeat:any-time", "mdp02:heartbeat:any-time")
@pytest.mark.parametrize("busy", [False, True])
@every_version
def test_a_worker_sends_heartbeats_idle_and_busy(version: str, busy: bool) -> None:
    side = worker(version)
    if busy:
        ask(side)
    side.keep_alive(10)
    assert len(side.sent(WorkerHeartbeat)) in (9, 10)
    assert not side.closed


@requirement("mdp01:heartbeat:sparing", "mdp02:heartbeat:sparing", "mdp03:worker-heartbeat")
@every_version
def test_replies_replace_the_workers_heartbeats(version: str) -> None:
    side = worker(version)
    for n in range(20):
        token = ask(side, n)
        side.advance(0.5)
        finish(side, token)
    assert len(side.sent(WorkerFinal)) == 20
    assert side.sent(WorkerHeartbeat) == []


@requirement("mdp01:heartbeat:gone", "mdp02:heartbeat:gone", "mdp03:worker-heartbeat")
@requirement("mdp02:worker:assume-registered")
@every_version
def test_a_worker_disconnects_from_a_broker_after_three_silent_intervals(version: str) -> None:
    side = worker(version)
    side.refuse = True
    side.advance(2.9)
    assert not side.closed
    side.advance(0.2)
    assert 1 in side.closed


@requirement("mdp01:heartbeat:any-command", "mdp02:heartbeat:any-command")
@every_version
def test_a_request_counts_as_a_heartbeat(version: str) -> None:
    side = worker(version)
    for n in range(5):
        finish(side, ask(side, n))
        side.advance(2.5)
    assert not side.closed


@requirement("mdp03:worker-heartbeat", "mdp03:worker-confirm")
def test_the_longer_of_both_intervals_applies() -> None:
    side = worker(heartbeat=HeartbeatPolicy(0.5))
    side.refuse = True
    side.say(WorkerHeartbeat, 4000)
    side.advance(11.9)
    assert not side.closed
    assert len(side.sent(WorkerHeartbeat)) in (2, 3)
    side.advance(0.2)
    assert 1 in side.closed


# --- leases and cancelling ------------------------------------------------------------------------
@requirement("mdp03:worker-cancel", "mdp03:worker-capacity")
def test_a_cancelled_handler_is_stopped_and_frees_its_slot() -> None:
    side = worker()
    token = ask(side, 9)
    side.say(WorkerCancel, 9)
    assert side.abandoned == [token]
    assert side.sent(WorkerFinal) == []
    finish(side, token, b"too late")
    (final,) = side.sent(WorkerFinal)
    assert final.dispatch_id == 9
    assert final.status in (Status.CANCELLED, Status.OK)
    ask(side, 10)


@requirement("mdp03:worker-cancel")
def test_a_cancel_that_crossed_its_final_is_ignored() -> None:
    side = worker()
    finish(side, ask(side, 9))
    side.say(WorkerCancel, 9)
    side.say(WorkerCancel, 12345)
    assert side.abandoned == []
    assert len(side.sent(WorkerFinal)) == 1
    assert not side.closed


@requirement("mdp03:worker-lease")
@pytest.mark.parametrize(("extend_s", "extend_ms"), [(0.0, 0), (5.0, 5000)])
def test_progress_of_a_handler_is_sent_to_the_broker(extend_s: float, extend_ms: int) -> None:
    side = worker(lease_s=2.0)
    token = ask(side, 9)
    side.keep_alive(1)
    side.feed(Progressed(token, extend_s))
    assert side.sent(Progress) == [Progress(9, extend_ms)]


@requirement("mdp03:worker-lease", "mdp01:heartbeat:gone", "mdp02:heartbeat:gone")
@every_version
def test_a_hanging_handler_is_not_kept_alive_beyond_its_lease(version: str) -> None:
    side = worker(version, lease_s=3.0)
    ask(side)
    side.keep_alive(4)
    if version == "0.3":  # the broker enforces the lease itself
        assert side.sent(Ready)[0].lease_ms == 3000
        assert len(side.sent(WorkerHeartbeat)) in (3, 4)
        assert side.sent(Disconnect) == []
    else:
        assert len(side.sent(WorkerHeartbeat, on=1)) in (2, 3)
        assert side.sent(on=1)[-1] == Disconnect()
    assert side.sent(Progress) == []
