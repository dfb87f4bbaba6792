"""Quotas of principals at a broker: all connections of a principal count together."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.broker import BrokerBench

from requite.chronicle import Chronicle, Kind
from requite.engine import Received, RightsChanged
from requite.principal import Principal, Quota, Rights
from requite.protocols.majordomo.parties import Client
from requite.protocols.majordomo.wire import (
    ClientRequest,
    WorkerPartial,
)
from requite.request import Status

KIB = 1024
EVERYTHING = Rights(call=("*",))


def shop(**quota: int) -> Principal:
    return Principal("shop", EVERYTHING, Quota(**quota))


def outcomes(bench: BrokerBench, peer: str) -> list[tuple[int, int]]:
    return [(final.request_id, final.status) for final in bench.finals(peer)]


@pytest.mark.parametrize(
    ("quota", "size", "fit"),
    [({"requests": 3}, 1, 3), ({"bytes": 64 * KIB}, 20 * KIB, 4), ({"requests_per_s": 5}, 1, 5)],
)
def test_the_requests_of_all_connections_count_together(
    quota: dict[str, int], size: int, fit: int
) -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    owner = shop(**quota)
    for peer in ("a", "b"):
        bench.client(peer, principal=owner)
    for number in range(1, 2 * fit + 3):
        bench.request("ab"[number % 2], number, bytes(size))
    assert len(bench.requests("w")) == fit
    refused = outcomes(bench, "a") + outcomes(bench, "b")
    assert [number for number, _ in sorted(refused)] == list(range(fit + 1, 2 * fit + 3))
    assert {status for _, status in refused} == {Status.OVERLOADED}
    limit, maximum = next(iter(quota.items()))
    reason = bench.finals("a")[0].body[0].decode()
    assert reason == f"shop has reached its quota: {limit} = {maximum}"


def test_other_principals_are_not_affected() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    bench.client("a", principal=shop(requests=1))
    bench.client("b", principal=Principal("other", EVERYTHING, Quota(requests=5)))
    for number in range(1, 6):
        bench.request("a", number)
        bench.request("b", number)
    assert len(bench.requests("w")) == 6
    assert outcomes(bench, "b") == []


@pytest.mark.parametrize("quota", [{"requests": 1}, {"bytes": 1}])
def test_an_ended_request_makes_room(quota: dict[str, int]) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("a", principal=shop(**quota))
    for number in range(1, 4):
        bench.request("a", number)
        bench.final("w")
    assert outcomes(bench, "a") == [(1, 0), (2, 0), (3, 0)]


def test_a_client_that_leaves_makes_room() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    owner = shop(requests=1)
    bench.client("a", principal=owner)
    bench.client("b", principal=owner)
    bench.request("a", 1)
    bench.lose("a")
    bench.request("b", 2)
    assert len(bench.requests("w")) == 2


def test_time_makes_room_for_requests_per_second() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    bench.client("a", principal=shop(requests_per_s=10))
    for number in range(1, 21):
        bench.request("a", number)
    bench.now += 0.5
    for number in range(21, 41):
        bench.request("a", number)
    assert len(bench.requests("w")) == 15


@pytest.mark.parametrize("service", [b"forbidden", b"mmi.ping"])
def test_requests_that_are_answered_at_once_count_for_the_rate(service: bytes) -> None:
    """Without that, a user writes rows into the journal at full speed."""
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    quota = Quota(requests_per_s=10, requests=2)
    bench.client("a", principal=Principal("shop", Rights(call=("echo",)), quota))
    for number in range(1, 21):
        bench.request("a", number, service=service)
    assert [status for _, status in outcomes(bench, "a")].count(Status.OVERLOADED) == 10
    bench.now += 0.5
    for number in range(21, 31):
        bench.request("a", number)
    assert len(bench.requests("w")) == 2


@pytest.mark.parametrize("service", [b"forbidden", b"mmi.ping"])
def test_an_old_client_that_asks_too_fast_is_not_read(service: bytes) -> None:
    bench = BrokerBench()
    quota = Quota(requests_per_s=10)
    bench.client("a", "0.2", Principal("shop", Rights(), quota))
    for number in range(1, 21):
        if "a" not in bench.unread:
            bench.request("a", number, service=service)
    assert number == 20
    assert "a" in bench.unread
    bench.advance(1.0)
    assert "a" not in bench.unread


def test_services_without_workers_count_but_not_those_with_workers() -> None:
    bench = BrokerBench()
    bench.worker("w", b"echo", capacity=9)
    owner = shop(services=2)
    bench.client("a", principal=owner)
    bench.client("b", principal=owner)
    for number, peer in enumerate("abab", start=1):
        bench.request(peer, number, service=b"made-up-%d" % number)
    bench.request("a", 9, service=b"echo")
    assert outcomes(bench, "a") == [(3, Status.OVERLOADED)]
    assert outcomes(bench, "b") == [(4, Status.OVERLOADED)]
    assert len(bench.requests("w")) == 1


def test_groups_of_one_pool_count() -> None:
    """Attack 10 of the security design: as many processes as there are keys."""
    bench = BrokerBench()
    bench.client("a", principal=shop(groups=2))
    for number in range(1, 6):
        bench.request("a", number, service=b"thumbs/%d" % number)
    bench.request("a", 6, service=b"thumbs/1")
    bench.request("a", 7, service=b"other/1")
    assert outcomes(bench, "a") == [(number, Status.OVERLOADED) for number in (3, 4, 5)]


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("quota", [{"requests": 2}, {"requests_per_s": 2}])
def test_clients_that_cannot_be_told_are_not_read_from(version: str, quota: dict[str, int]) -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    owner = shop(**quota)
    for peer in ("a", "b"):
        bench.client(peer, version, owner)
        bench.request(peer, 1)
    bench.request("a", 2)
    assert set(bench.unread) == {"a", "b"}, "each would send one more request"
    if "requests" in quota:
        bench.final("w", nth=0)
        bench.final("w", nth=1)
    bench.advance(2.0)
    assert not bench.unread
    bench.request("b", 2)
    assert len(bench.requests("w")) == 4


def test_a_limit_is_journaled_once_a_second() -> None:
    chronicle = Chronicle()
    bench = BrokerBench(chronicle=chronicle)
    bench.client("a", principal=shop(requests=1))
    for number in range(1, 50):
        bench.request("a", number)
    bench.now += 1.5
    bench.request("a", 99)
    rows = [row for row in chronicle.event_rows if row.kind == Kind.DENIED]
    assert [(row.worker, row.error, row.service) for row in rows] == [
        (b"shop", "quota", b"echo")
    ] * 2


def test_a_quota_that_arrives_with_a_change_counts_what_is_outstanding() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    owner = Principal("shop", EVERYTHING)
    bench.client("a", principal=owner)
    for number in (1, 2):
        bench.request("a", number)
    owner.grant(EVERYTHING, Quota(requests=3))
    bench.feed(RightsChanged())
    for number in (3, 4):
        bench.request("a", number)
    assert outcomes(bench, "a") == [(4, Status.OVERLOADED)]
    for nth in range(3):
        bench.final("w", nth=nth)
    bench.request("a", 5)
    assert len(bench.requests("w")) == 4


def test_at_most_a_second_and_a_sixteenth_of_requests_come_at_once() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=1000)
    bench.client("a", principal=shop(requests_per_s=160))
    numbers = count()

    def ask(many: int) -> int:
        """Send requests; return how many the worker got."""
        before = len(bench.requests("w"))
        for _ in range(many):
            bench.request("a", next(numbers))
        return len(bench.requests("w")) - before

    assert ask(155) == 155
    bench.now += 10
    assert 160 <= ask(500) <= 170
    bench.now += 0.25
    assert ask(500) == 40


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.sampled_from("abc"), st.booleans()),
            st.tuples(st.just("answer"), st.integers(0, 9)),
            st.tuples(st.just("lose"), st.sampled_from("abc")),
            st.tuples(st.just("wait"), st.floats(0, 2)),
            st.tuples(st.just("quota"), st.integers(0, 5), st.integers(0, 5)),
        ),
        max_size=60,
    )
)
def test_what_a_principal_uses_is_the_sum_of_what_its_clients_use(steps: list[Any]) -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=1000)
    owner = shop(requests=3, requests_per_s=50)
    numbers = count(1)
    answered: set[int] = set()
    for step, *facts in steps:
        if step == "ask":
            peer = facts[0]
            if peer not in bench.broker.parties:
                bench.client(peer, principal=owner)
            name = b"pool/1" if facts[1] else b"echo"
            bench.request(peer, next(numbers), service=name, timeout_ms=1500)
        elif step == "answer":
            requests = bench.requests("w")
            if facts[0] < len(requests) and facts[0] not in answered:
                answered.add(facts[0])
                bench.final("w", nth=facts[0])
        elif step == "lose":
            if facts[0] in bench.broker.parties:
                bench.lose(facts[0])
        elif step == "wait":
            bench.keep_alive(facts[0], "w")
        else:
            owner.grant(EVERYTHING, Quota(requests=facts[0], groups=facts[1], services=9))
            bench.feed(RightsChanged())
        clients = [each for each in bench.broker.parties.values() if isinstance(each, Client)]
        usages = {each.usage for each in clients} - {None}
        assert len(usages) <= 1
        for usage in usages:
            assert usage is not None
            assert usage.count == sum(len(each.pending) for each in clients)
            assert usage.size == sum(each.size for each in clients)
            assert usage.named == sum(each.named for each in clients)


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize(
    "quota", [{"requests": 2}, {"bytes": 2000}, {"requests_per_s": 2}, {"services": 2}]
)
def test_the_rest_of_a_read_waits_at_the_quota(version: str, quota: dict[str, int]) -> None:
    bench = BrokerBench(service_grace_s=1.0)
    dialect = bench.client("a", version, shop(**quota))
    names = [b"made-up-%d" % number for number in range(50)]
    messages = [dialect.encode(ClientRequest(name, [b"x"])) for name in names]
    bench.feed(Received("a", messages))
    assert bench.unread == {"a": None}
    assert bench.broker.snapshot().pending == 3, "one more than the quota"
    bench.advance(60.0)
    assert len(bench.noted("accepted")) == 50
    assert not bench.unread
    bench.assert_idle()


@pytest.mark.parametrize("limit", ["services", "groups"])
def test_clients_that_cannot_be_told_wait_for_services_and_groups(limit: str) -> None:
    bench = BrokerBench(service_grace_s=60.0)
    bench.client("a", "0.2", shop(**{limit: 2}))
    for number in (1, 2, 3):
        bench.request("a", number, service=b"thumbs/%d" % number)
    assert bench.unread == {"a": None}
    bench.advance(1.0)
    assert bench.unread == {"a": None}
    bench.worker("w", b"thumbs/1")
    bench.final("w")
    bench.advance(0.1)
    assert not bench.unread


def test_a_broker_does_not_wake_up_for_clients_that_wait_for_an_answer() -> None:
    bench = BrokerBench(service_grace_s=60.0)
    bench.client("a", "0.2", shop(requests=1))
    for number in (1, 2):
        bench.request("a", number)
    bench.advance(1.0)
    assert bench.unread == {"a": None}
    at = bench.broker.deadline()
    assert at is not None
    assert at > bench.now + 1.0


def test_a_raised_quota_makes_room() -> None:
    bench = BrokerBench(service_grace_s=60.0)
    owner = shop(requests=1)
    bench.client("a", "0.2", owner)
    for number in (1, 2):
        bench.request("a", number)
    bench.advance(1.0)
    owner.grant(EVERYTHING, Quota(requests=9))
    bench.feed(RightsChanged())
    bench.advance(0.1)
    assert not bench.unread


def test_a_rate_that_arrives_with_a_change_does_not_count_earlier_requests() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    owner = shop(requests=100)
    bench.client("a", principal=owner)
    for number in range(1, 51):
        bench.request("a", number)
        bench.final("w")
    owner.grant(EVERYTHING, Quota(requests_per_s=5))
    bench.feed(RightsChanged())
    bench.now += 1.0
    bench.request("a", 99)
    assert [status for _, status in outcomes(bench, "a")] == [Status.OK] * 50
    assert len(bench.requests("w")) == 51


def test_groups_that_began_before_the_quota_count() -> None:
    bench = BrokerBench()
    owner = shop(requests=9)
    bench.client("a", principal=owner)
    bench.request("a", 1, service=b"thumbs/1")
    owner.grant(EVERYTHING, Quota(groups=1))
    bench.feed(RightsChanged())
    bench.request("a", 2, service=b"thumbs/2")
    assert outcomes(bench, "a") == [(2, Status.OVERLOADED)]


def test_partial_replies_that_are_joined_count() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("a", "0.1", shop(bytes=4 * KIB))
    bench.request("a", 1)
    dispatch_id = bench.requests("w")[0].dispatch_id
    for _ in range(5):
        bench.say("w", WorkerPartial, b"", [bytes(KIB)], dispatch_id)
    assert bench.broker.load.size == 0, "the request has failed"
    assert [note.facts["status"] for note in bench.noted("answered")] == ["FAILED"]
    assert bench.noted("answered")[0].facts["withdrawn"]
    assert "shop has reached its quota: bytes = 4096" in bench.noted("answered")[0].facts["reason"]


def test_a_removed_user_is_forgotten() -> None:
    bench = BrokerBench()
    owner = shop(requests=1)
    bench.client("a", principal=owner)
    bench.request("a", 1)
    owner.revoke()
    bench.feed(RightsChanged())
    bench.lose("a")
    assert not bench.broker.authorizer.usages


# --- floods ---------------------------------------------------------------------------------------
def pipeline(bench: BrokerBench, peer: str, many: int, service: bytes = b"echo") -> None:
    """Feed many requests of a client, as one read has them."""
    commands = [ClientRequest(service, [b"x"], number) for number in range(1, many + 1)]
    bench.feed(Received(peer, [list(bench.dialect_of(peer).encode(each)) for each in commands]))


@pytest.mark.parametrize("why", ["quota", "right"])
def test_refused_requests_of_one_read_are_paced_and_each_is_answered_once(why: str) -> None:
    """Refusing costs as much as serving: a flood would delay the requests of others."""
    bench = BrokerBench()
    bench.worker("w", capacity=100)
    owner = shop(requests=1) if why == "quota" else Principal("shop", Rights())
    bench.client("a", principal=owner)
    pipeline(bench, "a", 50)
    first = len(bench.finals("a"))
    assert first == 1
    assert list(bench.unread) == ["a"]
    bench.request("b", 1)
    bench.final("w")
    assert len(bench.finals("b")) == 1, "others are served in between"
    bench.advance(1.0)
    assert not bench.unread
    refused = [final for final in bench.finals("a") if final.status != Status.OK]
    numbers = [final.request_id for final in refused]
    assert numbers == list(range(2 if why == "quota" else 1, 51))
    assert {final.status for final in refused} == {
        Status.OVERLOADED if why == "quota" else Status.DENIED
    }


def test_the_clients_of_a_principal_take_turns_with_their_refused_requests() -> None:
    bench = BrokerBench()
    owner = shop(requests=1)
    for peer in ("a", "b", "c"):
        bench.client(peer, principal=owner)
        pipeline(bench, peer, 50)
    before = sum(len(bench.finals(peer)) for peer in ("a", "b", "c"))
    bench.advance(0.0305)
    paced = sum(len(bench.finals(peer)) for peer in ("a", "b", "c")) - before
    assert 25 <= paced <= 31, "one per millisecond, however many clients there are"


def test_a_request_that_is_refused_alone_does_not_stop_its_client() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("a", principal=shop(requests=1))
    for number in range(1, 20):
        bench.request("a", number)
        assert len(bench.finals("a")) == number - 1
    assert not bench.unread
