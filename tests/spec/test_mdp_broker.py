"""Requirements for a broker in all dialects: 7/MDP, 18/MDP, and their rules that MDP 0.3
includes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.core.liveness import HeartbeatPolicy
from requite.engine import Received
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientPartial,
    Disconnect,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Status

OLD = ("0.1", "0.2")
ALL = ("0.1", "0.2", "0.3")
old_version = pytest.mark.parametrize("version", OLD)
every_version = pytest.mark.parametrize("version", ALL)
GUIDES = HeartbeatPolicy(interval_s=2.5, liveness=3)


def replies(bench: BrokerBench, client: str) -> list[bytes]:
    return [final.body[0] for final in bench.finals(client)]


# --- one socket, many dialects --------------------------------------------------------------------
@requirement("mdp01:broker:one-socket", "mdp01:broker:one-reply", "mdp03:client-first")
@pytest.mark.parametrize("worker", ALL)
@pytest.mark.parametrize("client", ALL)
def test_a_client_of_any_dialect_is_served_by_a_worker_of_any(client: str, worker: str) -> None:
    bench = BrokerBench()
    bench.client("c", client)
    bench.worker("w", version=worker)
    bench.request("c", 7, b"hello")
    assert [request.body for request in bench.requests("w")] == [[b"hello"]]
    bench.final("w", b"hi")
    assert [final.body for final in bench.finals("c")] == [[b"hi"]]
    assert not bench.disconnected


@requirement("mdp02:client:partials", "mdp02:broker:after-final", "mdp03:client-partials")
@pytest.mark.parametrize("worker", ["0.2", "0.3"])
@pytest.mark.parametrize("client", ["0.2", "0.3"])
def test_partials_precede_the_final(client: str, worker: str) -> None:
    bench = BrokerBench()
    bench.client("c", client)
    bench.worker("w", version=worker)
    bench.request("c", 7)
    request = bench.requests("w")[0]
    for part in (b"1", b"2"):
        bench.say("w", WorkerPartial, request.address, [part], request.dispatch_id)
    bench.final("w", b"3")
    assert [type(command) for command in bench.sent("c")] == [
        ClientPartial,
        ClientPartial,
        ClientFinal,
    ]
    assert [command.body for command in bench.sent("c")] == [[b"1"], [b"2"], [b"3"]]
    indices = [command.part_index for command in bench.sent("c", ClientPartial)]
    assert indices == ([0, 1] if client == "0.3" else [-1, -1])


@requirement("mdp01:broker:one-reply")
@pytest.mark.parametrize("worker", ["0.2", "0.3"])
def test_a_client_of_0_1_gets_one_reply_for_all_partials(worker: str) -> None:
    bench = BrokerBench()
    bench.client("c", "0.1")
    bench.worker("w", version=worker)
    bench.request("c", 7)
    request = bench.requests("w")[0]
    for part in (b"1", b"2"):
        bench.say("w", WorkerPartial, request.address, [part], request.dispatch_id)
    assert bench.sent("c") == []
    bench.final("w", b"3")
    assert bench.sent("c") == [ClientFinal(b"echo", [b"1", b"2", b"3"])]


@requirement("mdp02:broker:after-final", "mdp01:broker:one-reply", "mdp03:client-partials")
@pytest.mark.parametrize("command", [WorkerPartial, WorkerFinal])
@every_version
def test_nothing_follows_the_final(version: str, command: str) -> None:
    bench = BrokerBench()
    bench.client("c", version)
    bench.worker("w", version="0.3")
    bench.request("c", 7)
    dispatch_id = bench.requests("w")[0].dispatch_id
    bench.final("w", b"y")
    answered = list(bench.sent("c"))
    status = [0] if command == WorkerFinal else []
    bench.say("w", command, b"", [b"late"], dispatch_id, *status)
    bench.lose("w")
    bench.advance(60)
    assert bench.sent("c") == answered
    assert len(answered) == 1


# --- queues ---------------------------------------------------------------------------------------
@requirement("mdp01:broker:queue-unknown", "mdp02:broker:queue-unknown")
@every_version
def test_a_request_waits_for_a_service_to_be_registered(version: str) -> None:
    bench = BrokerBench()
    bench.client("c", version)
    bench.request("c", 7, b"hello")
    bench.advance(5)
    bench.worker("w", version=version)
    assert [request.body for request in bench.requests("w")] == [[b"hello"]]


@requirement("mdp01:broker:expire-unknown", "mdp02:broker:expire-unknown")
@pytest.mark.parametrize("grace_s", [0.5, 20.0])
@every_version
def test_a_request_without_a_service_expires_after_the_grace_period(
    version: str, grace_s: float
) -> None:
    bench = BrokerBench(service_grace_s=grace_s)
    bench.client("c", version)
    bench.request("c", 7)
    bench.advance(grace_s * 0.9)
    assert bench.broker.snapshot().pending == 1
    bench.advance(grace_s * 0.2)
    assert bench.broker.snapshot().pending == 0
    bench.worker("w", version=version)
    assert bench.requests("w") == []
    answers = [final.status for final in bench.finals("c")]
    assert answers == ([Status.NO_SERVICE] if version == "0.3" else [])


@requirement("mdp01:broker:fair", "mdp02:broker:fair")
@every_version
def test_clients_are_served_in_turn(version: str) -> None:
    bench = BrokerBench()
    clients = ("a", "b", "c")
    for client in clients:
        bench.client(client, version)
        for n in range(4):
            bench.request(client, n, client.encode())
    bench.worker("w", version=version)
    for _ in range(12):
        bench.final("w")
    order = b"".join(request.body[0] for request in bench.requests("w"))
    assert order == b"abc" * 4


# --- registration ---------------------------------------------------------------------------------
@requirement("mdp01:broker:no-answer-to-ready", "mdp02:broker:no-answer-to-ready")
@old_version
def test_ready_is_not_answered(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    assert bench.sent("w") == []
    assert "w" not in bench.disconnected


@requirement("mdp01:worker:one-at-a-time", "mdp02:worker:one-at-a-time")
@old_version
def test_a_worker_gets_one_request_at_a_time(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    for n in range(3):
        bench.request("c", n, b"%d" % n)
    for n in range(3):
        assert [request.body for request in bench.requests("w")] == [
            [b"%d" % k] for k in range(n + 1)
        ]
        bench.final("w")
    assert len(bench.finals("c")) == 3


@requirement("mdp01:frames:address", "mdp02:frames:address")
@old_version
def test_a_request_carries_its_clients_address_and_only_that_client_gets_the_reply(
    version: str,
) -> None:
    bench = BrokerBench()
    bench.client("c1", version)
    bench.client("c2", version)
    bench.worker("w", version=version)
    bench.request("c2", 7)
    assert bench.requests("w") == [WorkerRequest(b"c2", [b"x"])]
    bench.final("w", b"y")
    assert replies(bench, "c2") == [b"y"]
    assert bench.sent("c1") == []


# --- loss of workers ------------------------------------------------------------------------------
def lose(bench: BrokerBench, worker: str) -> None:
    bench.lose(worker)


def time_out(bench: BrokerBench, worker: str) -> None:
    """Let the worker w time out, while the worker v sends heartbeats."""
    bench.keep_alive(20, "v", every=0.4)


def disconnect(bench: BrokerBench, worker: str) -> None:
    bench.say(worker, Disconnect)


@requirement("mdp01:broker:redeliver", "mdp02:broker:redeliver", "mdp03:worker-lost")
@pytest.mark.parametrize("leave", [lose, time_out, disconnect])
@every_version
def test_the_request_of_a_lost_worker_goes_to_another(
    version: str, leave: Callable[[BrokerBench, str], None]
) -> None:
    bench = BrokerBench(legacy_busy_timeout_s=15.0)
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.request("c", 7, b"hello")
    bench.worker("v", version=version)
    assert bench.requests("v") == []
    leave(bench, "w")
    assert [request.body for request in bench.requests("v")] == [[b"hello"]]
    bench.final("v", b"hi")
    assert replies(bench, "c") == [b"hi"]


@requirement("mdp01:broker:silent-after-disconnect", "mdp02:broker:silent-after-disconnect")
@pytest.mark.parametrize("state", ["before READY", "idle", "busy"])
@every_version
def test_the_broker_sends_nothing_after_a_workers_disconnect(version: str, state: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    if state == "before READY":
        bench.lose("w")
        bench.join("w")
    elif state == "busy":
        bench.request("c", 1)
    before = len(bench.sent("w"))
    bench.say("w", Disconnect)
    bench.request("c", 2)
    bench.advance(60)
    assert len(bench.sent("w")) == before


@requirement("mdp01:worker:one-at-a-time", "mdp02:worker:one-at-a-time", "mdp03:client-left")
@every_version
def test_a_reply_to_a_disconnected_client_is_dropped_and_its_worker_stays(version: str) -> None:
    bench = BrokerBench()
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.request("c", 7)
    bench.lose("c")
    bench.request("d", 8)
    assert len(bench.requests("w")) == 1
    bench.final("w", b"for c")
    assert len(bench.requests("w")) == 2
    bench.final("w", b"for d")
    assert bench.sent("c") == []
    assert replies(bench, "d") == [b"for d"]
    assert not bench.disconnected


# --- unexpected and malformed messages ------------------------------------------------------------
@requirement("mdp01:broker:unexpected", "mdp02:broker:unexpected", "mdp03:worker-unexpected")
@requirement("mdp03:worker-ready")
@pytest.mark.parametrize("first", [WorkerHeartbeat, WorkerFinal])
@every_version
def test_a_worker_whose_first_command_is_not_ready_is_disconnected(
    version: str, first: str
) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    bench.lose("w")
    bench.commands["w"].clear()
    bench.join("w")
    fields = {WorkerHeartbeat: (1000,), WorkerFinal: (b"c", [b"y"], 1, 0)}[first]
    bench.say("w", first, *fields)
    assert bench.sent("w") == [Disconnect()]
    assert "w" in bench.disconnected
    assert_silent_after_disconnect(bench)


@requirement("mdp01:broker:unexpected", "mdp02:broker:unexpected", "mdp03:worker-unexpected")
@requirement("mdp01:worker:one-ready", "mdp02:worker:one-ready", "mdp03:worker-ready")
@every_version
def test_a_second_ready_disconnects_the_worker(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    bench.commands["w"].clear()
    bench.say("w", Ready, b"echo", 1, 1000, 0)
    reason = b"the worker sent READY twice" if version == "0.3" else b""
    assert bench.sent("w") == [Disconnect(reason)]
    assert "w" in bench.disconnected
    assert_silent_after_disconnect(bench)


@requirement("mdp01:broker:unexpected", "mdp02:broker:unexpected")
@pytest.mark.parametrize("answer_first", [False, True])
@old_version
def test_a_reply_without_a_request_disconnects_the_worker(version: str, answer_first: bool) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    if answer_first:
        bench.request("c", 1)
        bench.final("w")
    bench.commands["w"].clear()
    bench.say("w", WorkerFinal, b"c", [b"again"], 0, 0)
    assert bench.sent("w") == [Disconnect()]
    assert replies(bench, "c") == ([b"y"] if answer_first else [])
    assert_silent_after_disconnect(bench)


def assert_silent_after_disconnect(bench: BrokerBench) -> None:
    """Check that the broker sends nothing after DISCONNECT to the worker w."""
    before = bench.sent("w")
    assert isinstance(before[-1], Disconnect)
    bench.say("w", WorkerHeartbeat, 1000)
    bench.request("c", 99)
    bench.advance(60)
    assert bench.sent("w") == before


@requirement("mdp01:broker:invalid", "mdp02:broker:invalid", "mdp03:worker-malformed")
@pytest.mark.parametrize("garbage", [[b""], [b"\xff" * 40], [b"MDPW02", b"\x09"], [b"", b"MDPW01"]])
@every_version
def test_a_malformed_message_disconnects_only_its_worker(
    version: str, garbage: list[bytes]
) -> None:
    bench = BrokerBench()
    bench.client("c", version)
    bench.worker("w", version=version)
    bench.request("c", 1, b"hello")
    bench.worker("v", version=version)
    bench.feed(Received("w", [garbage]))
    assert list(bench.disconnected) == ["w"]
    assert [request.body for request in bench.requests("v")] == [[b"hello"]]
    bench.final("v", b"hi")
    assert replies(bench, "c") == [b"hi"]


@requirement("mdp01:broker:invalid", "mdp02:broker:invalid", "mdp03:worker-malformed")
@pytest.mark.parametrize("garbage", [[b""], [b"\xff" * 40], [b"MDPC02", b"\x09"], [b"", b"MDPC01"]])
@every_version
def test_a_malformed_message_disconnects_only_its_client(
    version: str, garbage: list[bytes]
) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    bench.client("bad", version)
    bench.client("good", version)
    bench.feed(Received("bad", [garbage]))
    assert list(bench.disconnected) == ["bad"]
    bench.request("good", 1)
    bench.final("w", b"y")
    assert replies(bench, "good") == [b"y"]
    assert bench.sent("bad") == []


# --- heartbeats -----------------------------------------------------------------------------------
@requirement("mdp01:heartbeat:regular", "mdp02:heartbeat:regular", "mdp03:worker-heartbeat")
@requirement("mdp01:heartbeat:any-time", "mdp02:heartbeat:any-time")
@every_version
def test_the_broker_sends_heartbeats_at_its_interval(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    before = len(bench.sent("w"))
    bench.keep_alive(10, "w")
    beats = bench.sent("w")[before:]
    assert all(isinstance(beat, WorkerHeartbeat) for beat in beats)
    assert len(beats) in (9, 10)
    assert not bench.disconnected


@requirement("mdp01:heartbeat:sparing", "mdp02:heartbeat:sparing", "mdp03:worker-heartbeat")
@every_version
def test_requests_replace_the_brokers_heartbeats(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    before = len(bench.sent("w", WorkerHeartbeat))
    for n in range(20):
        bench.request("c", n)
        bench.advance(0.5)
        bench.final("w")
    assert len(bench.requests("w")) == 20
    assert len(bench.sent("w", WorkerHeartbeat)) == before


@requirement("mdp01:heartbeat:gone", "mdp02:heartbeat:gone", "mdp03:worker-heartbeat")
@requirement("mdp02:broker:stop-sending")
@every_version
def test_a_silent_worker_is_disconnected_after_three_intervals(version: str) -> None:
    bench = BrokerBench(heartbeat=GUIDES)
    bench.worker("w", version=version)
    bench.advance(7.4)
    assert "w" not in bench.disconnected
    bench.advance(0.2)
    assert "w" in bench.disconnected
    told = len(bench.sent("w"))
    bench.request("c", 1)
    bench.advance(60)
    assert len(bench.sent("w")) == told


@requirement("mdp01:heartbeat:any-command", "mdp02:heartbeat:any-command", "mdp03:worker-heartbeat")
@every_version
def test_any_command_counts_as_a_heartbeat(version: str) -> None:
    bench = BrokerBench()
    bench.worker("w", version=version)
    for n in range(5):
        bench.request("c", n)
        bench.advance(2)
        bench.final("w")
        assert "w" not in bench.disconnected
        bench.advance(0.9)
    bench.advance(6.7)
    assert "w" in bench.disconnected
