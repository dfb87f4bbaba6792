"""The ZeroMQ Guide's Majordomo programs with a requite broker: peers that follow its text.

Source: Guide, "Service-Oriented Reliable Queuing (Majordomo Pattern)" and "Asynchronous Majordomo
Pattern". The frames are spelt out in `tests/support/zmq_peers.py`.
"""

from __future__ import annotations

from time import sleep

import pytest
from tests.support.live import MakeBroker, eventually
from tests.support.zmq_peers import (
    RFC7,
    RFCS,
    HandClient,
    Handler,
    HandWorker,
    ServingWorker,
    Sockets,
    echo,
)

from requite.core.liveness import HeartbeatPolicy
from requite.protocols.majordomo.policy import BrokerPolicy

pytestmark = pytest.mark.interop

GUIDES_INTERVAL_S = 2.5


def working_for(seconds: float) -> Handler:
    """Return a handler that blocks its worker's only thread, so it sends no heartbeats."""

    def work(worker: HandWorker, address: bytes, body: list[bytes]) -> None:
        sleep(seconds)
        echo(worker, address, body)

    return work


@pytest.mark.parametrize("version", RFCS)
@pytest.mark.parametrize(
    ("policy", "work_s"),
    [
        pytest.param(BrokerPolicy(heartbeat=HeartbeatPolicy(0.05, 3)), 0.4, id="in short"),
        pytest.param(BrokerPolicy(), 5.0, marks=pytest.mark.long, id="as it stands"),
    ],
)
def test_mdworker_works_for_longer_than_silence_is_allowed(
    policy: BrokerPolicy, work_s: float, version: str, sockets: Sockets, make_broker: MakeBroker
) -> None:
    broker = make_broker(policy=policy)
    rfc, handler = RFCS[version], working_for(work_s)
    with ServingWorker(sockets, broker.endpoint, rfc, handler, interval_s=GUIDES_INTERVAL_S):
        client = HandClient(sockets, broker.endpoint, rfc)
        assert client.call(b"echo", b"Hello world") == [b"Hello world"]
        (row,) = broker.workers("echo")
        assert row["served"] == 1
        service = broker.await_service("echo", workers=1)
        assert (service["redelivered"], service["failed"]) == (0, 0)


@pytest.mark.parametrize(
    ("count", "policy"),
    [
        pytest.param(2_000, BrokerPolicy(client_pending_max=200), id="in short"),
        pytest.param(100_000, BrokerPolicy(), marks=pytest.mark.long, id="as it stands"),
    ],
)
def test_mdclient2_asks_for_everything_before_it_takes_a_reply(
    count: int,
    policy: BrokerPolicy,
    sockets: Sockets,
    make_broker: MakeBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The Guide's libzmq had no high-water marks, so its client never waits to send."""
    broker = make_broker(policy=policy)
    client = HandClient(sockets, broker.endpoint, RFC7, SNDHWM=0, RCVHWM=0)
    with ServingWorker(sockets, broker.endpoint, RFC7, interval_s=GUIDES_INTERVAL_S):
        for _ in range(count):
            client.request(b"echo", b"Hello world")
        for _ in range(count):
            assert client.reply() == ("final", b"echo", [b"Hello world"])
        service = broker.await_service("echo", queued=0, in_progress=0)
        assert (service["accepted"], service["replied"]) == (count, count)
        assert broker.stats()["unread"] == 0
    assert "stopped reading from an MDP 0.1 client" in caplog.text


def test_a_client_that_is_not_read_from_may_hang_up(
    sockets: Sockets, make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a client that abandons an attempt and reconnects (mdcliapi.c)."""
    monkeypatch.setattr("requite.transport.stream._LOOK_EVERY_S", 0.01)
    broker = make_broker(policy=BrokerPolicy(client_pending_max=1, service_grace_s=300.0))
    client = HandClient(sockets, broker.endpoint, RFC7)
    for _ in range(2):
        client.request(b"echo", b"read")
    eventually(lambda: broker.stats()["unread"], "the client is pushed back")
    client.request(b"echo", b"unread")
    assert broker.stats()["pending"] == 2
    client.socket.zmq.close(linger=1000)
    eventually(lambda: not broker.stats()["pending"], "its requests are dropped")
    assert broker.stats()["clients"] == 1  # the client that requests the statistics
    assert broker.stats()["unread"] == 0
