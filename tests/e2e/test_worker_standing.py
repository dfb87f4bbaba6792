"""What keeps a worker from being served, over every protocol that it dials by; and its log."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from tests.e2e.stage import WAIT_S, until

import requite
from requite import Broker, Worker
from requite.queue import Queue
from requite.queue.queue import queue_policy

pytestmark = pytest.mark.e2e


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Answer with the body."""
    return request.body


async def trouble_of(url: str, expected: str, **settings: object) -> str:
    """Start a worker, wait until its trouble holds some words, and return it."""
    async with Worker(url, echo, **settings) as worker:  # type: ignore[arg-type]
        served = asyncio.ensure_future(worker.until_connected(0))
        await until(lambda: expected in worker.trouble)
        assert not served.done()
        served.cancel()
        return worker.trouble


@pytest.fixture
def mute() -> Iterator[str]:
    """Where TCP connections are taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def unanswering() -> Iterator[str]:
    """A ROUTER of ZeroMQ, which shakes hands and answers nothing."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    yield f"127.0.0.1:{port}"
    context.destroy(linger=0)


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    """A broker that asks for a password."""
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
async def test_a_port_at_which_nobody_listens(url: str) -> None:
    told = await trouble_of(url, "refused")
    assert told == "cannot connect to tcp://127.0.0.1:1: connection refused"


async def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    place = f"ipc://{tmp_path}/broker.sock"
    told = await trouble_of(f"mdp+{place}", "no such file")
    assert told == f"cannot connect to {place}: no such file or directory"


async def test_a_host_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    told = await trouble_of("mdp://brocker:5555", "not known")
    assert told == "cannot connect to tcp://brocker:5555: name or service not known"


@pytest.mark.parametrize("scheme", ["mdp", "sp+tcp", "pirate"])
async def test_a_peer_that_does_not_shake_hands(scheme: str, mute: str) -> None:
    told = await trouble_of(f"{scheme}://{mute}", "handshake")
    assert told == f"tcp://{mute} has not completed the handshake yet"


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_a_broker_that_does_not_answer_ready(dialect: str, unanswering: str) -> None:
    told = await trouble_of(f"mdp://{unanswering}?dialect={dialect}", "READY")
    words = (
        f"tcp://{unanswering} has not answered READY: check that it is a broker of MDP {dialect}"
    )
    assert told == f"{words} (`--dialect` sets another version)"


async def test_a_paranoid_queue_that_does_not_answer_ready(unanswering: str) -> None:
    told = await trouble_of(f"pirate://{unanswering}", "READY")
    assert told.startswith(
        f"tcp://{unanswering} has not answered READY: check that it is the back of "
    )


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("", "the broker requires a user name and password"),
        ("ann:wrong@", "the broker refused the user name or password of 'ann'"),
    ],
    ids=["missing", "wrong"],
)
async def test_credentials_that_the_broker_refuses(user: str, told: str, guarded: str) -> None:
    text = await trouble_of(f"mdp://{user}{guarded}", told)
    assert "`--credentials-file`" in text
    assert "wrong" not in text.replace("wrong password", "")


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_it_is_served_once_the_broker_has_answered(dialect: str) -> None:
    policy = requite.BrokerPolicy(heartbeat=requite.HeartbeatPolicy(interval_s=0.1))
    async with (
        Broker("tcp://127.0.0.1:0", policy=policy) as broker,
        Worker(f"mdp://{broker.endpoints[0][6:]}", echo, dialect=dialect) as worker,
    ):
        await asyncio.wait_for(worker.until_connected(0), WAIT_S)
        assert worker.trouble == ""
        assert len(broker.snapshot().workers) == 1


@pytest.mark.parametrize("protocol", ["simple", "paranoid"])
async def test_it_is_served_once_a_queue_has_taken_it(protocol: str) -> None:
    heartbeat = requite.HeartbeatPolicy(interval_s=0.1) if protocol == "paranoid" else None
    policy = queue_policy(0.1)
    places = ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    async with Queue(*places, protocol=protocol, policy=policy) as queue:
        [back] = queue.back_addresses
        async with Worker(back, echo, heartbeat=heartbeat) as worker:
            await asyncio.wait_for(worker.until_connected(0), WAIT_S)
            assert worker.trouble == ""


async def test_each_place_that_it_dials_is_served_by_itself() -> None:
    async with requite.AsyncClient(bind="sp+tcp://127.0.0.1:0") as client:
        urls = ["sp+tcp://127.0.0.1:1", *client.addresses]
        async with Worker(urls, echo) as worker:
            await asyncio.wait_for(worker.until_connected(1), WAIT_S)
            assert worker.trouble == "cannot connect to tcp://127.0.0.1:1: connection refused"


async def test_the_loss_of_the_broker_is_logged_once_and_its_return_once(
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
async def babbling() -> AsyncIterator[tuple[str, list[None]]]:
    """A server that is not ZMTP, and a list that grows with each connection to it."""
    seen: list[None] = []

    async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(None)
        writer.write(b"220 mail.example.com ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        yield f"mdp://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


async def test_a_broker_that_hangs_up_at_once_may_be_passive_or_out_of_file_descriptors() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)  # the greeting: what is left unread would reset the connection
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


async def test_the_log_of_a_worker_does_not_repeat_why_it_waits(
    babbling: tuple[str, list[None]], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = babbling
    async with Worker(url, echo):
        await until(lambda: any("waiting to serve" in told for told in caplog.messages))
    assert len(seen) > 1
    [told] = caplog.messages
    assert told.startswith("waiting to serve echo: the connection to tcp://127.0.0.1:")


async def test_the_log_of_a_client_leaves_to_its_errors_why_there_is_no_connection(
    babbling: tuple[str, list[None]], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = babbling
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


async def test_a_worker_that_drains_does_not_complain_of_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Broker("tcp://127.0.0.1:0") as broker:
        worker = Worker(f"mdp://{broker.endpoints[0][6:]}", echo)
        await worker.start()
        await asyncio.wait_for(worker.until_connected(0), WAIT_S)
        await worker.drain()
    assert caplog.messages == []
