"""The Guide's own Majordomo programs, at a broker of requite: peers that do what its text does.

Source: Guide, "Service-Oriented Reliable Queuing (Majordomo Pattern)" and "Asynchronous Majordomo
Pattern". The frames are spelt out in `tests/support/zmq_peers.py`.
"""

from __future__ import annotations

from time import sleep

import pytest
from tests.support.live import MakeBroker
from tests.support.zmq_peers import (
    RFCS,
    HandClient,
    Handler,
    HandWorker,
    ServingWorker,
    Sockets,
    echo,
)

from requite.heartbeat import HeartbeatPolicy
from requite.protocols.majordomo.policy import BrokerPolicy

pytestmark = pytest.mark.interop

GUIDES_INTERVAL_S = 2.5


def working_for(seconds: float) -> Handler:
    """Return a handler that keeps its worker's only thread busy: no heartbeat leaves meanwhile."""

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
