"""The broker engine holds a bounded number of bytes of pending requests, per client and in all."""

from __future__ import annotations

import pytest
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import ClientRequest, WorkerPartial
from requite.request import Status

MIB = 1024 * 1024
LIMITS = ["client_pending_bytes_max", "pending_bytes_max"]
older = pytest.mark.parametrize("version", ["0.1", "0.2"])


def refused(bench: BrokerBench, client: str) -> list[int]:
    """Return the ids of a client's requests that ended with OVERLOADED."""
    return [f.request_id for f in bench.finals(client) if f.status == Status.OVERLOADED]


def ask(bench: BrokerBench, client: str, bodies: list[bytes]) -> None:
    """Send requests of a client, all received in one read."""
    encode = bench.dialect_of(client).encode
    messages = [encode(ClientRequest(b"echo", [body], n)) for n, body in enumerate(bodies)]
    bench.feed(Received(client, messages))


def assert_nothing_is_counted(bench: BrokerBench) -> None:
    bench.advance(0.1)
    assert bench.broker.load.size == 0
    assert not bench.unread
    bench.assert_idle()


def test_one_client_cannot_fill_the_memory():
    """3,000 requests of 1 MiB each."""
    bench = BrokerBench()
    body = bytes(MIB)
    for n in range(3000):
        bench.request("c", n, body)
    snapshot = bench.broker.snapshot()
    assert snapshot.pending <= 256
    assert len(refused(bench, "c")) == 3000 - snapshot.pending
    assert b"client_pending_bytes_max, --client-pending-bytes-max" in bench.finals("c")[-1].body[0]
    assert bench.finals("c")[-1].attempts == 0, "the request has not run"
    bench.request("d", 1, body)
    assert not bench.finals("d"), "another client is served"
    bench.lose("c")
    bench.lose("d")
    assert_nothing_is_counted(bench)


def test_many_clients_cannot_fill_the_memory():
    bench = BrokerBench()
    body = bytes(MIB)
    for client in range(20):
        for n in range(100):
            bench.request(f"c{client}", n, body)
    assert bench.broker.snapshot().pending <= 1024
    assert not refused(bench, "c9")
    assert refused(bench, "c19") == list(range(100))
    assert b"pending_bytes_max, --pending-bytes-max" in bench.finals("c19")[-1].body[0]


@pytest.mark.parametrize("limit", LIMITS)
def test_one_message_of_any_size_always_fits(limit):
    bench = BrokerBench(**{limit: 1})
    bench.worker("w")
    for n in range(2):
        bench.request("c", n, bytes(MIB))
        bench.final("w")
    assert [final.status for final in bench.finals("c")] == [Status.OK, Status.OK]
    bench.request("c", 2)
    bench.request("c", 3)
    assert refused(bench, "c") == [3]


def test_empty_requests_and_frames_are_counted_too():
    """A request takes about 750 bytes, and a frame 44, besides its content."""
    bench = BrokerBench(client_pending_bytes_max=100_000)
    for n in range(200):
        bench.request("c", n, b"")
    assert bench.broker.snapshot().pending < 100
    encode = bench.client("d").encode
    for n in range(10):
        body = [b""] * 1000
        bench.feed(Received("d", [encode(ClientRequest(b"echo", body, n))]))
    assert bench.broker.snapshot().pending < 103


@pytest.mark.parametrize("limit", LIMITS)
@older
def test_an_older_client_is_not_read_from_until_there_is_room(version, limit):
    bench = BrokerBench(**{limit: 3 * MIB})
    bench.worker("w")
    bench.client("c", version)
    ask(bench, "c", [bytes(MIB)] * 3)
    assert not bench.unread
    ask(bench, "c", [bytes(MIB)] * 2)
    assert list(bench.unread) == ["c"]
    (warning,) = [each for each in bench.warnings if each.kind == "pushback"]
    assert f"({limit}, --{limit.replace('_', '-')})" in warning.text
    for _ in range(2):
        bench.final("w")
    assert list(bench.unread) == ["c"], "three are pending, which is the limit"
    bench.final("w")
    assert not bench.unread
    for _ in range(2):
        bench.final("w")
    assert len(bench.finals("c")) == 5
    assert_nothing_is_counted(bench)


@older
def test_older_clients_that_wait_for_the_memory_of_others_get_their_turn(version):
    bench = BrokerBench(pending_bytes_max=MIB)
    bench.worker("w")
    bench.request("new", 1, bytes(MIB))
    names = [f"c{n}" for n in range(5)]
    for name in names:
        bench.client(name, version)
        ask(bench, name, [bytes(MIB)])
    assert list(bench.unread) == names
    for n in range(5):
        bench.final("w")
        assert list(bench.unread) == names, f"{5 - n} MiB are pending"
    bench.final("w")
    assert_nothing_is_counted(bench)


@older
def test_the_loss_of_a_client_makes_room(version):
    bench = BrokerBench(pending_bytes_max=MIB)
    bench.request("new", 1, bytes(MIB))
    bench.client("c", version)
    ask(bench, "c", [b"x"])
    bench.lose("new")
    assert not bench.unread
    bench.lose("c")
    assert_nothing_is_counted(bench)


@pytest.mark.parametrize("end", ["expired", "no service", "step down"])
def test_however_a_request_ends_its_bytes_are_no_longer_counted(end):
    bench = BrokerBench(service_grace_s=5.0)
    for n in range(3):
        bench.request("c", n, bytes(MIB), timeout_ms=1000 if end == "expired" else 0)
    assert bench.broker.load.size > 3 * MIB
    if end == "step down":
        for effect in bench.broker.step_down("another one serves", bench.now):
            bench.perform(effect)
    bench.advance(10.0)
    assert bench.broker.load.size == 0


def test_a_worker_cannot_fill_the_memory_with_partial_replies():
    """A client of MDP 0.1 gets one reply, so the broker joins partial replies."""
    bench = BrokerBench(client_pending_bytes_max=5 * MIB)
    bench.client("c", "0.1")
    bench.worker("w", capacity=2)
    ask(bench, "c", [b"x"])
    for _ in range(9):
        bench.say("w", WorkerPartial, b"c", [bytes(MIB)], 1)
    assert bench.broker.load.size > 9 * MIB, "requests could take 5 MiB, partial replies, too"
    for _ in range(20):
        bench.say("w", WorkerPartial, b"c", [bytes(MIB)], 1)
    assert bench.broker.load.size == 0
    (failure,) = [note for note in bench.noted("answered") if note.facts["status"] != "OK"]
    assert failure.facts["status"] == "FAILED"
    assert "client_pending_bytes_max" in failure.facts["reason"]
    bench.final("w", status=Status.CANCELLED)
    assert_nothing_is_counted(bench)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_at_least_one(limit):
    with pytest.raises(ConfigurationError, match=limit):
        BrokerPolicy(**{limit: 0})
