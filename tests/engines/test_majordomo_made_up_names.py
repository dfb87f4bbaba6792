"""The broker engine and requests for services that do not exist: they take nothing from others."""

from __future__ import annotations

import pytest
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.errors import ConfigurationError
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.protocols.majordomo.wire import ClientCancel, ClientRequest
from requite.request import Status

older = pytest.mark.parametrize("version", ["0.1", "0.2"])


def name_services(bench: BrokerBench, client: str, count: int, *, timeout_ms: int = 0) -> None:
    """Send requests of an MDP 0.3 client, each for another service."""
    for n in range(count):
        name = b"%s-%d" % (client.encode(), n)
        bench.request(client, n, service=name, timeout_ms=timeout_ms)


def refused(bench: BrokerBench, client: str) -> list[bytes]:
    """Return the reasons of a client's requests that ended with OVERLOADED."""
    return [f.body[0] for f in bench.finals(client) if f.status == Status.OVERLOADED]


def test_one_client_cannot_fill_the_directory():
    bench = BrokerBench()
    bench.worker("w", b"pay")
    name_services(bench, "c", 10_000)
    assert len(bench.broker.services) == 1001
    assert len(refused(bench, "c")) == 9000
    assert b"(client_services_max, --client-services-max)" in refused(bench, "c")[-1]
    bench.request("c", 20_000, service=b"pay")
    assert bench.requests("w"), "it can use the services that exist"
    bench.request("d", 1, service=b"new")
    assert not bench.finals("d"), "another client may name one"


def test_many_clients_cannot_keep_a_worker_out():
    bench = BrokerBench(service_grace_s=1000.0)
    bench.worker("w", b"pay")
    for n in range(10):
        name_services(bench, f"c{n}", 1000)
    assert len(bench.broker.services) == 10_000
    assert len(refused(bench, "c9")) == 1, "the limit of all services is reached"
    bench.lose("w")
    bench.advance(61.0)
    bench.worker("again", b"pay")
    bench.worker("new", b"ship")
    assert not bench.disconnected


def test_workers_have_the_limit_of_services_to_themselves():
    bench = BrokerBench(services_max=2)
    name_services(bench, "c", 2)
    bench.worker("a", b"a")
    bench.worker("b", b"b")
    assert not bench.disconnected
    bench.worker("c-d", b"d")
    assert "too many services" in bench.disconnected["c-d"]
    bench.worker("named", b"c-0")
    assert "named" not in bench.disconnected, "a request waits for it"


@pytest.mark.parametrize("end", ["cancelled", "expired", "no service", "left"])
def test_a_service_without_workers_exists_only_while_a_request_waits(end):
    bench = BrokerBench(service_grace_s=5.0)
    name_services(bench, "c", 3, timeout_ms=1000 if end == "expired" else 0)
    bench.request("d", 1, service=b"c-0")
    assert len(bench.broker.services) == 3
    if end == "cancelled":
        for n in range(3):
            bench.say("c", ClientCancel, n)
    elif end == "left":
        bench.lose("c")
    else:
        bench.advance(2.0 if end == "expired" else 5.0)
    assert set(bench.broker.services) == (set() if end == "no service" else {b"c-0"})
    bench.advance(5.0)
    assert not bench.broker.services
    assert bench.broker.snapshot().timers == 0


def test_names_count_only_while_their_requests_wait():
    bench = BrokerBench(client_services_max=2, service_grace_s=5.0)
    for _ in range(10):
        name_services(bench, "c", 2)
        bench.advance(5.0)
    assert not refused(bench, "c")
    name_services(bench, "c", 2)
    bench.worker("w", b"c-0")
    bench.request("c", 7, service=b"c-7")
    assert not refused(bench, "c"), "the first service has a worker now"
    bench.request("c", 8, service=b"c-8")
    assert len(refused(bench, "c")) == 1


def test_a_service_that_had_a_worker_stays_for_its_time_to_live():
    bench = BrokerBench(service_grace_s=1.0, service_ttl_s=60.0)
    bench.request("c", 1)
    bench.worker("w")
    bench.final("w")
    bench.lose("w")
    bench.request("c", 2)
    bench.advance(2.0)
    assert bench.finals("c")[-1].status == Status.NO_SERVICE
    assert set(bench.broker.services) == {b"echo"}
    bench.advance(60.0)
    assert not bench.broker.services


@older
def test_an_older_client_is_not_read_from_until_its_requests_have_ended(version):
    bench = BrokerBench(client_services_max=3, service_grace_s=5.0)
    bench.client("c", version)
    encode = bench.dialect_of("c").encode
    names = [b"s-%d" % n for n in range(10)]
    bench.feed(Received("c", [encode(ClientRequest(name, [b"x"])) for name in names]))
    assert list(bench.unread) == ["c"]
    assert len(bench.broker.services) == 4, "one more than the limit; the rest waits"
    (warning,) = [each for each in bench.warnings if each.kind == "pushback"]
    assert "(client_services_max, --client-services-max)" in warning.text
    for _ in range(10):
        bench.advance(5.0)
        assert len(bench.broker.services) <= 4
    assert not bench.unread
    assert len(bench.noted("accepted")) == 10
    assert bench.broker.snapshot().timers == 0


@older
def test_a_name_counts_for_a_client_that_waits_there(version):
    bench = BrokerBench(client_services_max=1, service_grace_s=5.0)
    bench.client("c", version)
    encode = bench.dialect_of("c").encode
    for name in (b"a", b"b"):
        bench.feed(Received("c", [encode(ClientRequest(name, [b"x"]))]))
    assert list(bench.unread) == ["c"]
    bench.advance(2.0)
    for n, name in enumerate((b"a", b"b")):
        bench.request("d", n, service=name)
    bench.request("d", 2, service=b"c")
    assert not refused(bench, "d"), "it has named one service; two were known"
    bench.advance(3.0)
    assert not bench.unread, "its requests have ended"
    bench.request("d", 3, service=b"d")
    assert len(refused(bench, "d")) == 1
    bench.advance(5.0)
    assert not bench.broker.services


def test_the_limit_is_at_least_one():
    with pytest.raises(ConfigurationError, match="client_services_max"):
        BrokerPolicy(client_services_max=0)


def test_workers_that_come_and_go_leave_no_services_above_the_limit():
    bench = BrokerBench(services_max=100)
    for n in range(300):
        bench.worker(f"w{n}", b"s-%d" % n)
        bench.lose(f"w{n}")
        bench.advance(0.001)
    assert len(bench.broker.services) <= 101
    bench.request("c", 1, service=b"new")
    bench.advance(61.0)
    assert not bench.broker.services
