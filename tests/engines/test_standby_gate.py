"""The broker of a pair behind its gate: accepted connections, votes, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker import BrokerBench

from requite.engine import Received, RightsChanged, Wake
from requite.pair.standby_gate import NOT_ACTIVE, StandbyGate, as_facts
from requite.principal import Principal, Quota, Rights
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.wire import (
    ClientHeartbeat,
    ClientRequest,
    Disconnect,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerRequest,
)
from requite.request import Status

NOBODY_YET = PairView(PairRole.BACKUP, State.BACKUP, 0, None, None, False, False)


class Partner:
    """A pair whose state the test sets. As in the Guide, a vote counts while the peer is silent."""

    def __init__(self) -> None:
        self.view = NOBODY_YET
        self.votes = 0
        self.set_state(State.PASSIVE)

    def set_state(self, state: State, *, silent: bool = False) -> None:
        serves = state is State.ACTIVE
        self.view = replace(self.view, state=state, serves=serves, peer_is_silent=silent)

    @property
    def serves(self) -> bool:
        return self.view.serves

    def vote(self) -> bool:
        self.votes += 1
        if self.view.peer_is_silent and self.view.state is not State.BACKUP:
            self.set_state(State.ACTIVE, silent=True)
        return self.serves


class Bench(BrokerBench):
    """A broker behind a gate."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.partner = Partner()
        self.inner = self.broker
        self.gate = StandbyGate(self.inner, self.partner)
        self.broker: Any = self.gate

    def set_state(self, state: State, *, silent: bool = False) -> None:
        """Change the state of the pair, and wake the gate."""
        self.partner.set_state(state, silent=silent)
        self.freeze(0.0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def statuses(bench: Bench, client: str) -> list[int]:
    return [final.status for final in bench.finals(client)]


# --- accepted connections -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "silent", "open_for"),
    [
        (State.PRIMARY, False, False),
        (State.PRIMARY, True, True),
        (State.BACKUP, True, False),  # it has never heard the primary, so votes do not count
        (State.ACTIVE, False, True),
        (State.ACTIVE, True, True),
        (State.PASSIVE, False, False),
        (State.PASSIVE, True, True),
        (State.RESIGNED, False, False),
        (State.FAILED, True, False),
    ],
)
def test_connections_are_accepted_if_the_server_may_serve(
    bench: Bench, state: State, silent: bool, open_for: bool
) -> None:
    bench.set_state(state, silent=silent)
    assert bench.gate.lets_in() is open_for


# --- votes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_the_first_request_is_the_vote_and_is_served(bench: Bench, version: str) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.worker("w", version=version)
    dialect = bench.client("c", version)
    assert bench.sent("w", WorkerRequest) == []
    bench.feed(Received("c", [dialect.encode(ClientRequest(b"echo", [b"x"], 1, 0, 0, b""))]))
    assert bench.partner.votes == 1
    assert [request.body for request in bench.requests("w")] == [[b"x"]]
    bench.final("w")
    assert [final.body for final in bench.finals("c")] == [[b"y"]]


def test_all_requests_that_arrive_with_the_vote_are_served(bench: Bench) -> None:
    """A client that has lost the other server resends all its requests in one read."""
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.worker("w", capacity=100)
    dialect = bench.client("c")
    bench.feed(Received("c", [dialect.encode(ClientHeartbeat(1000))]))
    asked = [dialect.encode(ClientRequest(b"echo", [b"x"], n, 0, 0, b"")) for n in range(100)]
    bench.feed(Received("c", asked))
    assert bench.partner.votes == 1
    assert len(bench.requests("w")) == 100


def test_waiting_workers_get_one_heartbeat_and_are_registered_later(bench: Bench) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.worker("w")
    for _ in range(50):
        bench.say("w", WorkerHeartbeat, 1000)
    assert bench.sent("w") == [WorkerHeartbeat(1000)]
    assert bench.inner.snapshot().workers == ()
    bench.set_state(State.ACTIVE)
    assert len(bench.inner.snapshot().workers) == 1
    assert bench.partner.votes == 0


def test_an_mmi_service_query_is_a_vote(bench: Bench) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.request("c", 1, b"echo", service=b"mmi.service")
    assert bench.partner.votes == 1
    assert [final.body for final in bench.finals("c")] == [[b"404"]]


@pytest.mark.parametrize("service", [b"mmi.stats", b"mmi.pair", b"mmi.other"])
def test_other_mmi_queries_are_no_votes(bench: Bench, service: bytes) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.request("c", 1, service=service)
    assert bench.partner.votes == 0
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]
    assert bench.disconnected == {"c": NOT_ACTIVE}


@pytest.mark.parametrize(
    ("service", "body", "votes"),
    [
        (b"echo", b"x", 1),
        (b"pay", b"x", 0),
        (b"mmi.service", b"echo", 1),
        (b"mmi.service", b"pay", 0),
        (b"titanic.request", b"echo", 0),
    ],
)
def test_a_request_without_the_right_is_no_vote(
    bench: Bench, service: bytes, body: bytes, votes: int
) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.client("c", principal=Principal("shop", Rights(call=("echo",))))
    bench.request("c", 1, body, service=service)
    assert bench.partner.votes == votes


def test_a_waiting_worker_cannot_fill_the_memory(bench: Bench) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.worker("w")
    bench.say("w", WorkerFinal, b"", [bytes(1 << 20)], 1, 0)
    assert set(bench.disconnected) == {"w"}


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_a_vote_that_does_not_count_is_refused(bench: Bench, version: str) -> None:
    """The other server has been heard in the meantime. MDP 0.3 can report that the request has not
    run."""
    bench.partner.set_state(State.PASSIVE, silent=True)
    dialect = bench.client("c", version)
    bench.partner.set_state(State.PASSIVE)
    bench.feed(Received("c", [dialect.encode(ClientRequest(b"echo", [b"x"], 7, 0, 0, b""))]))
    answers = [(final.request_id, final.status, final.attempts) for final in bench.finals("c")]
    assert answers == ([(7, Status.SHUTTING_DOWN, 0)] if version == "0.3" else [])
    assert bench.disconnected == {"c": NOT_ACTIVE}


def test_heartbeats_and_malformed_messages_are_no_votes(bench: Bench) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    dialect = bench.client("c")
    bench.feed(Received("c", [dialect.encode(ClientHeartbeat(1000))]))
    bench.join("noise")
    bench.feed(Received("noise", []))  # part of a message
    bench.feed(Received("noise", [[b"\xff" * 9]]))
    bench.client("broken")
    bench.feed(Received("broken", [[b"MDPC03\x01"]]))
    bench.feed(Received("stranger", [[b"MDPC03\x01"]]))  # already disconnected
    assert bench.partner.votes == 0
    assert set(bench.disconnected) == {"noise", "broken"}


def test_a_lost_waiting_peer_is_not_registered(bench: Bench) -> None:
    bench.partner.set_state(State.PASSIVE, silent=True)
    bench.worker("w")
    bench.lose("w")
    bench.set_state(State.ACTIVE)
    assert bench.inner.snapshot().workers == ()


def test_waiting_peers_are_disconnected_when_the_other_server_is_heard_again(bench: Bench) -> None:
    bench.set_state(State.PASSIVE, silent=True)
    bench.worker("w")
    bench.join("idle")
    bench.freeze(0.0)
    assert bench.disconnected == {}
    bench.set_state(State.PASSIVE)
    bench.join("late")  # accepted before, but its handshake ended only now
    assert bench.disconnected == dict.fromkeys(("w", "idle", "late"), NOT_ACTIVE)


# --- stepping down --------------------------------------------------------------------------------
def test_stepping_down_refuses_all_requests_and_disconnects_all_peers(bench: Bench) -> None:
    bench.set_state(State.ACTIVE)
    bench.worker("w", lease_ms=1000)
    bench.request("c", 1)
    bench.request("c", 2)
    old = bench.client("old", "0.2")
    bench.feed(Received("old", [old.encode(ClientRequest(b"echo", [b"x"], 0, 0, 0, b""))]))
    bench.set_state(State.PASSIVE)
    answers = sorted((each.request_id, each.status, each.attempts) for each in bench.finals("c"))
    assert answers == [(1, Status.SHUTTING_DOWN, 1), (2, Status.SHUTTING_DOWN, 0)]
    assert bench.finals("old") == []
    assert bench.sent("w")[-1] == Disconnect()
    assert bench.disconnected == dict.fromkeys(("w", "c", "old"), NOT_ACTIVE)
    after = bench.inner.snapshot()
    assert (after.pending, after.clients, after.workers, after.timers) == (0, 0, (), 1)
    bench.advance(120.0)
    assert bench.inner.snapshot().timers == 0  # the service has been dropped, too


def test_no_reply_is_sent_after_stepping_down(bench: Bench) -> None:
    """A reply in flight reaches no client, even of a registered worker."""
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.set_state(State.PASSIVE)  # the gate has not been woken
    bench.final("w")
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]


def test_a_server_that_becomes_active_again_serves_again(bench: Bench) -> None:
    for body in (b"one", b"two"):
        bench.set_state(State.ACTIVE)
        bench.worker("w-" + body.decode())
        bench.request("c-" + body.decode(), 1, body)
        assert bench.requests("w-" + body.decode())[-1].body == [body]
        bench.set_state(State.PASSIVE)
    assert bench.gate.snapshot().pending == 0


# --- after a pause of the process -----------------------------------------------------------------
def test_inputs_after_a_pause_are_held_until_the_pair_is_certain(bench: Bench) -> None:
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.view = replace(bench.partner.view, serves=False)  # the pair's turn is yet to come
    bench.say("w", WorkerHeartbeat, 1000)
    bench.partner.set_state(State.SUSPENDED)
    bench.final("w")
    bench.request("c", 2)
    assert (bench.finals("c"), bench.gate.deadline()) == ([], None)
    assert bench.gate.lets_in()
    bench.set_state(State.ACTIVE)
    assert statuses(bench, "c") == [Status.OK]
    assert len(bench.requests("w")) == 2
    assert bench.disconnected == {}


def test_held_inputs_are_dropped_if_the_other_server_has_taken_over(bench: Bench) -> None:
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.set_state(State.SUSPENDED)
    bench.final("w")
    bench.join("stranger")
    bench.set_state(State.PASSIVE)
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]
    assert set(bench.disconnected) == {"w", "c", "stranger"}


def test_a_request_after_a_pause_is_a_vote(bench: Bench) -> None:
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.set_state(State.SUSPENDED)
    bench.final("w")
    assert bench.partner.votes == 0  # messages of workers are no votes
    bench.partner.set_state(State.SUSPENDED, silent=True)
    bench.request("c", 2)
    assert bench.partner.votes == 1
    assert statuses(bench, "c") == [Status.OK]


@pytest.mark.parametrize("is_early", [True, False])
def test_the_first_request_of_a_client_after_a_pause_is_a_vote(
    bench: Bench, is_early: bool
) -> None:
    """All other clients may have disconnected during the pause."""
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    if is_early:
        bench.client("c")
    bench.partner.set_state(State.SUSPENDED, silent=True)
    bench.worker("late")
    assert bench.partner.votes == 0
    bench.request("c", 1)
    assert bench.partner.votes == 1
    assert [request.body for request in bench.requests("w")] == [[b"x"]]


def test_the_number_of_held_inputs_is_limited(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.pair.standby_gate._HELD_MAX", 3)
    bench.set_state(State.ACTIVE)
    bench.worker("w")
    bench.partner.set_state(State.SUSPENDED)
    for _ in range(3):
        bench.say("w", WorkerHeartbeat, 1000)
    assert bench.disconnected == {}
    bench.say("w", WorkerHeartbeat, 1000)
    assert bench.disconnected == {"w": NOT_ACTIVE}


# --- draining and management ----------------------------------------------------------------------
@pytest.mark.parametrize("state", [State.PASSIVE, State.ACTIVE, State.SUSPENDED])
def test_a_drain_is_possible_in_any_state(bench: Bench, state: State) -> None:
    bench.set_state(State.ACTIVE)
    bench.set_state(state, silent=True)
    bench.worker("w")
    bench.drain()
    assert bench.stopped
    if state is not State.SUSPENDED:
        assert "w" in bench.disconnected


def test_mmi_pair_and_mmi_stats_show_the_view_of_the_pair() -> None:
    bench = BrokerBench()
    bench.broker.standing = lambda: as_facts(NOBODY_YET)
    for number, name in enumerate((b"mmi.pair", b"mmi.stats")):
        bench.request("c", number, service=name)
    pair, stats = (json.loads(final.body[0]) for final in bench.finals("c"))
    assert pair == stats["pair"]
    assert pair == {
        "role": "backup",
        "state": "backup",
        "epoch": 0,
        "serves": False,
        "peer": None,
        "peer_is_silent": False,
        "heard_s_ago": None,
    }
    heard = replace(NOBODY_YET, peer_state=State.ACTIVE, heard_s_ago=0.12345)
    assert as_facts(heard) | {"peer": "active", "heard_s_ago": 0.123} == as_facts(heard)


def test_a_broker_without_a_pair_does_not_implement_mmi_pair() -> None:
    bench = BrokerBench()
    bench.request("c", 1, service=b"mmi.pair")
    bench.request("c", 2, service=b"mmi.stats")
    alone, stats = (final.body[0] for final in bench.finals("c"))
    assert alone == b"501"
    assert "pair" not in json.loads(stats)


def test_a_paused_server_does_not_report_its_peer_as_silent() -> None:
    """Heartbeats of the other server are still unread; accepting clients now would mislead them."""
    half = BinaryStarPeer(BinaryStarPolicy(PairRole.PRIMARY, 1.0), instance=1)
    half.handle([Wake()], 0.0)
    assert not half.view(10.0).peer_is_silent
    for quarter in range(9):
        half.handle([Wake()], 10.0 + quarter / 4)
    assert half.view(12.0).peer_is_silent


def test_a_quota_that_changes_while_the_server_is_passive_counts(bench: Bench) -> None:
    shop = Principal("shop", Rights(call=("*",)), Quota(requests=1000))
    bench.set_state(State.ACTIVE)
    bench.client("c", principal=shop)
    bench.request("c", 1)
    bench.set_state(State.PASSIVE)
    shop.grant(shop.rights, Quota(requests=2))
    bench.feed(RightsChanged())
    bench.set_state(State.ACTIVE)
    bench.client("d", principal=shop)
    for number in range(1, 6):
        bench.request("d", number)
    assert statuses(bench, "d") == [Status.OVERLOADED] * 3


def test_a_quota_that_changes_before_the_other_server_takes_over_counts(bench: Bench) -> None:
    shop = Principal("shop", Rights(call=("*",)), Quota(requests=1000))
    bench.set_state(State.ACTIVE)
    bench.client("c", principal=shop)
    bench.request("c", 1)
    bench.partner.set_state(State.SUSPENDED)
    shop.grant(shop.rights, Quota(requests=2))
    bench.feed(RightsChanged())
    bench.set_state(State.PASSIVE)
    bench.set_state(State.ACTIVE)
    bench.client("d", principal=shop)
    for number in range(1, 6):
        bench.request("d", number)
    assert statuses(bench, "d") == [Status.OVERLOADED] * 3
