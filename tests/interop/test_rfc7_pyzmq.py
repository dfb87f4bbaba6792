"""7/MDP: raw pyzmq sockets send the RFC's frames to a requite broker.

The first tests cover every frame of the document's tables; the others cover what only 7/MDP has:
REQ sockets, and one reply per request. Tests that it shares with 18/MDP are in `rfc_suite.py`.
"""

from __future__ import annotations

import pytest
import zmq
from tests.interop.rfc_suite import ClientSuite, RfcSuite
from tests.support.live import LiveBroker, MakeBroker
from tests.support.zmq_peers import RFC7, RFC18, HandClient, HandWorker, Socket, Sockets

from requite.protocols.majordomo.policy import BrokerPolicy, PartialsFor01

pytestmark = pytest.mark.interop


def test_the_frames_are_those_of_the_rfc(sockets: Sockets, broker: LiveBroker) -> None:
    worker = Socket(sockets, zmq.DEALER, broker.endpoint)
    client = Socket(sockets, zmq.REQ, broker.endpoint, b"client-1")
    worker.send(b"", b"MDPW01", b"\x01", b"echo")
    client.send(b"MDPC01", b"echo", b"hello", b"", b"world")
    assert worker.receive() == [
        b"", b"MDPW01", b"\x02", b"client-1", b"", b"hello", b"", b"world",
    ]  # fmt: skip
    worker.send(b"", b"MDPW01", b"\x03", b"client-1", b"", b"the", b"reply")
    assert client.receive() == [b"MDPC01", b"echo", b"the", b"reply"]


def test_a_dealer_writes_and_gets_the_empty_frame_itself(
    sockets: Sockets, broker: LiveBroker
) -> None:
    client = Socket(sockets, zmq.DEALER, broker.endpoint)
    client.send(b"", b"MDPC01", b"mmi.service", b"echo")
    assert client.receive() == [b"", b"MDPC01", b"mmi.service", b"404"]


def test_heartbeat_and_disconnect_are_those_of_the_rfc(
    sockets: Sockets, broker: LiveBroker
) -> None:
    worker = Socket(sockets, zmq.DEALER, broker.endpoint)
    worker.send(b"", b"MDPW01", b"\x01", b"echo")
    assert worker.receive() == [b"", b"MDPW01", b"\x04"]  # within the default interval of 1 s
    worker.send(b"", b"MDPW01", b"\x04")
    worker.send(b"", b"MDPW01", b"\x05")
    broker.await_workers("echo", 0)
    stranger = Socket(sockets, zmq.DEALER, broker.endpoint)
    stranger.send(b"", b"MDPW01", b"\x04")
    assert stranger.receive() == [b"", b"MDPW01", b"\x05"]


class TestRfc7(RfcSuite):
    """Tests that 7/MDP shares with 18/MDP, with DEALER sockets."""

    rfc = RFC7


class TestRfc7WithReqSockets(ClientSuite):
    """Tests of clients with REQ sockets, the usual sockets of 7/MDP."""

    rfc = RFC7
    client_kind = zmq.REQ


# --- workers with partial replies, clients with one reply -----------------------------------------
@pytest.fixture(params=[zmq.REQ, zmq.DEALER], ids=["REQ", "DEALER"])
def kind(request: pytest.FixtureRequest) -> int:
    """The two kinds of sockets of 7/MDP clients."""
    kind: int = request.param
    return kind


def test_partials_are_joined_into_the_one_reply(
    kind: int, sockets: Sockets, broker: LiveBroker
) -> None:
    worker = HandWorker(sockets, broker.endpoint, RFC18)
    client = HandClient(sockets, broker.endpoint, RFC7, kind=kind)
    client.request(b"echo", b"x")
    address, _ = worker.take()
    worker.partial(address, b"one", b"two")
    worker.partial(address, b"three")
    worker.final(address, b"four")
    assert client.reply() == ("final", b"echo", [b"one", b"two", b"three", b"four"])
    assert client.call(b"mmi.service", b"echo") == [b"200"]  # so nothing arrived in between


def test_partials_of_a_worker_that_vanished_are_not_mixed_with_those_of_the_next(
    sockets: Sockets, broker: LiveBroker
) -> None:
    first = HandWorker(sockets, broker.endpoint, RFC18)
    client = HandClient(sockets, broker.endpoint, RFC7, kind=zmq.REQ)
    client.request(b"echo", b"x")
    first.partial(first.take()[0], b"stale")
    first.disconnect()
    second = HandWorker(sockets, broker.endpoint, RFC18)
    address, _ = second.take()
    second.partial(address, b"fresh")
    second.final(address, b"end")
    assert client.reply()[2] == [b"fresh", b"end"]


def test_a_broker_that_refuses_partials_says_so_where_it_may_speak(
    kind: int, sockets: Sockets, make_broker: MakeBroker
) -> None:
    broker = make_broker(
        policy=BrokerPolicy(partials_for_0_1=PartialsFor01.REFUSE, tell_old_clients=True)
    )
    worker = HandWorker(sockets, broker.endpoint, RFC18)
    client = HandClient(sockets, broker.endpoint, RFC7, kind=kind)
    client.request(b"echo", b"x")
    address, _ = worker.take()
    worker.partial(address, b"one")
    worker.final(address, b"two")
    status, reason = client.reply()[2]
    assert status == b"requite-error FAILED"
    assert b"partial replies, which MDP 0.1 does not have" in reason
    client.request(b"echo", b"y")
    worker.serve_one()
    assert client.reply()[2] == [b"y"]


def test_a_broker_that_refuses_partials_is_silent_otherwise(
    sockets: Sockets, make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(policy=BrokerPolicy(partials_for_0_1=PartialsFor01.REFUSE))
    worker = HandWorker(sockets, broker.endpoint, RFC18)
    client = HandClient(sockets, broker.endpoint, RFC7)
    client.request(b"echo", b"x")
    address, _ = worker.take()
    worker.partial(address, b"one")
    worker.final(address, b"two")
    broker.await_service("echo", failed=1)
    assert client.call(b"mmi.service", b"echo") == [b"200"]
    assert "a client of MDP 0.1, which has no error replies, gets no answer: FAILED" in caplog.text


# --- the Guide's Lazy Pirate ----------------------------------------------------------------------
def test_a_lazy_pirate_resends_on_a_new_socket_and_gets_one_reply(
    sockets: Sockets, broker: LiveBroker
) -> None:
    """Both RFCs recommend it: without a reply in time, close the socket and retry on a new one."""
    worker = HandWorker(sockets, broker.endpoint, RFC7)
    client = HandClient(sockets, broker.endpoint, RFC7, kind=zmq.REQ)
    client.request(b"echo", b"first try")
    address, body = worker.take()
    assert not client.socket.has_message(0.05)
    client.socket.close()
    broker.await_service("echo", cancelled=1)
    client = HandClient(sockets, broker.endpoint, RFC7, kind=zmq.REQ)
    client.request(b"echo", b"second try")
    worker.final(address, *body)  # late, for a disconnected client
    worker.serve_one()
    assert client.reply()[2] == [b"second try"]
