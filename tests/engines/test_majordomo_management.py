"""Management requests (`mmi.`) cannot block the broker: attack 7 of the security design."""

from __future__ import annotations

import json

import pytest
from tests.support.broker import BrokerBench
from tests.support.builds import pure_only

from requite.engine import Received
from requite.protocols.majordomo import management
from requite.protocols.majordomo.wire import NO_CALL, ClientRequest

COSTLY = (b"mmi.stats", b"mmi.list", b"mmi.workers", b"mmi.under", b"mmi.census")
MANY = 20_000  # the attack sent 488 KiB of them


def pipelined(bench: BrokerBench, peer: str, names: list[bytes]) -> Received:
    """Return an input with one request per name, all received in one read."""
    encode = bench.dialect_of(peer).encode
    requests = [
        ClientRequest(name, [b""], i, 0, 0, b"", NO_CALL) for i, name in enumerate(names, 1)
    ]
    return Received(peer, [encode(request) for request in requests])


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
@pytest.mark.parametrize("name", COSTLY)
def test_many_requests_in_one_read_get_one_answer_per_turn(name: bytes, version: str) -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("attacker", version)
    bench.feed(pipelined(bench, "attacker", [name] * MANY))
    assert len(bench.sent("attacker")) == 1
    assert bench.unread == {"attacker": None}
    bench.request("bystander", 1)
    assert len(bench.requests("w")) == 1
    bench.advance(0.1)
    assert 50 <= len(bench.sent("attacker")) <= 110


def test_all_requests_are_answered_in_order_and_reading_resumes() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("c")
    names = [b"mmi.stats", b"echo", b"mmi.list", b"mmi.under", b"mmi.ping", b"mmi.service"]
    bench.feed(pipelined(bench, "c", names))
    bench.advance(0.05)
    assert [final.request_id for final in bench.finals("c")] == [1, 3, 4, 5, 6]
    assert len(bench.requests("w")) == 1
    assert not bench.unread
    bench.feed(pipelined(bench, "c", [b"mmi.ping"]))
    assert len(bench.finals("c")) == 6


def test_single_requests_are_answered_at_once() -> None:
    bench = BrokerBench()
    bench.client("c")
    for i in range(1, 50):
        bench.request("c", i, b"", service=COSTLY[i % len(COSTLY)])
        assert len(bench.finals("c")) == i
    assert not bench.unread
    assert not bench.warnings


def test_a_lost_clients_management_requests_are_dropped() -> None:
    bench = BrokerBench()
    bench.client("attacker")
    bench.feed(pipelined(bench, "attacker", [b"mmi.stats"] * MANY))
    bench.lose("attacker")
    bench.advance(1.0)
    bench.assert_idle()
    assert bench.broker.snapshot().unread == 0


@pure_only("the test replaces a method of an engine")
def test_a_broker_with_many_services_caches_answers_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = BrokerBench()
    for i in range(1000):
        bench.worker(f"w{i}", b"service-%d" % i)
    made: list[int] = []
    whole = bench.broker.snapshot
    monkeypatch.setattr(bench.broker, "snapshot", lambda: made.append(1) or whole())
    for i in range(1, 21):
        bench.request(f"c{i}", 1, b"", service=b"mmi.stats")
    assert len(made) == 1
    answers = [json.loads(bench.finals(f"c{i}")[0].body[0]) for i in range(1, 21)]
    assert [len(answer["services"]) for answer in answers] == [1000] * 20
    bench.now += 0.25
    bench.request("c1", 2, b"", service=b"mmi.stats")
    assert len(made) == 2


def test_answers_to_mmi_under_are_not_cached() -> None:
    bench = BrokerBench()
    for i in range(100):
        bench.worker(f"w{i}", b"core/%02d" % i)
    for accepted in range(3):
        bench.request("manager", accepted + 1, b"core/07", service=b"mmi.under")
        [row] = json.loads(bench.finals("manager")[-1].body[0])
        assert row["accepted"] == accepted
        bench.request("c", accepted + 1, service=b"core/07")


def test_the_number_of_cached_answers_is_limited() -> None:
    bench = BrokerBench()
    for i in range(100):
        bench.worker(f"w{i}", b"service-%d" % i)
    for i in range(1, 100):
        bench.request("c", i, b"%d" % i, service=b"mmi.stats")
    assert len(bench.broker._clients._management._answers) <= management._ANSWERS_MAX
