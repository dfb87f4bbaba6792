"""18/MDP: raw pyzmq sockets send the RFC's frames to a requite broker.

The first tests cover every frame of the document's tables; the others cover what only 18/MDP has.
Tests that it shares with 7/MDP are in `rfc_suite.py`.
"""

from __future__ import annotations

import pytest
import zmq
from tests.interop.rfc_suite import RfcSuite
from tests.support.live import LiveBroker, MakeBroker
from tests.support.zmq_peers import RFC18, Socket, Sockets

pytestmark = pytest.mark.interop


def test_the_frames_are_those_of_the_rfc(sockets: Sockets, broker: LiveBroker) -> None:
    worker = Socket(sockets, zmq.DEALER, broker.endpoint)
    client = Socket(sockets, zmq.DEALER, broker.endpoint, b"client-1")
    worker.send(b"MDPW02", b"\x01", b"echo")
    client.send(b"MDPC02", b"\x01", b"echo", b"hello", b"", b"world")
    assert worker.receive() == [
        b"MDPW02", b"\x02", b"client-1", b"", b"hello", b"", b"world",
    ]  # fmt: skip
    worker.send(b"MDPW02", b"\x03", b"client-1", b"", b"some")
    assert client.receive() == [b"MDPC02", b"\x02", b"echo", b"some"]
    worker.send(b"MDPW02", b"\x04", b"client-1", b"", b"the", b"rest")
    assert client.receive() == [b"MDPC02", b"\x03", b"echo", b"the", b"rest"]


def test_heartbeat_and_disconnect_are_those_of_the_rfc(
    sockets: Sockets, broker: LiveBroker
) -> None:
    worker = Socket(sockets, zmq.DEALER, broker.endpoint)
    worker.send(b"MDPW02", b"\x01", b"echo")
    assert worker.receive() == [b"MDPW02", b"\x05"]  # within the default interval of 1 s
    worker.send(b"MDPW02", b"\x05")
    worker.send(b"MDPW02", b"\x06")
    broker.await_workers("echo", 0)
    stranger = Socket(sockets, zmq.DEALER, broker.endpoint)
    stranger.send(b"MDPW02", b"\x05")
    assert stranger.receive() == [b"MDPW02", b"\x06"]


class TestRfc18(RfcSuite):
    """Tests that 18/MDP shares with 7/MDP."""

    rfc = RFC18

    def test_partials_come_in_order_and_before_the_final(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        address, _ = worker.take()
        for number in range(20):
            worker.partial(address, b"%d" % number, b"")
        worker.final(address, b"end")
        assert client.replies() == [
            *(("partial", [b"%d" % number, b""]) for number in range(20)),
            ("final", [b"end"]),
        ]

    def test_nothing_follows_the_final(self, sockets: Sockets, broker: LiveBroker) -> None:
        """A second FINAL has no request: its worker gets DISCONNECT, its client nothing."""
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        address, _ = worker.take()
        worker.final(address, b"one")
        worker.final(address, b"two")
        worker.awaited("disconnect")
        assert client.reply() == ("final", b"echo", [b"one"])
        assert client.call(b"mmi.service", b"echo") == [b"404"]

    def test_a_worker_that_vanished_after_a_partial_is_not_replaced(
        self, sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The partial replies of a second worker would not continue those of the first."""
        broker = make_broker()
        first = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        client.request(b"echo", b"x")
        address, _ = first.take()
        first.partial(address, b"some")
        assert client.reply()[0] == "partial"
        second = self.worker(sockets, broker)
        broker.await_workers("echo", 2)
        first.close()
        broker.await_service("echo", failed=1, redelivered=0)
        assert "WORKER_LOST" in caplog.text
        client.request(b"echo", b"y")
        assert second.serve_one() == [b"y"]
        assert client.reply() == ("final", b"echo", [b"y"])

    def test_a_client_may_have_several_requests_out(
        self, sockets: Sockets, broker: LiveBroker
    ) -> None:
        """The RFC does not recommend it, but its DEALER allows it: replies arrive in any order."""
        worker = self.worker(sockets, broker)
        client = self.client(sockets, broker)
        for number in range(10):
            client.request(b"echo", b"%d" % number)
        for _ in range(10):
            worker.serve_one()
        assert [client.reply()[2] for _ in range(10)] == [[b"%d" % n] for n in range(10)]
