"""Every client with every worker: pyzmq with MDP 0.1 and 0.2, requite with 0.1, 0.2 and 0.3.

The broker talks to each peer in its own dialect, and translates between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import pytest
import zmq
from tests.support.live import Live, LiveBroker, MakeBroker
from tests.support.zmq_peers import (
    RFC7,
    RFC18,
    HandClient,
    Rfc,
    ServingWorker,
    Sockets,
    two_partials,
)

import requite
from requite.protocols.majordomo.policy import BrokerPolicy

pytestmark = pytest.mark.interop

Answer = list[tuple[str, list[bytes]]]
"""All replies to a request: "partial" or "final", and the frames."""


# --- clients: functions that send a request and return all replies --------------------------------
Ask = Callable[[str, Sequence[bytes]], Answer]
MakeClient = Callable[[Sockets, LiveBroker], AbstractContextManager[Ask]]


def hand_client(rfc: Rfc, kind: int = zmq.DEALER) -> MakeClient:
    """Return a maker of pyzmq clients."""

    @contextmanager
    def make(sockets: Sockets, broker: LiveBroker) -> Iterator[Ask]:
        client = HandClient(sockets, broker.endpoint, rfc, kind=kind)

        def ask(service: str, body: Sequence[bytes]) -> Answer:
            client.request(service.encode(), *body)
            return client.replies()

        yield ask

    return make


def requite_client(dialect: str, *, streaming: bool) -> MakeClient:
    """Return a maker of requite's blocking client, which uses `stream` or `call`."""

    @contextmanager
    def make(_sockets: Sockets, broker: LiveBroker) -> Iterator[Ask]:
        with requite.Client(broker.url, dialect=dialect, timeout=10.0) as client:

            def ask(service: str, body: Sequence[bytes]) -> Answer:
                if not streaming:
                    return [("final", list(client.call(body, service=service).frames))]
                return [
                    ("partial" if isinstance(each, requite.Partial) else "final", list(each.frames))
                    for each in client.stream(body, service=service)
                ]

            yield ask

    return make


CLIENTS = {
    "pyzmq REQ 0.1": hand_client(RFC7, zmq.REQ),
    "pyzmq DEALER 0.1": hand_client(RFC7),
    "pyzmq DEALER 0.2": hand_client(RFC18),
    "requite call 0.1": requite_client("0.1", streaming=False),
    "requite call 0.2": requite_client("0.2", streaming=False),
    "requite stream 0.2": requite_client("0.2", streaming=True),
    "requite call 0.3": requite_client("0.3", streaming=False),
    "requite stream 0.3": requite_client("0.3", streaming=True),
}
SEE_PARTIALS = {"pyzmq DEALER 0.2", "requite stream 0.2", "requite stream 0.3"}


# --- workers: `echo`; with partial replies also `parts`, which sends two of them ------------------
@requite.service("echo")
def echo(request: requite.Request) -> Sequence[bytes]:
    """Return the frames of the request."""
    return request.frames


@requite.service("parts")
def parts(request: requite.Request) -> Iterator[bytes]:
    """Yield two partial replies before the final one."""
    yield b"one"
    yield b"two"
    return request.frames


@requite.service("fails")
def fails(request: requite.Request) -> bytes:
    """Fail every request."""
    raise requite.RemoteFailure("out of paper")


MakeWorker = Callable[[Sockets, LiveBroker], AbstractContextManager[object]]


def hand_worker(rfc: Rfc) -> MakeWorker:
    """Return a maker of pyzmq workers."""

    @contextmanager
    def make(sockets: Sockets, broker: LiveBroker) -> Iterator[None]:
        with ServingWorker(sockets, broker.endpoint, rfc):
            if rfc.worker_partial is None:
                yield
                return
            with ServingWorker(sockets, broker.endpoint, rfc, two_partials, service=b"parts"):
                yield

    return make


def requite_worker(dialect: str) -> MakeWorker:
    """Return a maker of requite's worker."""

    @contextmanager
    def make(_sockets: Sockets, broker: LiveBroker) -> Iterator[None]:
        services = [echo, parts, fails] if dialect != "0.1" else [echo, fails]
        worker = Live(requite.Worker(broker.url, *services, dialect=dialect))
        try:
            yield
        finally:
            worker.close()

    return make


WORKERS = {
    "pyzmq 0.1": hand_worker(RFC7),
    "pyzmq 0.2": hand_worker(RFC18),
    "requite 0.1": requite_worker("0.1"),
    "requite 0.2": requite_worker("0.2"),
    "requite 0.3": requite_worker("0.3"),
}

clients = pytest.mark.parametrize("client", CLIENTS)
workers = pytest.mark.parametrize("worker", WORKERS)
workers_with_partials = pytest.mark.parametrize("worker", [w for w in WORKERS if "0.1" not in w])


# --- the matrix -----------------------------------------------------------------------------------
@clients
@workers
def test_every_client_is_served_by_every_worker(
    client: str, worker: str, sockets: Sockets, broker: LiveBroker
) -> None:
    with WORKERS[worker](sockets, broker), CLIENTS[client](sockets, broker) as ask:
        for body in ([b"hello"], [b""], [b"a", b"", b"c"], [bytes(range(256)) * 4096]):
            assert ask("echo", body) == [("final", body)]


@clients
@workers_with_partials
def test_every_client_gets_partials_in_the_way_of_its_dialect(
    client: str, worker: str, sockets: Sockets, broker: LiveBroker
) -> None:
    """Partial replies stay separate if the client supports them; otherwise they are joined."""
    separate = [("partial", [b"one"]), ("partial", [b"two"]), ("final", [b"x", b"y"])]
    joined = [("final", [b"one", b"two", b"x", b"y"])]
    with WORKERS[worker](sockets, broker), CLIENTS[client](sockets, broker) as ask:
        for _ in range(2):
            assert ask("parts", [b"x", b"y"]) == (separate if client in SEE_PARTIALS else joined)


@clients
def test_every_client_can_ask_the_broker_itself(
    client: str, sockets: Sockets, broker: LiveBroker
) -> None:
    with WORKERS["requite 0.3"](sockets, broker), CLIENTS[client](sockets, broker) as ask:
        broker.await_workers("echo", 1)
        assert ask("mmi.service", [b"echo"]) == [("final", [b"200"])]
        assert ask("mmi.service", [b"nothing"]) == [("final", [b"404"])]
        assert ask("mmi.nothing", [b"echo"]) == [("final", [b"501"])]
        assert b'"pong":true' in ask("mmi.ping", [b""])[0][1][0]


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize("client", [name for name in CLIENTS if "0.3" in name])
@pytest.mark.parametrize("worker", ["requite 0.3"])
def test_a_negative_reply_reaches_clients_of_0_3_as_an_error(
    client: str, worker: str, sockets: Sockets, broker: LiveBroker
) -> None:
    with WORKERS[worker](sockets, broker), CLIENTS[client](sockets, broker) as ask:
        with pytest.raises(requite.RemoteFailure, match="out of paper") as caught:
            ask("fails", [b"x"])
        assert caught.value.may_have_executed
        assert ask("echo", [b"x"]) == [("final", [b"x"])]


@pytest.mark.parametrize("client", [name for name in CLIENTS if name.startswith("pyzmq")])
def test_a_negative_reply_reaches_old_clients_where_the_operator_wants_it(
    client: str, sockets: Sockets, make_broker: MakeBroker
) -> None:
    broker = make_broker(policy=BrokerPolicy(tell_old_clients=True))
    with WORKERS["requite 0.3"](sockets, broker), CLIENTS[client](sockets, broker) as ask:
        assert ask("fails", [b"x"]) == [("final", [b"requite-error FAILED", b"out of paper"])]
        assert ask("echo", [b"x"]) == [("final", [b"x"])]


@pytest.mark.parametrize("lost", ["0.1", "0.2"])
@clients
def test_the_request_of_a_lost_worker_moves_to_one_of_another_dialect(
    lost: str, client: str, sockets: Sockets, broker: LiveBroker
) -> None:
    """The request of a crashed pyzmq worker is redelivered to a requite worker."""

    def vanish(worker: object, address: bytes, body: list[bytes]) -> None:
        taken.append(body)
        raise _Vanished

    taken: list[list[bytes]] = []
    first = ServingWorker(sockets, broker.endpoint, RFC7 if lost == "0.1" else RFC18, vanish)
    broker.await_workers("echo", 1)
    with CLIENTS[client](sockets, broker) as ask, WORKERS["requite 0.3"](sockets, broker):
        broker.await_workers("echo", 2)
        assert ask("echo", [b"x"]) == [("final", [b"x"])]
    assert taken == [[b"x"]]
    with pytest.raises(_Vanished):
        first.stop()


class _Vanished(Exception):
    """Ends a worker without a DISCONNECT."""
