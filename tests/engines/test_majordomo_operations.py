"""Operators at a running broker: kick, pause, resume, purge, drain (docs/protocols/mdp-0.3.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.chronicle import NO_CALL, Chronicle, Kind
from requite.principal import INSIDE, Principal, Rights
from requite.protocols.majordomo.wire import ClientRequest, Disconnect
from requite.request import Status

OPS = Principal("ops", Rights(admin=("kick", "pause", "purge", "drain")))
SHOP = Principal("shop", Rights(call=("*",), serve=("*",)))


def ask(bench: BrokerBench, name: str, *body: bytes, who: str = "ops") -> Any:
    """Send a management request; return its answer."""
    if who not in bench.commands:
        bench.client(who, principal=OPS)
    number = len(bench.finals(who)) + 1
    bench.say(who, ClientRequest, b"mmi." + name.encode(), list(body), number)
    final = bench.finals(who)[-1]
    assert final.status == Status.OK, final
    return json.loads(final.body[0])


def state_of(bench: BrokerBench) -> Any:
    return bench.broker.snapshot().services[0]


# --- rights and journal ---------------------------------------------------------------------------
@requirement("mdp03:ops-right", "mdp03:ops-journaled")
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("kick", "kick"),
        ("pause", "pause"),
        ("resume", "pause"),
        ("purge", "purge"),
        ("drain", "drain"),
    ],
)
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_each_act_needs_its_right_and_leaves_one_row(name: str, right: str, version: str) -> None:
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("w")
    others = tuple({"stats", "kick", "pause", "purge", "drain"} - {right})
    bench.client("other", version, Principal("other", Rights(admin=others, call=("*",))))
    bench.client("ops", version, Principal("ops", Rights(admin=(right,))))
    subject = b"w".hex().encode() if name == "kick" else b"echo"
    for who in ("other", "ops"):
        bench.request(who, 1, subject, service=f"mmi.{name}".encode())
    denied, done = bench.finals("other")[0], bench.finals("ops")[0]
    if version == "0.3":
        assert denied.status == Status.DENIED
        assert f"no right to admin '{right}'".encode() in denied.body[0]
    else:
        assert denied.body == [b"403"]
    assert done.body[0].startswith(b"{")
    rows = [row for row in chronicle.event_rows if row.kind in (Kind.ADMITTED, Kind.DENIED)]
    assert [(row.kind, row.worker, row.error, row.service) for row in rows] == [
        (Kind.DENIED, b"other", "admin", right.encode()),
        (Kind.ADMITTED, b"ops", "admin", right.encode()),
    ]
    assert f"mmi.{name} {subject.decode()}: " in rows[1].reason


@requirement("mdp03:ops-journaled")
def test_a_retry_in_a_titanic_leaves_a_row_each_time() -> None:
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.worker("titanic", b"titanic.retry", capacity=9, principal=INSIDE)
    bench.client("shop", principal=SHOP)
    bench.client("ops", principal=Principal("ops", Rights(admin=("titanic",))))
    for who in ("shop", "ops", "ops", "nobody"):
        bench.request(who, 1 + len(bench.requests("titanic")), b"ticket", service=b"titanic.retry")
    assert len(bench.requests("titanic")) == 3
    rows = [row for row in chronicle.event_rows if row.error == "admin"]
    assert {row.service for row in rows} == {b"titanic"}
    assert [(row.kind, row.worker) for row in rows] == [
        (Kind.DENIED, b"shop"),
        (Kind.ADMITTED, b"ops"),
        (Kind.ADMITTED, b"ops"),
        (Kind.ADMITTED, b""),
    ]
    assert rows[1].reason == "titanic.retry ticket"
    assert [each.text for each in bench.warnings if each.kind == "operator"][-2:] == [
        "ops: titanic.retry ticket",
        "anonymous: titanic.retry ticket",
    ]


@requirement("mdp03:ops-journaled")
@pytest.mark.parametrize("name", [b"mmi.pause", b"titanic.retry"])
def test_a_part_of_the_process_acts_with_the_rights_of_the_user_that_it_names(name: bytes) -> None:
    users = {"ops": Principal("ops", Rights(admin=("pause", "titanic"))), "shop": SHOP}
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.broker.authorizer.principal_named = users.__getitem__
    bench.worker("w", principal=SHOP)
    bench.worker("titanic", b"titanic.retry", principal=INSIDE)
    bench.client("page", principal=INSIDE)
    for number, user in enumerate((b"shop", b"ops"), 1):
        told = (number, 0, 0, b"", NO_CALL, user)
        bench.say("page", ClientRequest, name, [b"echo"], *told)
    assert bench.finals("page")[0].status == Status.DENIED
    assert bench.requests("titanic") or bench.finals("page")[1].body == [b'{"queued":0}']
    rows = [row for row in chronicle.event_rows if row.error == "admin"]
    assert [(row.kind, row.worker) for row in rows] == [
        (Kind.DENIED, b"shop"),
        (Kind.ADMITTED, b"ops"),
    ]
    assert bench.broker.census().denied == {"admin": 1}


@requirement("mdp03:ops-right")
def test_a_broker_that_does_not_know_its_peers_lets_everybody_operate_it() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("c")
    assert ask(bench, "pause", b"echo", who="c") == {"queued": 0}


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("kick", b"00ff"),
        ("kick", b"not hex"),
        ("kick", b""),
        ("kick", b"user:"),
        ("kick", b"user:nobody"),
        ("pause", b"absent"),
        ("resume", b""),
        ("purge", b"\xff"),
    ],
)
def test_an_unknown_peer_or_service_is_404(name: str, subject: bytes) -> None:
    bench = BrokerBench()
    bench.worker("w", principal=SHOP)
    bench.client("ops", "0.2", OPS)
    bench.request("ops", 1, subject, service=f"mmi.{name}".encode())
    assert bench.finals("ops")[0].body == [b"404"]
    assert not bench.disconnected


def test_other_names_are_still_501() -> None:
    bench = BrokerBench()
    bench.client("c")
    bench.request("c", 1, service=b"mmi.ban")
    assert bench.finals("c")[0].body == [b"501"]


# --- kick -----------------------------------------------------------------------------------------
@requirement("mdp03:ops-kick")
@pytest.mark.parametrize("name", [b"w1".hex(), b"instance".hex(), b"instance".hex().upper()])
def test_a_kicked_worker_hears_why_and_its_requests_run_elsewhere(name: str) -> None:
    bench = BrokerBench()
    bench.worker("w1", instance=b"instance")
    bench.request("c", 1)
    bench.worker("w2")
    bench.request("c", 2)
    assert ask(bench, "kick", name.encode(), b"it is", b"old") == {"kicked": 1}
    assert list(bench.disconnected) == ["w1"]
    farewell = bench.sent("w1")[-1]
    assert isinstance(farewell, Disconnect)
    assert farewell.reason == b"ops kicked it: it is old"
    bench.final("w2")
    bench.final("w2")
    assert [final.status for final in bench.finals("c")] == [Status.OK, Status.OK]
    bench.assert_idle()


@requirement("mdp03:ops-kick")
def test_workers_that_are_kicked_together_do_not_get_each_others_requests() -> None:
    """Each would count as one more attempt, and the request end as POISONED."""
    bench = BrokerBench(attempts_max=2)
    for worker in ("w1", "w2", "w3"):
        bench.worker(worker, principal=SHOP)
    bench.request("c", 1)
    assert ask(bench, "kick", b"user:shop") == {"kicked": 3}
    assert sum(len(bench.requests(worker)) for worker in ("w1", "w2", "w3")) == 1
    bench.worker("w4", principal=SHOP)  # a kick is no ban
    bench.final("w4")
    assert [(final.status, final.attempts) for final in bench.finals("c")] == [(Status.OK, 2)]


@requirement("mdp03:ops-kick")
def test_all_connections_of_a_principal_end_and_no_others() -> None:
    bench = BrokerBench()
    bench.worker("w", b"pay")
    bench.client("shop1", principal=SHOP)
    bench.client("shop2", "0.2", SHOP)
    bench.join("newcomer", SHOP)
    for client in ("shop1", "shop2", "other"):
        bench.request(client, 1, service=b"pay")
    assert ask(bench, "kick", b"user:shop") == {"kicked": 3}
    assert set(bench.disconnected) == {"shop1", "shop2", "newcomer"}
    assert "ops kicked it: no reason" in bench.disconnected["shop1"]
    assert bench.broker.snapshot().pending == 1  # that of `other`, which stays
    for peer in ("shop1", "shop2", "newcomer"):
        bench.lose(peer)
    bench.final("w")
    bench.final("w")
    assert len(bench.finals("other")) == 1
    bench.assert_idle()


@requirement("mdp03:ops-kick")
def test_an_operator_keeps_its_own_connection_and_titanic_its_place() -> None:
    bench = BrokerBench()
    bench.worker("titanic", b"titanic.request", principal=INSIDE)
    bench.client("ops", principal=OPS)
    bench.client("ops2", principal=OPS)
    assert ask(bench, "kick", b"user:ops") == {"kicked": 1}
    bench.request("ops", 7, b"titanic".hex().encode(), service=b"mmi.kick")
    assert bench.finals("ops")[-1].body == [b"404"]
    assert list(bench.disconnected) == ["ops2"]


# --- pause and resume -----------------------------------------------------------------------------
@requirement("mdp03:ops-pause-holds")
def test_a_paused_service_queues_and_running_requests_finish() -> None:
    bench = BrokerBench()
    bench.worker("w1")
    bench.request("c", 1)
    assert ask(bench, "pause", b"echo") == {"queued": 0}
    bench.request("c", 2)
    bench.final("w1")
    bench.worker("w2")
    bench.request("c", 3)
    assert [final.request_id for final in bench.finals("c")] == [1]
    assert len(bench.requests("w1")) == 1
    assert bench.requests("w2") == []
    state = state_of(bench)
    assert (state.paused, state.queued, state.waiting) == (True, 2, 2)


@requirement("mdp03:ops-pause-holds")
def test_limits_and_timeouts_apply_to_a_paused_service() -> None:
    bench = BrokerBench(queue_max=2)
    bench.worker("w")
    ask(bench, "pause", b"echo")
    bench.request("c", 1, timeout_ms=500)
    bench.request("c", 2)
    bench.request("c", 3)
    assert [(f.request_id, f.status) for f in bench.finals("c")] == [(3, Status.OVERLOADED)]
    bench.keep_alive(1, "w")
    final = bench.finals("c")[-1]
    assert (final.request_id, final.status, final.attempts) == (1, Status.EXPIRED, 0)


@requirement("mdp03:ops-pause-holds")
def test_the_grace_period_does_not_end_requests_of_a_paused_service() -> None:
    bench = BrokerBench(service_grace_s=1, service_ttl_s=1)
    bench.request("c", 1)  # its service has never had a worker
    ask(bench, "pause", b"echo")
    bench.request("c", 2, timeout_ms=60_000)
    bench.advance(30)
    assert bench.finals("c") == []
    ask(bench, "resume", b"echo")
    bench.advance(0.9)
    assert bench.finals("c") == []
    bench.advance(0.2)
    assert [final.status for final in bench.finals("c")] == [Status.NO_SERVICE] * 2
    bench.assert_idle()


@requirement("mdp03:ops-pause-holds")
def test_a_pause_lasts_until_it_is_resumed_even_without_workers_and_requests() -> None:
    bench = BrokerBench(service_ttl_s=1)
    bench.request("c", 1, timeout_ms=1)
    ask(bench, "pause", b"echo")
    bench.advance(60)
    bench.worker("w")
    bench.request("c", 2)
    assert bench.requests("w") == []
    ask(bench, "resume", b"echo")
    assert len(bench.requests("w")) == 1
    bench.lose("w")
    bench.lose("c")
    bench.advance(2)
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:ops-pause-holds")
def test_a_redelivered_request_waits_too() -> None:
    bench = BrokerBench()
    bench.worker("w1")
    bench.worker("w2")
    bench.request("c", 1)
    ask(bench, "pause", b"echo")
    bench.lose("w1")
    assert bench.requests("w2") == []
    ask(bench, "resume", b"echo")
    assert len(bench.requests("w2")) == 1


@requirement("mdp03:ops-pause-holds")
def test_a_draining_broker_does_not_wait_for_a_paused_service_for_ever() -> None:
    bench = BrokerBench(drain_timeout_s=5)
    bench.worker("w")
    ask(bench, "pause", b"echo")
    bench.request("c", 1)
    bench.drain()
    bench.keep_alive(5.5, "w")
    assert [final.status for final in bench.finals("c")] == [Status.SHUTTING_DOWN]
    assert bench.stopped


@requirement("mdp03:ops-resume-order")
def test_resuming_keeps_the_order_of_each_client() -> None:
    bench = BrokerBench()
    bench.worker("w")
    ask(bench, "pause", b"echo")
    for number in range(1, 4):
        for client in ("c", "d"):
            bench.request(client, number, b"%s%d" % (client.encode(), number))
    assert ask(bench, "resume", b"echo") == {"queued": 6}
    bench.request("c", 4, b"c4")
    for _ in range(7):
        bench.final("w")
    order = [request.body[0] for request in bench.requests("w")]
    assert order == [b"c1", b"d1", b"c2", b"d2", b"c3", b"d3", b"c4"]
    assert ask(bench, "resume", b"echo") == {"queued": 0}


# --- purge ----------------------------------------------------------------------------------------
@requirement("mdp03:ops-purge-answers")
def test_each_queued_request_ends_once_and_running_ones_go_on() -> None:
    bench = BrokerBench()
    bench.worker("w1")
    for number in (1, 2, 3):
        bench.request("c", number)
    assert ask(bench, "purge", b"echo") == {"purged": 2}
    finals = bench.finals("c")
    assert [(f.request_id, f.status, f.attempts) for f in finals] == [
        (2, Status.CANCELLED, 0),
        (3, Status.CANCELLED, 0),
    ]
    assert finals[0].body == [b"ops purged the queue of echo"]
    bench.final("w1")
    assert bench.finals("c")[-1].status == Status.OK
    assert (state_of(bench).cancelled, state_of(bench).failed) == (2, 0)
    bench.assert_idle()


@requirement("mdp03:ops-purge-answers")
def test_a_purged_request_that_has_run_says_so() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    bench.lose("w")
    ask(bench, "purge", b"echo")
    assert [(f.status, f.attempts) for f in bench.finals("c")] == [(Status.CANCELLED, 1)]


@requirement("mdp03:ops-purge-answers")
@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("tell", [False, True])
def test_older_clients_are_told_as_of_other_failures(version: str, tell: bool) -> None:
    bench = BrokerBench(tell_old_clients=tell)
    bench.client("c", version)
    bench.request("c", 1)  # nobody serves it: the service ends with its request
    assert ask(bench, "purge", b"echo") == {"purged": 1}
    bodies = [final.body[0] for final in bench.finals("c")]
    assert bodies == ([b"requite-error CANCELLED"] if tell else [])
    assert bench.broker.snapshot().services == ()


@requirement("mdp03:ops-purge-answers")
def test_a_client_that_is_not_read_from_is_read_again_after_a_purge() -> None:
    bench = BrokerBench(queue_max=1)
    bench.worker("w")
    ask(bench, "pause", b"echo")
    bench.client("c", "0.2")
    bench.request("c", 1)
    bench.request("c", 2)
    assert list(bench.unread) == ["c"]
    assert ask(bench, "purge", b"echo") == {"purged": 2}
    assert not bench.unread


# --- drain ----------------------------------------------------------------------------------------
@requirement("mdp03:ops-drain", "mdp03:client-drain")
def test_a_drained_broker_finishes_its_requests_and_ends() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.request("c", 1)
    assert ask(bench, "drain", b"") == {"draining": 1}
    bench.request("c", 2)
    assert [final.status for final in bench.finals("c")] == [Status.SHUTTING_DOWN]
    assert not bench.broker.stopped
    bench.final("w")
    assert bench.finals("c")[-1].status == Status.OK
    assert bench.broker.stopped


@requirement("mdp03:ops-drain")
def test_a_server_that_drains_by_itself_is_asked_to() -> None:
    bench = BrokerBench()
    wanted: list[str] = []
    bench.broker.drain_wanted = lambda: wanted.append("drain")
    assert ask(bench, "drain", b"") == {"draining": 0}
    assert wanted == ["drain"]
    assert not bench.broker.draining
