"""Requests for a user: REQUEST_FOR (docs/protocols/mdp-0.3.md, "Acting for a user")."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.access import Access
from requite.access.file import parse
from requite.chronicle import NO_CALL, Chronicle, Kind
from requite.engine import PeerJoined, PeerLost, Received, RightsChanged, Send, Submit, Wake
from requite.principal import ANYONE, INSIDE, Principal, Rights
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    FEATURES,
    KNOWS_USERS,
    ClientCancel,
    ClientRequest,
    WorkerCancel,
)
from requite.request import Status
from requite.trace_context import decode_traceparent

MDP_03 = by_version("0.3")
TRACE = decode_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
USERS = """
[user.gateway]
tls = "CN=gateway"
act = ["alice", "bob", "team-*"]

[user.alice]
tls = "CN=alice"
call = ["echo", "thumbs/*"]

[user.bob]
call = ["echo"]

[user.team-a]
call = ["pay"]
pool = ["thumbs"]
titanic = ["submit"]
admin = ["*"]

[user.eve]
call = ["*"]
serve = ["*"]
titanic = ["*"]
pool = ["*"]
admin = ["*"]
"""


class Acting(BrokerBench):
    """A broker with the users of an access file, a worker of `echo`, and a gateway."""

    def __init__(self, users: str = USERS, **given: Any) -> None:
        super().__init__(**given)
        self.access = Access(parse(users.encode()))
        self.broker.authorizer.principal_named = self.access.principal_named
        self.worker("w", capacity=9)
        self.client("gateway", principal=self.access.principal_named("gateway"))

    def ask(
        self,
        user: str,
        request_id: int = 1,
        *,
        peer: str = "gateway",
        service: bytes = b"echo",
        call_id: bytes = NO_CALL,
        trace: bytes = b"",
    ) -> None:
        """Send a REQUEST_FOR from a client."""
        request = ClientRequest(
            service, [b"x"], request_id, call_id=call_id, principal=user.encode(), trace=trace
        )
        self.feed(Received(peer, [MDP_03.encode(request)]))

    def change(self, users: str) -> None:
        """Replace the access file."""
        self.access.load(parse(users.encode()))
        self.feed(RightsChanged())

    def statuses(self, peer: str = "gateway") -> dict[int, int]:
        """Return the status of each answered request."""
        return {final.request_id: final.status for final in self.finals(peer)}


def acts(chronicle: Chronicle) -> list[tuple[int, str, str]]:
    """Return the decisions about acting: kind, principal and user."""
    return [
        (row.kind, row.worker.decode(), row.service.decode())
        for row in chronicle.event_rows
        if row.kind in (Kind.ADMITTED, Kind.DENIED) and row.error == "act"
    ]


# --- rights ---------------------------------------------------------------------------------------
@requirement("mdp03:for-right")
@requirement("mdp03:worker-principal")
def test_a_worker_is_told_the_user_and_the_client_needs_no_right_to_call() -> None:
    bench = Acting()
    for number, user in enumerate(("alice", "bob"), start=1):
        bench.ask(user, number)
        bench.final("w")
    assert [each.principal for each in bench.requests("w")] == [b"alice", b"bob"]
    assert bench.statuses() == {1: Status.OK, 2: Status.OK}
    bench.request("gateway", 3)
    assert bench.statuses()[3] == Status.DENIED, "the gateway itself may not call echo"


@requirement("mdp03:for-right")
@pytest.mark.parametrize(
    ("peer", "user", "service", "reason"),
    [
        ("gateway", "eve", b"echo", "gateway has no right to act for 'eve'"),
        ("gateway", "gateway", b"echo", "gateway has no right to act for 'gateway'"),
        ("gateway", "alice ", b"echo", "gateway has no right to act for 'alice '"),
        ("gateway", "mallory", b"echo", "gateway has no right to act for 'mallory'"),
        ("gateway", "al\nice", b"echo", "gateway has no right to act for 'al\\nice'"),
        ("gateway", "team-x", b"echo", "has no user 'team-x', for whom gateway asks"),
        ("gateway", "bob", b"pay", "bob has no right to call 'pay'"),
        ("gateway", "alice", b"thumbs/!managers", "alice has no right to call"),
        ("alice", "bob", b"echo", "alice has no right to act for 'bob'"),
        ("eve", "alice", b"echo", "eve has no right to act for 'alice'"),
        ("eve", "nobody", b"echo", "eve has no right to act for 'nobody'"),
    ],
)
def test_a_request_for_a_user_without_the_rights_is_denied(
    peer: str, user: str, service: bytes, reason: str
) -> None:
    chronicle = Chronicle()
    bench = Acting(chronicle=chronicle)
    for name in ("pay", "thumbs/!managers"):
        bench.worker(name, name.encode())
    if peer != "gateway":
        bench.client(peer, principal=bench.access.principal_named(peer))
    bench.ask(user, peer=peer, service=service)
    final = bench.finals(peer)[0]
    assert (final.status, final.attempts) == (Status.DENIED, 0)
    assert reason in final.body[0].decode()
    assert not [
        bench.requests(name) for name in ("w", "pay", "thumbs/!managers") if bench.requests(name)
    ]
    assert bench.broker.snapshot().pending == 0
    assert acts(chronicle) == [(Kind.DENIED, peer, user)]
    assert peer not in bench.disconnected


@requirement("mdp03:for-right")
def test_patterns_name_users_and_the_pools_of_the_user_count() -> None:
    bench = Acting()
    bench.worker("pay", b"pay")
    bench.worker("thumbs", b"thumbs/7")
    bench.ask("team-a", 1, service=b"pay")
    bench.ask("team-a", 2, service=b"thumbs/7")
    assert bench.requests("pay")[0].principal == b"team-a"
    assert bench.requests("thumbs")[0].principal == b"team-a"


@requirement("mdp03:for-reserved")
@pytest.mark.parametrize(
    "service",
    [b"mmi.stats", b"mmi.whoami", b"mmi.describe", b"mmi.kick", b"titanic.request", b"titanic.x"],
)
def test_neither_management_nor_durable_requests_are_made_for_others(service: bytes) -> None:
    bench = Acting()
    bench.worker("titanic", b"titanic.request", principal=INSIDE)
    bench.ask("team-a", service=service)
    [final] = bench.finals("gateway")
    assert final.status == Status.DENIED
    assert f"requests to {service.decode()!r} only as itself" in final.body[0].decode()
    assert bench.requests("titanic") == []


@requirement("mdp03:for-users")
@pytest.mark.parametrize(
    "client", [ANYONE, Principal("CN=shop"), Principal("x", Rights(act=("*",)))]
)
def test_a_broker_without_an_access_file_denies_it(client: Principal) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("c", principal=client)
    request = ClientRequest(b"echo", [b"x"], 1, principal=b"alice")
    bench.feed(Received("c", [MDP_03.encode(request)]))
    [final] = bench.finals("c")
    assert final.status == Status.DENIED
    assert b"no access file" in final.body[0]
    assert bench.requests("w") == []


@requirement("mdp03:features")
def test_a_client_that_does_not_know_denied_is_refused_as_failed() -> None:
    bench = Acting()
    bench.client("old", principal=bench.access.principal_named("eve"), features=())
    bench.ask("alice", peer="old")
    assert bench.statuses("old") == {1: Status.FAILED}


@requirement("mdp03:features")
def test_workers_that_do_not_know_principals_are_told_none() -> None:
    bench = Acting()
    bench.lose("w")
    bench.worker("old", features=())
    bench.ask("alice")
    assert [each.principal for each in bench.requests("old")] == [b""]


# --- the life of a request ------------------------------------------------------------------------
@requirement("mdp03:trace")
@requirement("mdp03:worker-principal")
def test_a_redelivered_request_keeps_its_user_and_its_trace() -> None:
    bench = Acting()
    bench.ask("alice", trace=TRACE)
    bench.worker("v")
    bench.lose("w")
    for worker in ("w", "v"):
        [given] = bench.requests(worker)
        assert (given.principal, given.trace) == (b"alice", TRACE)
    assert bench.requests("v")[0].attempt == 2


@requirement("mdp03:client-cancel")
def test_a_client_cancels_a_request_for_a_user() -> None:
    bench = Acting()
    bench.ask("alice", 1)
    dispatched = bench.requests("w")[0].dispatch_id
    bench.say("gateway", ClientCancel, 1)
    assert [each.dispatch_id for each in bench.sent("w", WorkerCancel)] == [dispatched]
    assert bench.broker.snapshot().pending == 0


@requirement("mdp03:call-id-owner")
def test_call_ids_belong_to_the_client_whoever_its_calls_are_for() -> None:
    bench = Acting()
    bench.client("alice", principal=bench.access.principal_named("alice"))
    ours, hers = b"our-door" + bytes(8), b"alice-is" + bytes(8)
    bench.ask("alice", 1, call_id=ours)
    bench.ask("bob", 2, call_id=ours)
    bench.request("alice", 3, call_id=hers)
    assert [each.call_id for each in bench.requests("w")] == [ours, ours, hers]
    bench.request("alice", 4, call_id=ours)
    bench.ask("alice", 5, call_id=hers)
    assert all(each.call_id[0] & 0x80 for each in bench.requests("w")[3:]), "made up"
    assert [each.principal for each in bench.requests("w")[3:]] == [b"alice", b"alice"]


def test_quotas_count_what_the_client_uses_and_not_the_user() -> None:
    quotas = "\n[quota.one]\nrequests = 1\n"
    users = USERS.replace("[user.gateway]", '[user.gateway]\nquota = "one"') + quotas
    bench = Acting(users.replace("[user.alice]", '[user.alice]\nquota = "one"'))
    bench.client("alice", principal=bench.access.principal_named("alice"))
    bench.ask("alice", 1)
    bench.ask("bob", 2)
    bench.request("alice", 3)
    assert bench.statuses() == {2: Status.OVERLOADED}
    assert bench.statuses("alice") == {}
    assert len(bench.requests("w")) == 2


def test_denied_requests_for_users_count_and_are_paced() -> None:
    """Otherwise a client without the right could keep the broker busy."""
    quotas = "\n[quota.slow]\nrequests_per_s = 20\n"
    bench = Acting(USERS.replace("[user.eve]", '[user.eve]\nquota = "slow"') + quotas)
    bench.client("eve", principal=bench.access.principal_named("eve"))
    forged = [
        MDP_03.encode(ClientRequest(b"echo", [b"x"], number, principal=b"alice"))
        for number in range(1, 61)
    ]
    bench.feed(Received("eve", forged))
    assert len(bench.finals("eve")) == 1, "one per turn"
    bench.advance(0.5)
    statuses = bench.statuses("eve")
    assert set(statuses.values()) == {Status.DENIED, Status.OVERLOADED}
    assert len(statuses) == 60
    assert list(statuses.values()).count(Status.DENIED) < 40
    assert bench.requests("w") == []


# --- changes --------------------------------------------------------------------------------------
CHANGES = {
    "the user loses the right": USERS.replace(
        'CN=alice"\ncall = ["echo"', 'CN=alice"\ncall = ["x"'
    ),
    "the user is removed": USERS.replace("[user.alice]", "[user.another]"),
    "the client loses the right": USERS.replace('act = ["alice", ', "act = ["),
}


@requirement("mdp03:rights-changed")
@pytest.mark.parametrize("why", CHANGES)
@pytest.mark.parametrize("is_queued", [False, True])
def test_a_request_ends_when_the_right_to_make_it_is_lost(why: str, is_queued: bool) -> None:
    chronicle = Chronicle()
    bench = Acting(chronicle=chronicle)
    if is_queued:
        bench.lose("w")
    bench.client("other", principal=bench.access.principal_named("bob"))
    bench.ask("alice", 1)
    bench.ask("bob", 2)
    bench.request("other", 3)
    bench.change(CHANGES[why])
    assert bench.statuses() == {1: Status.DENIED}
    assert len(bench.sent("w", WorkerCancel)) == (not is_queued)
    assert acts(chronicle)[-1] == (Kind.DENIED, "gateway", "alice")
    if is_queued:
        bench.worker("w", capacity=9)
    for request in bench.requests("w")[-2:]:
        assert request.principal == b"bob"
        bench.final("w", nth=bench.requests("w").index(request))
    assert bench.statuses() == {1: Status.DENIED, 2: Status.OK}
    assert bench.statuses("other") == {3: Status.OK}
    bench.ask("alice", 4)
    assert bench.statuses()[4] == Status.DENIED
    bench.change(USERS)
    bench.ask("alice", 5)
    assert bench.requests("w")[-1].principal == b"alice"


@requirement("mdp03:for-journaled")
def test_the_first_request_for_a_user_is_journaled_and_again_after_a_change() -> None:
    chronicle = Chronicle()
    bench = Acting(chronicle=chronicle)
    bench.client("gateway-2", principal=bench.access.principal_named("gateway"))
    for number, user in enumerate(("alice", "alice", "bob", "alice"), start=1):
        bench.ask(user, number)
    bench.ask("alice", 1, peer="gateway-2")
    once = [(Kind.ADMITTED, "gateway", "alice"), (Kind.ADMITTED, "gateway", "bob")]
    assert acts(chronicle) == once
    bench.ask("eve", 5)
    bench.ask("eve", 6)
    assert acts(chronicle)[2:] == [(Kind.DENIED, "gateway", "eve")] * 2
    bench.change(USERS + "\n")
    bench.ask("bob", 7)
    assert (Kind.ADMITTED, "gateway", "bob") in acts(chronicle)[4:]


# --- the client -----------------------------------------------------------------------------------
def sent_by_a_client(*features: str) -> list[ClientRequest]:
    """Return what a client sends for alice over two connections, the first of which it loses."""
    engine = client_engine(MDP_03, rng=random.Random(1).random, first_sequence=1)
    call = Submit("t", "echo", [b"x"], 9.0, principal=b"alice", trace=TRACE)
    effects = list(engine.handle([call], 0.0))
    effects += engine.handle([PeerJoined("p", features=frozenset(features))], 0.1)
    effects += engine.handle([PeerLost("p", "reset")], 0.2)
    effects += engine.handle([Wake()], 2.0)
    effects += engine.handle([PeerJoined("q", features=frozenset(features))], 2.1)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    decoded = [MDP_03.decode_from_client(list(message)) for message in sent]
    return [command for command in decoded if isinstance(command, ClientRequest)]


@requirement("mdp03:for-users")
def test_a_client_sends_the_same_user_with_all_attempts() -> None:
    sent = sent_by_a_client("traces", KNOWS_USERS)
    assert [(each.principal, each.trace) for each in sent] == [(b"alice", TRACE)] * 2
    assert [each.trace for each in sent_by_a_client(KNOWS_USERS)] == [b""] * 2


@requirement("mdp03:for-users")
def test_a_client_names_no_user_to_a_broker_that_does_not_know_them() -> None:
    sent = sent_by_a_client(*FEATURES)
    assert [(each.principal, each.trace) for each in sent] == [(b"", TRACE)] * 2
