"""The broker of a pair behind its gate: accepted connections, votes, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker import BrokerBench

from requite.engine import Received, Wake
from requite.pair.standby_gate import NOT_ACTIVE, StandbyGate, as_facts
from requite.protocols.binarystar.peer import BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView
from requite.protocols.majordomo.wire import (
    ClientHeartbeat,
    ClientRequest,
    Disconnect,
    WorkerHeartbeat,
    WorkerRequest,
)
from requite.request import Status

NOBODY_YET = PairView(PairRole.BACKUP, State.BACKUP, 0, None, None, False, False)


class Partner:
    """A pair as the test wants it. A vote counts as the Guide says: while the peer is silent."""

    def __init__(self) -> None:
        self.view = NOBODY_YET
        self.votes = 0
        self.become(State.PASSIVE)

    def become(self, state: State, *, silent: bool = False) -> None:
        serves = state is State.ACTIVE
        self.view = replace(self.view, state=state, serves=serves, peer_is_silent=silent)

    @property
    def serves(self) -> bool:
        return self.view.serves

    def vote(self) -> bool:
        self.votes += 1
        if self.view.peer_is_silent and self.view.state is not State.BACKUP:
            self.become(State.ACTIVE, silent=True)
        return self.serves


class Bench(BrokerBench):
    """A broker behind a gate."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**policy)
        self.partner = Partner()
        self.inner = self.broker
        self.gate = StandbyGate(self.inner, self.partner)
        self.broker: Any = self.gate

    def become(self, state: State, *, silent: bool = False) -> None:
        """Change the pair, and wake the gate."""
        self.partner.become(state, silent=silent)
        self.freeze(0.0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def statuses(bench: Bench, client: str) -> list[int]:
    return [final.status for final in bench.finals(client)]


# --- who is let in --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("state", "silent", "open_for"),
    [
        (State.PRIMARY, False, False),
        (State.PRIMARY, True, True),
        (State.BACKUP, True, False),  # it has never heard the primary: votes do not count
        (State.ACTIVE, False, True),
        (State.ACTIVE, True, True),
        (State.PASSIVE, False, False),
        (State.PASSIVE, True, True),
        (State.RESIGNED, False, False),
        (State.FAILED, True, False),
    ],
)
def test_connections_are_taken_where_they_can_be_of_use(
    bench: Bench, state: State, silent: bool, open_for: bool
) -> None:
    bench.become(state, silent=silent)
    assert bench.gate.lets_in() is open_for


# --- votes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_the_first_request_is_the_vote_and_is_served(bench: Bench, version: str) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    bench.worker("w", version=version)
    dialect = bench.client("c", version)
    assert bench.sent("w", WorkerRequest) == []
    bench.feed(Received("c", [dialect.encode(ClientRequest(b"echo", [b"x"], 1, 0, 0, b""))]))
    assert bench.partner.votes == 1
    assert [request.body for request in bench.requests("w")] == [[b"x"]]
    bench.final("w")
    assert [final.body for final in bench.finals("c")] == [[b"y"]]


def test_all_that_comes_with_the_vote_is_served(bench: Bench) -> None:
    """A client that lost the other server sends all its requests again, in one piece."""
    bench.partner.become(State.PASSIVE, silent=True)
    bench.worker("w", capacity=100)
    dialect = bench.client("c")
    bench.feed(Received("c", [dialect.encode(ClientHeartbeat(1000))]))
    asked = [dialect.encode(ClientRequest(b"echo", [b"x"], n, 0, 0, b"")) for n in range(100)]
    bench.feed(Received("c", asked))
    assert bench.partner.votes == 1
    assert len(bench.requests("w")) == 100


def test_workers_that_wait_inside_are_answered_once_and_registered_later(bench: Bench) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    bench.worker("w")
    for _ in range(50):
        bench.say("w", WorkerHeartbeat, 1000)
    assert bench.sent("w") == [WorkerHeartbeat(1000)]
    assert bench.inner.snapshot().workers == ()
    bench.become(State.ACTIVE)
    assert len(bench.inner.snapshot().workers) == 1
    assert bench.partner.votes == 0


def test_who_asks_whether_somebody_serves_votes(bench: Bench) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    bench.request("c", 1, b"echo", service=b"mmi.service")
    assert bench.partner.votes == 1
    assert [final.body for final in bench.finals("c")] == [[b"404"]]


@pytest.mark.parametrize("service", [b"mmi.stats", b"mmi.pair", b"mmi.other"])
def test_who_asks_the_broker_about_itself_does_not_vote(bench: Bench, service: bytes) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    bench.request("c", 1, service=service)
    assert bench.partner.votes == 0
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]
    assert bench.disconnected == {"c": NOT_ACTIVE}


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_a_vote_that_does_not_count_is_refused(bench: Bench, version: str) -> None:
    """The other server was heard meanwhile. MDP 0.3 can say that the request has not run."""
    bench.partner.become(State.PASSIVE, silent=True)
    dialect = bench.client("c", version)
    bench.partner.become(State.PASSIVE)
    bench.feed(Received("c", [dialect.encode(ClientRequest(b"echo", [b"x"], 7, 0, 0, b""))]))
    told = [(final.request_id, final.status, final.attempts) for final in bench.finals("c")]
    assert told == ([(7, Status.SHUTTING_DOWN, 0)] if version == "0.3" else [])
    assert bench.disconnected == {"c": NOT_ACTIVE}


def test_heartbeats_and_garbage_do_not_vote(bench: Bench) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    dialect = bench.client("c")
    bench.feed(Received("c", [dialect.encode(ClientHeartbeat(1000))]))
    bench.join("noise")
    bench.feed(Received("noise", []))  # a part of a message
    bench.feed(Received("noise", [[b"\xff" * 9]]))
    bench.client("broken")
    bench.feed(Received("broken", [[b"MDPC03\x01"]]))
    bench.feed(Received("stranger", [[b"MDPC03\x01"]]))  # left meanwhile
    assert bench.partner.votes == 0
    assert set(bench.disconnected) == {"noise", "broken"}


def test_who_has_left_is_forgotten(bench: Bench) -> None:
    bench.partner.become(State.PASSIVE, silent=True)
    bench.worker("w")
    bench.lose("w")
    bench.become(State.ACTIVE)
    assert bench.inner.snapshot().workers == ()


def test_who_waits_inside_is_sent_away_when_the_other_server_is_heard_again(bench: Bench) -> None:
    bench.become(State.PASSIVE, silent=True)
    bench.worker("w")
    bench.join("idle")
    bench.freeze(0.0)
    assert bench.disconnected == {}
    bench.become(State.PASSIVE)
    bench.join("late")  # it was let in before, and only now has shaken hands
    assert bench.disconnected == dict.fromkeys(("w", "idle", "late"), NOT_ACTIVE)


# --- stepping down --------------------------------------------------------------------------------
def test_one_that_steps_down_gives_requests_back_and_sends_everybody_away(bench: Bench) -> None:
    bench.become(State.ACTIVE)
    bench.worker("w", lease_ms=1000)
    bench.request("c", 1)
    bench.request("c", 2)
    old = bench.client("old", "0.2")
    bench.feed(Received("old", [old.encode(ClientRequest(b"echo", [b"x"], 0, 0, 0, b""))]))
    bench.become(State.PASSIVE)
    told = sorted((each.request_id, each.status, each.attempts) for each in bench.finals("c"))
    assert told == [(1, Status.SHUTTING_DOWN, 1), (2, Status.SHUTTING_DOWN, 0)]
    assert bench.finals("old") == []
    assert bench.sent("w")[-1] == Disconnect()
    assert bench.disconnected == dict.fromkeys(("w", "c", "old"), NOT_ACTIVE)
    after = bench.inner.snapshot()
    assert (after.pending, after.clients, after.workers, after.timers) == (0, 0, (), 1)
    bench.advance(120.0)
    assert bench.inner.snapshot().timers == 0  # the service was forgotten, too


def test_nothing_is_answered_after_it(bench: Bench) -> None:
    """A reply in flight reaches no client, whatever is known of the worker."""
    bench.become(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.become(State.PASSIVE)  # nobody has told the gate
    bench.final("w")
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]


def test_it_serves_again_when_it_is_active_again(bench: Bench) -> None:
    for body in (b"one", b"two"):
        bench.become(State.ACTIVE)
        bench.worker("w-" + body.decode())
        bench.request("c-" + body.decode(), 1, body)
        assert bench.requests("w-" + body.decode())[-1].body == [body]
        bench.become(State.PASSIVE)
    assert bench.gate.snapshot().pending == 0


# --- a process that stood still -------------------------------------------------------------------
def test_what_comes_after_a_stop_waits_until_it_is_known_who_serves(bench: Bench) -> None:
    bench.become(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.view = replace(bench.partner.view, serves=False)  # its turn is yet to come
    bench.say("w", WorkerHeartbeat, 1000)
    bench.partner.become(State.SUSPENDED)
    bench.final("w")
    bench.request("c", 2)
    assert (bench.finals("c"), bench.gate.deadline()) == ([], None)
    assert bench.gate.lets_in()
    bench.become(State.ACTIVE)
    assert statuses(bench, "c") == [Status.OK]
    assert len(bench.requests("w")) == 2
    assert bench.disconnected == {}


def test_if_another_one_serves_it_steps_down_without_having_answered(bench: Bench) -> None:
    bench.become(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.become(State.SUSPENDED)
    bench.final("w")
    bench.join("stranger")
    bench.become(State.PASSIVE)
    assert statuses(bench, "c") == [Status.SHUTTING_DOWN]
    assert set(bench.disconnected) == {"w", "c", "stranger"}


def test_a_client_that_asks_meanwhile_votes(bench: Bench) -> None:
    bench.become(State.ACTIVE)
    bench.worker("w")
    bench.request("c", 1)
    bench.partner.become(State.SUSPENDED)
    bench.final("w")
    assert bench.partner.votes == 0  # what workers say is no vote
    bench.partner.become(State.SUSPENDED, silent=True)
    bench.request("c", 2)
    assert bench.partner.votes == 1
    assert statuses(bench, "c") == [Status.OK]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_client_that_has_said_nothing_before_votes_as_well(bench: Bench, is_early: bool) -> None:
    """All others may have left during the pause."""
    bench.become(State.ACTIVE)
    bench.worker("w")
    if is_early:
        bench.client("c")
    bench.partner.become(State.SUSPENDED, silent=True)
    bench.worker("late")
    assert bench.partner.votes == 0
    bench.request("c", 1)
    assert bench.partner.votes == 1
    assert [request.body for request in bench.requests("w")] == [[b"x"]]


def test_what_it_keeps_has_a_limit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requite.pair.standby_gate._HELD_MAX", 3)
    bench.become(State.ACTIVE)
    bench.worker("w")
    bench.partner.become(State.SUSPENDED)
    for _ in range(3):
        bench.say("w", WorkerHeartbeat, 1000)
    assert bench.disconnected == {}
    bench.say("w", WorkerHeartbeat, 1000)
    assert bench.disconnected == {"w": NOT_ACTIVE}


# --- the end, and what is shown -------------------------------------------------------------------
@pytest.mark.parametrize("state", [State.PASSIVE, State.ACTIVE, State.SUSPENDED])
def test_it_drains_in_any_state(bench: Bench, state: State) -> None:
    bench.become(State.ACTIVE)
    bench.become(state, silent=True)
    bench.worker("w")
    bench.drain()
    assert bench.stopped
    if state is not State.SUSPENDED:
        assert "w" in bench.disconnected


def test_it_tells_what_the_pair_knows() -> None:
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


def test_a_broker_alone_knows_no_pair() -> None:
    bench = BrokerBench()
    bench.request("c", 1, service=b"mmi.pair")
    bench.request("c", 2, service=b"mmi.stats")
    alone, stats = (final.body[0] for final in bench.finals("c"))
    assert alone == b"501"
    assert "pair" not in json.loads(stats)


def test_a_server_that_stood_still_does_not_say_that_the_other_is_silent() -> None:
    """Its heartbeats are still unread; accepting clients now would mislead them."""
    half = BinaryStarPeer(BinaryStarPolicy(PairRole.PRIMARY, 1.0), instance=1)
    half.handle([Wake()], 0.0)
    assert not half.view(10.0).peer_is_silent
    for quarter in range(9):
        half.handle([Wake()], 10.0 + quarter / 4)
    assert half.view(12.0).peer_is_silent
