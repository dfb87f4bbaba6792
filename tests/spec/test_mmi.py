"""Requirements of 8/MMI: the broker's own services, queried in every dialect."""

from __future__ import annotations

import json

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.protocols.majordomo.wire import ClientFinal, Disconnect

ALL = ("0.1", "0.2", "0.3")
every_version = pytest.mark.parametrize("version", ALL)


def ask(bench: BrokerBench, service: bytes, about: bytes = b"") -> bytes:
    """Send a request of the client c; return the body of the only reply."""
    before = len(bench.sent("c"))
    bench.request("c", 7, about, service=service)
    (reply,) = bench.sent("c")[before:]
    assert isinstance(reply, ClientFinal)
    (body,) = reply.body
    return body


@pytest.fixture
def bench(version: str) -> BrokerBench:
    bench = BrokerBench()
    bench.client("c", version)
    return bench


@requirement("mmi:service:200", "mmi:service:404")
@pytest.mark.parametrize("worker", ALL)
@every_version
def test_mmi_service_answers_whether_a_service_is_registered(
    bench: BrokerBench, worker: str
) -> None:
    assert ask(bench, b"mmi.service", b"echo") == b"404"
    bench.worker("w", version=worker)
    assert ask(bench, b"mmi.service", b"echo") == b"200"
    assert ask(bench, b"mmi.service", b"other") == b"404"
    assert ask(bench, b"mmi.service", b"") == b"404"
    bench.lose("w")
    assert ask(bench, b"mmi.service", b"echo") == b"404"


@requirement("mmi:service:200")
@every_version
def test_a_service_is_registered_while_its_workers_are_busy(bench: BrokerBench) -> None:
    bench.worker("w")
    bench.request("c", 1)
    assert ask(bench, b"mmi.service", b"echo") == b"200"


@requirement("mmi:service:404")
@every_version
def test_a_service_with_requests_and_no_worker_is_not_registered(bench: BrokerBench) -> None:
    bench.request("c", 1)
    assert ask(bench, b"mmi.service", b"echo") == b"404"


@requirement("mmi:other:501", "mmi:reserved")
@pytest.mark.parametrize("name", [b"mmi.", b"mmi.echo", b"mmi.service2", b"mmi.Service"])
@every_version
def test_other_names_with_the_prefix_are_not_implemented(bench: BrokerBench, name: bytes) -> None:
    assert ask(bench, name, b"echo") == b"501"
    assert bench.broker.snapshot().services == ()


@requirement("mmi:reserved")
@pytest.mark.parametrize("name", [b"foommi.service", b"mmi", b"MMI.service", b" mmi.service"])
@every_version
def test_a_name_that_only_resembles_the_prefix_is_an_ordinary_service(
    bench: BrokerBench, name: bytes
) -> None:
    bench.worker("w", name)
    assert "w" not in bench.disconnected
    bench.request("c", 7, b"hello", service=name)
    assert [request.body for request in bench.requests("w")] == [[b"hello"]]


@requirement("mmi:register", "mmi:reserved")
@pytest.mark.parametrize("name", [b"mmi.", b"mmi.service", b"mmi.mine"])
@every_version
def test_a_worker_that_registers_a_reserved_name_is_disconnected(version: str, name: bytes) -> None:
    bench = BrokerBench()
    bench.worker("w", name, version=version)
    assert bench.sent("w") == [Disconnect()]
    assert "w" in bench.disconnected
    assert bench.broker.snapshot().services == ()


@requirement("mmi:reserved")
@pytest.mark.parametrize("name", [b"mmi.list", b"mmi.stats", b"mmi.workers", b"mmi.ping"])
@every_version
def test_requites_own_services_reply_with_one_frame_of_json(
    bench: BrokerBench, name: bytes
) -> None:
    bench.worker("w")
    answer = json.loads(ask(bench, name))
    assert answer
    if name != b"mmi.ping":
        assert "echo" in json.dumps(answer)


@every_version
def test_the_services_under_a_prefix(bench: BrokerBench) -> None:
    assert json.loads(ask(bench, b"mmi.under", b"core/")) == []
    bench.worker("w", b"core/1", instance=b"\x01" * 8)
    bench.worker("v", b"core/1", instance=b"\x02" * 8)
    bench.worker("x", b"other/1")
    bench.request("c", 8, service=b"core/1")
    bench.request("c", 9, service=b"core/2")
    assert json.loads(ask(bench, b"mmi.under", b"core/")) == [
        {
            "service": "core/1",
            "workers": ["01" * 8, "02" * 8],
            "queued": 0,
            "in_progress": 1,
            "accepted": 1,
        },
        {"service": "core/2", "workers": [], "queued": 1, "in_progress": 0, "accepted": 1},
    ]
    assert len(json.loads(ask(bench, b"mmi.under"))) == 3
