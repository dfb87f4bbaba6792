"""Floods at a broker: refusals, messages without effect, and old clients beyond a quota."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.test_majordomo_quotas import EVERYTHING, KIB, outcomes, shop
from tests.support.broker import BrokerBench

from requite.engine import Received, RightsChanged
from requite.principal import Principal, Quota, Rights
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientHeartbeat,
    ClientRequest,
)
from requite.request import Status


def read_at_once(bench: BrokerBench, peer: str, *commands: Any) -> None:
    """Let the broker read many messages of a peer in one turn."""
    encode = bench.dialect_of(peer).encode
    bench.feed(Received(peer, [encode(command) for command in commands]))


@pytest.mark.parametrize("quota", [{}, {"requests_per_s": 10}])
@pytest.mark.parametrize("service", [b"secret", b"mmi.ping"])
def test_refusals_are_paced_with_any_quota(service: bytes, quota: dict[str, int]) -> None:
    """About one answer per millisecond, however many requests are pipelined."""
    bench = BrokerBench()
    bench.client("a", principal=Principal("shop", Rights(), Quota(**quota)))
    asked = [ClientRequest(service, [b""], number, 0) for number in range(1, 5_000)]
    read_at_once(bench, "a", *asked)
    bench.advance(0.5)
    assert "a" in bench.unread
    assert len(bench.finals("a")) <= 501
    bench.advance(0.5)
    assert len(bench.finals("a")) > 501 - 100


@pytest.mark.parametrize("command", [ClientHeartbeat(1000), ClientCancel(7)])
def test_messages_without_effect_are_paced(command: Any) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("a", principal=shop())
    read_at_once(bench, "a", *[command] * 5_000, ClientRequest(b"echo", [b"x"], 1, 0))
    assert "a" in bench.unread
    bench.advance(1.0)
    assert len(bench.sent("a")) <= 17 * 1_010
    assert "a" not in bench.unread, "all have been handled"
    assert len(bench.requests("w")) == 1


def test_a_few_messages_without_effect_delay_nothing() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    bench.client("a", principal=shop())
    few = [ClientHeartbeat(1000)] * 8 + [ClientCancel(7)] * 8
    read_at_once(bench, "a", *few, ClientRequest(b"echo", [b"x"], 1, 0))
    assert len(bench.requests("w")) == 1
    assert not bench.unread


def test_large_requests_of_clients_that_cannot_be_told_stop_all_of_their_principal() -> None:
    """Each connection would send one more; with them, the quota would be multiplied."""
    bench = BrokerBench()
    owner, other = shop(bytes=20 * KIB), Principal("other", EVERYTHING)
    for number in range(10):
        bench.client(f"a{number}", "0.2", owner)
    bench.client("new", "0.3", owner)
    bench.client("b", "0.2", other)
    for number in range(5):
        bench.request(f"a{number}", 9, service=b"mmi.ping")
    for peer in ("a0", "a1"):
        bench.request(peer, 1, bytes(15 * KIB))
    assert not bench.unread
    bench.request("a2", 1, bytes(15 * KIB))
    assert set(bench.unread) == {f"a{number}" for number in range(5)}
    for number in (10, 11):
        bench.client(f"a{number}", "0.2", owner, features=())
        assert f"a{number}" in bench.unread, "also new ones"
    bench.lose("a11")
    bench.request("b", 1)
    bench.request("new", 1)
    assert outcomes(bench, "new") == [(1, Status.OVERLOADED)]
    for number in range(10):
        bench.lose(f"a{number}")
    bench.advance(1.0)
    assert not bench.unread
    assert not bench.broker.authorizer.usages[owner].untold


def test_clients_that_are_paced_do_not_wait_for_the_rate_of_another_principal() -> None:
    bench = BrokerBench()
    bench.worker("w", capacity=9)
    bench.client("a", "0.2", shop(requests_per_s=1))
    bench.client("b", principal=Principal("other", Rights(call=("echo",))))
    for _ in range(2):
        bench.request("a", 1)
    bench.advance(0.1)
    denied, allowed = (ClientRequest(name, [b"b"], 1) for name in (b"forbidden", b"echo"))
    read_at_once(bench, "b", denied, allowed)
    assert set(bench.unread) == {"a", "b"}
    bench.advance(0.002)
    assert set(bench.unread) == {"a"}
    assert bench.requests("w")[-1].body == [b"b"]


def waiting_for_the_quota(owner: Principal) -> BrokerBench:
    """Return a bench with a client of MDP 0.2 that waits for the quota of its principal."""
    bench = BrokerBench()
    bench.client("waiting", "0.2", owner)
    for _ in range(2):
        bench.request("waiting", 1)
    assert "waiting" in bench.unread
    return bench


@pytest.mark.parametrize("rights", [{"serve": ("echo",)}, {"pool": ("p",)}])
@pytest.mark.parametrize("version", ["0.1", "0.3"])
def test_the_worker_of_a_principal_whose_clients_wait_is_read_from(
    version: str, rights: dict[str, tuple[str, ...]]
) -> None:
    """The requests that fill the quota may wait for it."""
    owner = Principal("shop", Rights(call=("*",), **rights), Quota(requests=1))
    bench = waiting_for_the_quota(owner)
    bench.client("worker", version, owner)
    assert "worker" not in bench.unread


def test_a_new_client_whose_first_message_comes_with_the_handshake_waits_like_others() -> None:
    owner = shop(requests=1)
    bench = waiting_for_the_quota(owner)
    bench.client("new", "0.2", owner, features=())
    assert "new" in bench.unread
    bench.request("new", 1)  # such messages have been read before the broker stops
    assert "new" in bench.unread
    bench.lose("waiting")
    bench.lose("new")
    bench.assert_idle()


def test_a_new_client_that_can_be_told_is_told_at_once() -> None:
    owner = shop(requests=1)
    bench = waiting_for_the_quota(owner)
    bench.client("new", "0.3", owner)
    bench.request("new", 1)
    assert outcomes(bench, "new") == [(1, Status.OVERLOADED)]


def test_a_new_peer_is_read_from_once_its_user_may_serve() -> None:
    owner = shop(requests=1)
    bench = waiting_for_the_quota(owner)
    bench.client("new", "0.2", owner, features=())
    assert "new" in bench.unread
    owner.grant(Rights(call=("*",), serve=("*",)), owner.quota)
    bench.feed(RightsChanged())
    assert "new" not in bench.unread, "it may be the worker that the others wait for"


@pytest.mark.parametrize("how", ["kicked", "expelled", "stepped down"])
def test_a_new_peer_that_is_not_read_from_is_forgotten(how: str) -> None:
    owner = shop(requests=1)
    bench = waiting_for_the_quota(owner)
    bench.client("new", "0.2", owner, features=())
    if how == "kicked":
        bench.client("operator", principal=Principal("operator", Rights(admin=("kick",))))
        bench.request("operator", 1, b"user:shop", service=b"mmi.kick")
    elif how == "expelled":
        bench.feed(Received("new", [[b"nonsense"]]))
        bench.lose("waiting")
    else:
        for effect in bench.broker.step_down("the other broker serves", bench.now):
            bench.perform(effect)
    bench.advance(1.0)
    assert not bench.unread
    bench.assert_idle()


def test_new_peers_are_read_from_one_by_one_without_wakes_in_between() -> None:
    owner = shop(requests=1)
    bench = waiting_for_the_quota(owner)
    for number in range(3):
        bench.client(f"new{number}", "0.2", owner, features=())
    bench.advance(0.1)
    at = bench.broker.deadline()
    assert at is not None
    assert at > bench.now + 1.0, "nothing can change before a request ends"
    bench.lose("waiting")
    for left in (2, 1, 0):
        bench.advance(0.001)
        assert len(bench.unread) == left
    bench.assert_idle()
