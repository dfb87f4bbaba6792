"""Freelance with pyzmq peers: all three models, with requite as client and as server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import zmq
from tests.e2e.sp import Echo, Serving
from tests.spec.requirement import requirement
from tests.support.freelance_peers import (
    Answer,
    ModelThreeClient,
    ModelTwoClient,
    PeerServer,
    ask_model_one,
    echo_model_one,
    ok_model_three,
    ok_model_two,
)

import requite

pytestmark = pytest.mark.interop

TIMEOUT_S = 20.0
MODELS: dict[str, tuple[int, Answer, bytes]] = {
    "failover": (zmq.REP, echo_model_one, b"hello"),
    "shotgun": (zmq.REP, ok_model_two, b"OK"),
    "agent": (zmq.ROUTER, ok_model_three, b"OK"),
}
Peers = Callable[..., PeerServer]


@pytest.fixture
def peers() -> Iterator[Peers]:
    """A function that makes servers of a model. The fixture stops them after the test."""
    made: list[PeerServer] = []

    def make(model: str, endpoint: str = "tcp://127.0.0.1:*") -> PeerServer:
        kind, answer, _ = MODELS[model]
        made.append(PeerServer(kind, answer, endpoint))
        return made[-1]

    yield make
    for peer in made:
        peer.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    """An event loop with workers."""
    it = Serving()
    yield it
    it.close()


def url(model: str, *servers: PeerServer) -> str:
    return f"flp://{','.join(server.place for server in servers)}?model={model}"


def endpoint_of(url: str) -> str:
    """Return the endpoint that a pyzmq peer connects to."""
    return f"tcp://{url.removeprefix('flp://').partition('?')[0]}"


# --- requite as the client ------------------------------------------------------------------------
@pytest.mark.parametrize("model", MODELS)
def test_a_client_of_ours_is_answered(model: str, peers: Peers) -> None:
    servers = [peers(model) for _ in range(3)]
    expected = MODELS[model][2]
    with requite.Client(url(model, *servers), timeout=TIMEOUT_S) as client:
        assert client.call(b"hello").body == expected
        replies = [reply.body for reply in client.map([b"hello"] * 50, concurrency=16)]
    assert replies == [expected] * 50


@pytest.mark.parametrize("model", MODELS)
def test_a_server_that_is_gone_is_replaced(model: str, peers: Peers) -> None:
    first, second = peers(model), peers(model)
    with requite.Client(url(model, first, second), timeout=TIMEOUT_S) as client:
        client.call(b"hello")
        first.close()
        for _ in range(5):
            assert client.call(b"hello").body == MODELS[model][2]
        third = peers(model, first.endpoint)
        second.close()
        assert client.call(b"hello").body == MODELS[model][2]
        assert third.requests()


@pytest.mark.parametrize("model", MODELS)
def test_a_server_in_a_busy_loop_is_passed_over(model: str, peers: Peers) -> None:
    first, second = peers(model), peers(model)
    settings = {"heartbeat": 0.3} if model == "agent" else {}
    with requite.Client(url(model, first, second), timeout=TIMEOUT_S, **settings) as client:
        client.call(b"hello")
        first.silence()
        assert client.call(b"hello").body == MODELS[model][2]
        assert client.call(b"hello").attempts == 1
        assert second.requests()


@requirement("flp:ping", "flp:client:pings")
def test_pings_are_answered_by_a_server_after_the_guide(peers: Peers) -> None:
    server = peers("agent")
    with requite.Client(url("agent", server), timeout=TIMEOUT_S, heartbeat=0.1) as client:
        client.call(b"hello")
        client.call(b"hello")
    assert [message[1:] for message in server.seen if message[-1] == b"PING"]


@requirement("flp:client:router", "flp:client:no-identity")
def test_our_client_has_no_identity_and_is_a_router(peers: Peers) -> None:
    server = peers("agent")
    with requite.Client(url("agent", server), timeout=TIMEOUT_S) as client:
        client.call(b"hello")
    identities = {message[0] for message in server.seen}
    assert all(identity[:1] == b"\0" for identity in identities), "libzmq made them up"


# --- requite as the server ------------------------------------------------------------------------
@requirement("flp:server:router", "flp:server:identity", "flp:server:public-endpoint", "flp:pong")
def test_a_client_after_the_guide_addresses_our_server_by_its_endpoint(serving: Serving) -> None:
    bound = serving.start(Echo(), bind="flp://127.0.0.1:0")
    endpoint = endpoint_of(bound[0])
    client = ModelThreeClient(endpoint)
    try:
        client.send(endpoint, b"PING")
        assert client.receive() == (endpoint, [b"PONG"])
        client.send(endpoint, b"17", b"hello")
        assert client.receive() == (endpoint, [b"17", b"hello"])
    finally:
        client.close()


@requirement("flp:server:public-endpoint")
def test_a_server_at_all_addresses_is_known_by_its_public_endpoint(serving: Serving) -> None:
    [bound] = serving.start(Echo(), bind="flp://*:0?public=tcp://127.0.0.1:0", insecure=True)
    endpoint = f"tcp://127.0.0.1:{bound.rpartition(':')[2]}"
    client = ModelThreeClient(endpoint)
    try:
        client.send(endpoint, b"PING")
        assert client.receive() == (endpoint, [b"PONG"])
    finally:
        client.close()


@requirement("flp:request:control-frame", "flp:reply", "flp:n-to-n")
def test_several_clients_talk_with_several_servers(serving: Serving) -> None:
    endpoints = [endpoint_of(serving.start(Echo(), bind="flp://127.0.0.1:0")[0]) for _ in range(2)]
    clients = [ModelThreeClient(*endpoints) for _ in range(3)]
    try:
        for i, client in enumerate(clients):
            for endpoint in endpoints:
                client.send(endpoint, b"\0\xff%d" % i, b"body", b"of two")
        for i, client in enumerate(clients):
            replies = dict(client.receive() for _ in endpoints)
            assert replies == {each: [b"\0\xff%d" % i, b"bodyof two"] for each in endpoints}
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("bind", ["flp://127.0.0.1:0?model=failover", "flp://127.0.0.1:0"])
def test_a_req_client_is_answered(bind: str, serving: Serving) -> None:
    """Model three accepts it too: it treats the envelope as an empty control frame."""
    endpoint = endpoint_of(serving.start(Echo(), bind=bind)[0])
    nobody = "tcp://127.0.0.1:1"
    assert ask_model_one([nobody, endpoint], [b"hello"], 2.5) == [b"hello"]


def test_a_req_client_reaches_our_server_through_a_proxy(serving: Serving) -> None:
    """A ROUTER and a DEALER forward the messages, so envelopes of any length must come back."""
    endpoint = endpoint_of(serving.start(Echo(), bind="flp://127.0.0.1:0?model=failover")[0])
    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        for sock in (req, front, back):
            sock.linger = 0
        port = front.bind_to_random_port("tcp://127.0.0.1")
        back.connect(endpoint)
        req.connect(f"tcp://127.0.0.1:{port}")
        req.send(b"hello")
        for source, sink in ((front, back), (back, front)):
            assert source.poll(TIMEOUT_S * 1000)
            sink.send_multipart(source.recv_multipart())
        assert req.poll(TIMEOUT_S * 1000)
        assert req.recv_multipart() == [b"hello"]
        front.close()
        back.close()


def test_a_dealer_that_asks_everybody_is_answered(serving: Serving) -> None:
    bind = "flp://127.0.0.1:0?model=shotgun"
    client = ModelTwoClient([endpoint_of(serving.start(Echo(), bind=bind)[0]) for _ in range(3)])
    try:
        for i in range(20):
            assert client.ask(b"%d" % i) == [b"%d" % i]
    finally:
        client.close()
