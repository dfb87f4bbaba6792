"""`Worker.trouble`, the reason why a worker is not connected, over each protocol; and its log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from tests.e2e.cluster import WAIT_S, until

import requite
from requite import Broker, Worker
from requite.queue import Queue
from requite.queue.queue import queue_policy

pytestmark = pytest.mark.e2e


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


async def trouble_of(url: str, expected: str, **settings: object) -> str:
    """Start a worker; wait until its `trouble` contains `expected`, and return it."""
    async with Worker(url, echo, **settings) as worker:  # type: ignore[arg-type]
        served = asyncio.ensure_future(worker.until_connected(0))
        await until(lambda: expected in worker.trouble)
        assert not served.done()
        served.cancel()
        return worker.trouble


@pytest.fixture
def silent_listener() -> Iterator[str]:
    """The address of a listener that accepts TCP connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def silent_router() -> Iterator[str]:
    """The address of a ZeroMQ ROUTER, which completes handshakes and answers nothing."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    yield f"127.0.0.1:{port}"
    context.destroy(linger=0)


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    """The address of a broker that requires a password."""
    async with Broker("tcp://127.0.0.1:0", users={"ann": "secret"}) as broker:
        yield broker.endpoints[0].removeprefix("tcp://")


@pytest.mark.parametrize(
    "url",
    [
        "mdp://127.0.0.1:1",
        "mdp://127.0.0.1:1?dialect=0.1",
        "sp+tcp://127.0.0.1:1",
        "pirate://127.0.0.1:1",
        "pirate://127.0.0.1:1?protocol=simple",
        "amqp://127.0.0.1:1/",
    ],
)
async def test_an_unused_port(url: str) -> None:
    message = await trouble_of(url, "refused")
    assert message == "cannot connect to tcp://127.0.0.1:1: connection refused"


async def test_a_missing_socket_file(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/broker.sock"
    message = await trouble_of(f"mdp+{place}", "no such file")
    assert message == f"cannot connect to {place}: no such file or directory"


async def test_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    message = await trouble_of("mdp://brocker:5555", "not known")
    assert message == "cannot connect to tcp://brocker:5555: name or service not known"


@pytest.mark.parametrize("scheme", ["mdp", "sp+tcp", "pirate"])
async def test_a_peer_without_a_handshake(scheme: str, silent_listener: str) -> None:
    message = await trouble_of(f"{scheme}://{silent_listener}", "handshake")
    assert message == f"tcp://{silent_listener} has not completed the handshake yet"


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_a_broker_that_does_not_answer_ready(dialect: str, silent_router: str) -> None:
    message = await trouble_of(f"mdp://{silent_router}?dialect={dialect}", "READY")
    words = (
        f"tcp://{silent_router} has not answered READY: check that it is a broker of MDP {dialect}"
    )
    assert message == f"{words} (`--dialect` sets another version)"


async def test_a_paranoid_queue_that_does_not_answer_ready(silent_router: str) -> None:
    message = await trouble_of(f"pirate://{silent_router}", "READY")
    assert message.startswith(
        f"tcp://{silent_router} has not answered READY: check that it is the back of "
    )


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("", "the broker requires a user name and password"),
        ("ann:wrong@", "the broker refused the user name or password of 'ann'"),
    ],
    ids=["missing", "wrong"],
)
async def test_refused_credentials(user: str, message: str, guarded: str) -> None:
    text = await trouble_of(f"mdp://{user}{guarded}", message)
    assert "`--credentials-file`" in text
    assert "wrong" not in text.replace("wrong password", "")


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_it_is_connected_once_the_broker_has_answered(dialect: str) -> None:
    policy = requite.BrokerPolicy(heartbeat=requite.HeartbeatPolicy(interval_s=0.1))
    async with (
        Broker("tcp://127.0.0.1:0", policy=policy) as broker,
        Worker(f"mdp://{broker.endpoints[0][6:]}", echo, dialect=dialect) as worker,
    ):
        await asyncio.wait_for(worker.until_connected(0), WAIT_S)
        assert worker.trouble == ""
        assert len(broker.snapshot().workers) == 1


@pytest.mark.parametrize("protocol", ["simple", "paranoid"])
async def test_it_is_connected_once_the_queue_has_registered_it(protocol: str) -> None:
    heartbeat = requite.HeartbeatPolicy(interval_s=0.1) if protocol == "paranoid" else None
    policy = queue_policy(0.1)
    places = ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    async with Queue(*places, protocol=protocol, policy=policy) as queue:
        [back] = queue.back_addresses
        async with Worker(back, echo, heartbeat=heartbeat) as worker:
            await asyncio.wait_for(worker.until_connected(0), WAIT_S)
            assert worker.trouble == ""


async def test_each_address_is_connected_independently() -> None:
    async with requite.AsyncClient(bind="sp+tcp://127.0.0.1:0") as client:
        urls = ["sp+tcp://127.0.0.1:1", *client.addresses]
        async with Worker(urls, echo) as worker:
            await asyncio.wait_for(worker.until_connected(1), WAIT_S)
            assert worker.trouble == "cannot connect to tcp://127.0.0.1:1: connection refused"


async def test_the_loss_and_the_return_of_the_broker_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "requite.worker")
    broker = Broker("tcp://127.0.0.1:0")
    await broker.start()
    [endpoint] = broker.endpoints
    async with Worker(f"mdp://{endpoint[6:]}", echo) as worker:
        await asyncio.wait_for(worker.until_connected(0), WAIT_S)
        assert caplog.messages == []
        await broker.close()
        await until(lambda: caplog.messages)
        async with Broker(endpoint):
            await asyncio.wait_for(worker.until_connected(0), WAIT_S)
            await until(lambda: len(caplog.messages) > 1)
    lost, back = caplog.messages
    assert lost.startswith(f"no longer serving echo: the connection to {endpoint} ended: ")
    assert back.startswith(f"serving echo at {endpoint} again, after ")


@pytest.fixture
async def smtp_server() -> AsyncIterator[tuple[str, list[None]]]:
    """The URL of a server that does not speak ZMTP, and a list with an item per connection."""
    seen: list[None] = []

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(None)
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield f"mdp://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


async def test_a_broker_that_disconnects_at_once_may_be_passive_or_out_of_file_descriptors() -> (
    None
):
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)  # the greeting; unread data would reset the connection
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"mdp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        expected = (
            "the peer closed the connection during the handshake; it may be the passive broker of a"
            " pair, a broker without free file descriptors, or a libzmq peer with"
        )
        await trouble_of(url, expected)
        async with requite.AsyncClient(url) as client:
            with pytest.raises(requite.CallError, match=expected):
                await client.call(b"x", service="echo", timeout=0.2)


async def test_the_log_of_a_worker_states_its_trouble_once(
    smtp_server: tuple[str, list[None]], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = smtp_server
    async with Worker(url, echo):
        await until(lambda: any("waiting to serve" in message for message in caplog.messages))
    assert len(seen) > 1
    [message] = caplog.messages
    assert message.startswith("waiting to serve echo: the connection to tcp://127.0.0.1:")


async def test_a_client_does_not_log_why_it_is_not_connected(
    smtp_server: tuple[str, list[None]], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = smtp_server
    async with requite.AsyncClient(url) as client:
        calling = asyncio.ensure_future(client.call(b"x", service="echo"))
        await until(lambda: len(seen) > 2)
        calling.cancel()
    with (
        requite.Client(url) as client,
        pytest.raises(requite.CallError, match="does not speak ZMTP"),
    ):
        await asyncio.to_thread(client.call, b"x", service="echo", timeout=0.2)
    assert caplog.messages == []


async def test_a_drained_worker_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker("tcp://127.0.0.1:0") as broker:
        worker = Worker(f"mdp://{broker.endpoints[0][6:]}", echo)
        await worker.start()
        await asyncio.wait_for(worker.until_connected(0), WAIT_S)
        await worker.drain()
    assert caplog.messages == []
