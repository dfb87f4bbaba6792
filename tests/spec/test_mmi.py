"""Requirements of 8/MMI: the broker's own services, queried in every dialect."""

from __future__ import annotations

import json

import pytest
from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import Received
from requite.principal import Principal, Rights
from requite.protocols.majordomo.wire import ClientFinal, Disconnect
from requite.request import Status

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
@pytest.mark.parametrize(
    "name", [b"mmi.list", b"mmi.stats", b"mmi.workers", b"mmi.census", b"mmi.ping"]
)
@every_version
def test_requites_own_services_reply_with_one_frame_of_json(
    bench: BrokerBench, name: bytes
) -> None:
    bench.worker("w")
    answer = json.loads(ask(bench, name))
    assert answer
    if name != b"mmi.ping":
        assert "echo" in json.dumps(answer)


# --- mmi.describe ---------------------------------------------------------------------------------
def describing(digits: str, *, name: bytes = b"orders") -> list[bytes]:
    """Return the frames of a request for `mmi.describe`: call number 42, with a limit of 2.5 s."""
    return [bytes.fromhex(digits) + b"mmi.describe", name]


REQUEST = "4d445043303301 000000070000002a 000009c4 00 0c a1b2c3d4e5f60718000000000000002a"


@requirement("mdp03:mmi-describe")
def test_a_request_for_a_description_reaches_the_service_byte_by_byte() -> None:
    bench = BrokerBench()
    bench.worker("w", b"orders.describe")
    bench.client("c")
    bench.feed(Received("c", [describing(REQUEST)]))
    (request,) = bench.requests("w")
    assert bench.dialect_of("w").encode(request) == [
        bytes.fromhex(
            "4d445057303302 0000000000000001 000009c4 01 a1b2c3d4e5f60718000000000000002a"
        ),
        b"",
    ]
    bench.final("w", b'{"requite":1}')
    (reply,) = bench.sent("c")
    assert bench.dialect_of("c").encode(reply) == [
        bytes.fromhex("4d445043303303 000000070000002a 00 01"),
        b'{"requite":1}',
    ]
    assert {state.service for state in bench.broker.snapshot().services} == {"orders.describe"}


@requirement("mdp03:mmi-describe")
@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_older_clients_know_no_descriptions(bench: BrokerBench) -> None:
    bench.worker("w", b"orders.describe")
    assert ask(bench, b"mmi.describe", b"orders") == b"501"
    assert bench.requests("w") == []


@requirement("mdp03:mmi-describe")
def test_a_description_needs_the_right_to_call_the_service() -> None:
    bench = BrokerBench()
    bench.worker("w", b"orders.describe")
    bench.client("c", principal=Principal("shop", Rights(call=("orders.*",))))
    bench.client("d", principal=Principal("till", Rights(call=("orders.price",))))
    for client in ("c", "d"):
        bench.request(client, 7, b"orders", service=b"mmi.describe")
    assert len(bench.requests("w")) == 1
    (denied,) = bench.sent("d")
    assert denied.status == Status.DENIED
    assert b"no right to call 'orders.describe'" in denied.body[0]


@requirement("mdp03:mmi-describe")
@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"orders", Status.NO_SERVICE),
        (b"", Status.NO_SERVICE),
        (b"mmi", Status.NO_SERVICE),
        (b"mmi.describe", Status.OK),
    ],
)
def test_descriptions_of_services_that_are_not_there(name: bytes, status: Status) -> None:
    bench = BrokerBench(service_grace_s=1.0)
    bench.client("c")
    bench.request("c", 7, name, service=b"mmi.describe")
    bench.advance(1.1)
    (reply,) = bench.sent("c")
    assert reply.status == status
    if status == Status.OK:  # of the broker's own service mmi.describe.describe
        assert reply.body == [b"501"]


@requirement("mdp03:mmi-describe", "mdp03:service-name")
@pytest.mark.parametrize("name", [b"a\n", b"\xff", b"a" * 250])
def test_a_description_of_an_invalid_name_ends_the_connection(name: bytes) -> None:
    bench = BrokerBench()
    bench.client("c")
    bench.request("c", 7, name, service=b"mmi.describe")
    assert "c" in bench.disconnected


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
