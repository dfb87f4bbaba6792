"""The broker engine and clients of MDP 0.1 and 0.2 at a limit: the broker stops reading from them,
and no request is lost."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import PeerLost, Received
from requite.protocols.majordomo.wire import ClientCancel, ClientRequest
from requite.request import Status

older = pytest.mark.parametrize("version", ["0.1", "0.2"])


def ask(bench: BrokerBench, client: str, bodies: Iterable[bytes], service: bytes = b"echo") -> None:
    """Send requests of a client, all received in one read."""
    encode = bench.dialect_of(client).encode
    messages = [encode(ClientRequest(service, [body], n)) for n, body in enumerate(bodies, start=1)]
    bench.feed(Received(client, messages))


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def reply_to(bench: BrokerBench, worker: str, count: int = 1) -> None:
    """Send a worker's replies to its next `count` requests, one after the other."""
    for _ in range(count):
        bench.final(worker, bench.requests(worker)[-1].body[0])


def replies(bench: BrokerBench, client: str) -> list[bytes]:
    return [final.body[0] for final in bench.finals(client)]


def settle_and_check(bench: BrokerBench) -> None:
    """Advance the clock, and check that the broker reads from all clients and that no table
    leaks."""
    bench.advance(0.1)
    assert not bench.unread
    snapshot = bench.broker.snapshot()
    assert snapshot.unread == 0
    assert bench.broker._pushback._lines == {}
    assert bench.broker._pushback._extra == {}
    assert snapshot.timers == len(snapshot.workers) + sum(not s.workers for s in snapshot.services)


# --- requests of a client -------------------------------------------------------------------------
@older
def test_all_requests_of_a_read_beyond_the_limit_are_accepted(version):
    bench = BrokerBench(client_pending_max=3)
    bench.worker("w")
    bench.client("c", version)
    ask(bench, "c", numbered(3))
    assert not bench.unread
    ask(bench, "c", numbered(5, 3))
    assert list(bench.unread) == ["c"]
    assert bench.broker.snapshot().pending == 8
    reply_to(bench, "w", 5)
    assert list(bench.unread) == ["c"], "three are pending, which is the limit"
    reply_to(bench, "w")
    assert not bench.unread
    reply_to(bench, "w", 2)
    assert replies(bench, "c") == numbered(8)
    settle_and_check(bench)


@older
def test_with_tell_old_clients_requests_beyond_a_limit_are_refused(version):
    bench = BrokerBench(client_pending_max=1, queue_max=1, services_max=1, tell_old_clients=True)
    bench.client("c", version)
    ask(bench, "c", numbered(2))
    bench.client("d", version)
    ask(bench, "d", numbered(1))
    bench.client("e", version)
    ask(bench, "e", numbered(1), service=b"other")
    for client, said in (
        ("c", b"(client_pending_max, --client-pending-max)"),
        ("d", b"is full"),
        ("e", b"too many services"),
    ):
        (final,) = bench.finals(client)
        assert final.body[0] == b"requite-error OVERLOADED"
        assert said in final.body[1]
    assert not bench.unread


def test_a_client_of_0_3_is_refused():
    bench = BrokerBench(client_pending_max=1)
    bench.client("c")
    ask(bench, "c", numbered(2))
    assert [final.status for final in bench.finals("c")] == [Status.OVERLOADED]
    assert not bench.unread


@older
def test_back_pressure_on_a_client_causes_a_warning(version):
    bench = BrokerBench(client_pending_max=1)
    bench.client("c", version)
    ask(bench, "c", numbered(2))
    (warning,) = [each for each in bench.warnings if each.kind == "pushback"]
    assert warning.text == (
        f"stopped reading from an MDP {version} client ({b'c'.hex()}): the client has"
        " reached the maximum of 1 pending requests (client_pending_max, --client-pending-max)"
    )
    assert bench.broker.snapshot().unread == 1


@pytest.mark.parametrize("limit", ["queue_max", "services_max"])
def test_the_warning_names_the_option(limit):
    bench = BrokerBench(**{limit: 1})
    bench.client("c", "0.2")
    ask(bench, "c", numbered(2))
    ask(bench, "c", numbered(1), service=b"other")
    (warning,) = [each for each in bench.warnings if each.kind == "pushback"]
    assert f"({limit}, --{limit.replace('_', '-')})" in warning.text


# --- the queue of a service -----------------------------------------------------------------------
@older
def test_a_full_queue_accepts_all_requests_of_a_read(version):
    bench = BrokerBench(queue_max=2)
    bench.worker("w")
    bench.client("c", version)
    bench.client("d", version)
    ask(bench, "c", numbered(3))  # one of the three is with the worker
    assert not bench.unread
    ask(bench, "d", numbered(3, 10))
    ask(bench, "c", numbered(1, 3))
    assert list(bench.unread) == ["d", "c"]
    (row,) = bench.broker.snapshot().services
    assert (row.queued, row.refused) == (6, 0)
    reply_to(bench, "w", 4)
    assert list(bench.unread) == ["d", "c"], "two are queued, which is the limit"
    reply_to(bench, "w")
    assert list(bench.unread) == ["c"]
    reply_to(bench, "w")
    assert not bench.unread
    reply_to(bench, "w")
    assert sorted(replies(bench, "c")) == numbered(4)
    assert sorted(replies(bench, "d")) == numbered(3, 10)
    settle_and_check(bench)


@requirement("mdp01:broker:fair", "mdp02:broker:fair")
@older
def test_clients_waiting_for_a_queue_are_resumed_in_turn(version):
    """A thousand clients wait. When the broker resumes reading from one, it sends another
    request."""
    bench = BrokerBench(queue_max=10)
    bench.worker("w")
    names = [f"c{n}" for n in range(1000)]
    for name in names:
        bench.client(name, version)
        ask(bench, name, [b"first"])
    waiting = names[11:]  # of the first eleven, one request is with the worker, and ten are queued
    assert list(bench.unread) == waiting
    reply_to(bench, "w", 989)
    assert list(bench.unread) == waiting, "ten are queued, which is the limit"
    order: list[str] = []
    while len(order) < len(waiting):
        reply_to(bench, "w")
        for name in [name for name in waiting[len(order) :] if name not in bench.unread]:
            order.append(name)
            ask(bench, name, [b"second"])
        assert bench.broker.snapshot().services[0].queued <= 11
    assert order == waiting
    reply_to(bench, "w", 11)
    assert sum(len(bench.finals(name)) for name in names) == 1000 + len(waiting)
    settle_and_check(bench)


@older
def test_resumed_clients_that_send_nothing_do_not_delay_others(version):
    bench = BrokerBench(queue_max=10)
    bench.worker("w")
    names = [f"c{n}" for n in range(1000)]
    for name in names:
        bench.client(name, version)
        ask(bench, name, [b"only"])
    reply_to(bench, "w", 989)
    assert len(bench.unread) == 989
    reply_to(bench, "w")
    assert len(bench.unread) == 988, "there is room for one"
    before = bench.now
    while bench.unread:
        bench.advance(0.001)
    assert bench.now - before < 0.5, "the rest follows without any request having to leave"
    settle_and_check(bench)


@older
def test_other_clients_stay_paused_when_the_first_one_fills_the_queue(version):
    bench = BrokerBench(queue_max=1)
    bench.worker("w")
    names = [f"c{n}" for n in range(10)]
    for name in names:
        bench.client(name, version)
        ask(bench, name, [b"first"])
    reply_to(bench, "w", 9)
    assert list(bench.unread) == names[3:]
    ask(bench, "c2", numbered(3))
    bench.advance(5.0)
    assert list(bench.unread) == [*names[3:], "c2"]


@pytest.mark.parametrize("reason", ["leaves", "cancelled", "expired", "no service"])
@older
def test_a_request_that_leaves_the_queue_for_any_reason_makes_room(version, reason):
    bench = BrokerBench(queue_max=1, service_grace_s=5.0)
    bench.client("other")
    bench.request("other", 1, timeout_ms=3000 if reason == "expired" else 0)
    bench.client("c", version)
    ask(bench, "c", [b"x"])
    assert list(bench.unread) == ["c"]
    if reason == "leaves":
        bench.lose("other")
    elif reason == "cancelled":
        bench.say("other", ClientCancel, 1)
    bench.advance(10.0)
    settle_and_check(bench)


def test_a_flood_of_older_clients_does_not_starve_newer_ones():
    bench = BrokerBench(queue_max=10)
    bench.worker("w")
    for old in ("c", "d"):
        bench.client(old, "0.2")
        ask(bench, old, numbered(20))
    bench.request("new", 1, b"one")
    bench.request("new", 2, b"two")
    assert [(f.request_id, f.status) for f in bench.finals("new")] == [(2, Status.OVERLOADED)]
    reply_to(bench, "w", 4)
    assert bench.finals("new")[1].request_id == 1, "clients take turns"
    assert bench.broker.snapshot().services[0].queued > 10


def test_newer_clients_alone_are_refused_when_the_queue_is_full():
    bench = BrokerBench(queue_max=1)
    bench.request("one", 1)
    bench.request("two", 1)
    assert [final.status for final in bench.finals("two")] == [Status.OVERLOADED]


# --- services -------------------------------------------------------------------------------------
@older
def test_a_service_beyond_the_limit_exists_until_its_requests_have_ended(version):
    bench = BrokerBench(services_max=1, service_grace_s=5.0, service_ttl_s=60.0)
    bench.worker("w")
    bench.client("c", version)
    ask(bench, "c", [b"a"], service=b"other")
    assert list(bench.unread) == ["c"]
    assert set(bench.broker.services) == {b"echo", b"other"}
    bench.keep_alive(5.5, "w")
    assert set(bench.broker.services) == {b"echo"}
    settle_and_check(bench)
    ask(bench, "c", [b"b"])
    reply_to(bench, "w")
    assert replies(bench, "c") == [b"b"]


@older
def test_a_worker_may_register_for_a_service_beyond_the_limit(version):
    bench = BrokerBench(services_max=1)
    bench.worker("w")
    bench.client("c", version)
    ask(bench, "c", [b"a"], service=b"other")
    bench.worker("v", b"other", version=version)
    reply_to(bench, "v")
    assert replies(bench, "c") == [b"a"]
    settle_and_check(bench)


@older
def test_clients_are_resumed_when_the_number_of_services_falls_to_the_limit(version):
    bench = BrokerBench(services_max=2, service_grace_s=300.0, service_ttl_s=5.0)
    bench.worker("w")
    bench.worker("v", b"second")
    names = [f"c{n}" for n in range(3)]
    for name in names:
        bench.client(name, version)
        ask(bench, name, [b"x"], service=name.encode())
    bench.lose("v")
    bench.keep_alive(20.0, "w")
    assert list(bench.unread) == names, "there is one service more than there may be"
    bench.lose("c1")
    bench.lose("c2")
    bench.keep_alive(20.0, "w")
    assert not bench.unread


@older
def test_later_requests_for_a_new_service_do_not_delay_its_first_client(version):
    bench = BrokerBench(services_max=1, service_grace_s=5.0, service_ttl_s=7.0)
    bench.worker("w")
    bench.client("c", version)
    ask(bench, "c", [b"x"], service=b"other")
    for n in range(10):
        bench.request("busy", n, service=b"other")
        bench.keep_alive(1.0, "w")
    assert not bench.unread
    assert b"other" in bench.broker.services


def request_new_services(bench: BrokerBench, client: str, count: int) -> None:
    """Send many requests of a client in one read, each for a new service."""
    encode = bench.dialect_of(client).encode
    names = [b"%s-%d" % (client.encode(), n) for n in range(count)]
    bench.feed(Received(client, [encode(ClientRequest(name, [name])) for name in names]))


@older
def test_the_number_of_new_services_per_read_is_limited(version):
    bench = BrokerBench(services_max=2, service_grace_s=1.0, service_ttl_s=1.0)
    bench.worker("w")
    for client in ("c", "d"):
        bench.client(client, version)
        request_new_services(bench, client, 100)
    ask(bench, "c", [b"last"])
    assert list(bench.unread) == ["c", "d"]
    give_up_at = bench.now + 20.0
    while bench.unread:
        assert len(bench.broker.services) <= 2 + 2 * 16
        bench.keep_alive(0.5, "w")
        assert bench.now < give_up_at, "some are never taken up"
    assert len(bench.noted("accepted")) == 201
    reply_to(bench, "w")
    assert replies(bench, "c") == [b"last"]
    assert len([each for each in bench.warnings if each.kind == "pushback"]) < 30


@older
def test_unaccepted_requests_of_a_lost_client_are_dropped(version):
    bench = BrokerBench(services_max=1, service_grace_s=1.0)
    bench.worker("w")
    bench.client("c", version)
    request_new_services(bench, "c", 100)
    bench.lose("c")
    bench.keep_alive(2.0, "w")
    assert len(bench.noted("accepted")) == 16
    settle_and_check(bench)


@older
def test_a_draining_broker_refuses_unaccepted_requests(version):
    bench = BrokerBench(services_max=1, service_grace_s=1.0)
    bench.worker("w")
    bench.client("c", version)
    request_new_services(bench, "c", 100)
    bench.drain()
    assert not bench.unread
    refused = [each for each in bench.warnings if "the broker is shutting down" in each.text]
    assert len(refused) == 84
    bench.keep_alive(2.0, "w")
    assert bench.stopped


# --- lost clients and draining --------------------------------------------------------------------
def overloaded(version: str) -> BrokerBench:
    """Return a broker that has stopped reading from four clients: "own", "queue" and "service" for
    one reason each, "all" for all three."""
    bench = BrokerBench(client_pending_max=2, queue_max=3, services_max=2)
    bench.worker("w")
    bench.worker("v", b"quick")
    for name in ("own", "queue", "service", "all"):
        bench.client(name, version)
    ask(bench, "own", numbered(3), service=b"quick")
    ask(bench, "queue", [b"1"])
    ask(bench, "all", numbered(2))
    ask(bench, "queue", numbered(2))
    ask(bench, "service", [b"1"], service=b"new")
    ask(bench, "all", numbered(3), service=b"newer")
    assert set(bench.unread) == {"own", "queue", "service", "all"}
    return bench


@older
def test_the_loss_of_paused_clients_leaves_no_state(version):
    bench = overloaded(version)
    for name in ("all", "service", "own", "queue"):
        bench.lose(name)
    bench.keep_alive(0.5, "w", "v")
    assert set(bench.broker.services) == {b"echo", b"quick"}
    settle_and_check(bench)


@older
def test_a_paused_client_that_sends_a_malformed_message_leaves_no_state(version):
    bench = overloaded(version)
    for name in ("own", "queue", "service", "all"):
        bench.feed(Received(name, [[b"garbage"]]))
    assert set(bench.disconnected) == {"own", "queue", "service", "all"}
    bench.keep_alive(0.5, "w", "v")
    settle_and_check(bench)


@older
def test_a_draining_broker_resumes_all_clients_and_disconnects_them(version):
    """Clients notice by the loss of their connections that the broker refuses requests."""
    bench = overloaded(version)
    bench.drain()
    assert not bench.unread
    ask(bench, "own", numbered(5), service=b"quick")
    assert not bench.unread
    bench.keep_alive(31.0, "w", "v")
    assert bench.stopped
    assert {"own", "queue", "service", "all"} <= set(bench.disconnected)


@older
def test_a_broker_that_steps_down_leaves_no_client_paused(version):
    bench = overloaded(version)
    for effect in bench.broker.step_down("another one serves", bench.now):
        bench.perform(effect)
    assert not bench.unread
    assert bench.broker.snapshot().unread == 0
    bench.advance(100.0)
    assert bench.broker.snapshot().timers == 0


@older
def test_the_loss_of_a_client_of_0_3_makes_room_for_older_ones(version):
    bench = BrokerBench(queue_max=3)
    bench.client("new")
    ask(bench, "new", numbered(4))
    assert [final.status for final in bench.finals("new")] == [Status.OVERLOADED]
    bench.client("old", version)
    ask(bench, "old", numbered(2))
    assert list(bench.unread) == ["old"]
    bench.feed(PeerLost("new", "reset"))
    assert not bench.unread
