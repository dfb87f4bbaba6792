"""A pair of brokers on one event loop: clients and workers of each dialect follow a switch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

import requite
from requite.broker import Broker
from requite.core.liveness import HeartbeatPolicy
from requite.errors import ConfigurationError
from requite.pair import Pair, State
from requite.protocols.majordomo.policy import BrokerPolicy
from requite.titanic.settings import TitanicSettings
from requite.titanic.titanic import Titanic

pytestmark = pytest.mark.e2e

TIMEOUT_S = 20.0
BEAT_S = 0.5  # long enough that no heartbeat is missed on a busy machine
HEARTBEAT = HeartbeatPolicy(BEAT_S, 4)

T = TypeVar("T")


class Cluster:
    """A pair of brokers with its workers and clients; all are closed after the test."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.pairs: dict[str, Pair] = {}
        self.brokers: dict[str, Broker] = {}
        self.url = ""
        self.gate = asyncio.Event()
        self.runs: list[bytes] = []

    async def start(self) -> None:
        for role in ("primary", "backup"):
            await self.start_broker(role)
        places = [broker.endpoints[0] for broker in self.brokers.values()]
        self.url = f"mdp://{','.join(place.removeprefix('tcp://') for place in places)}"
        await self.until(lambda: self.pairs["primary"].serves)

    async def start_broker(self, role: str, bind: str = "tcp://127.0.0.1:0") -> None:
        places = {name: f"ipc://{self._folder}/{name}" for name in ("primary", "backup")}
        bound = places.pop(role)
        self.pairs[role] = pair = Pair(
            role,  # type: ignore[arg-type]  # a loop has strings
            bind=bound,
            peer=places.popitem()[1],
            heartbeat=BEAT_S,
        )
        self.brokers[role] = broker = Broker(
            bind, pair=pair, policy=BrokerPolicy(heartbeat=HEARTBEAT)
        )
        await self.enter(broker)

    async def add_worker(self, **settings: Any) -> None:
        @requite.service("gated")
        async def gated(request: requite.Request) -> bytes:
            self.runs.append(request.body)
            await self.gate.wait()
            return request.body

        worker = requite.Worker(self.url, gated, heartbeat=HEARTBEAT, **settings)
        await self.enter(worker)

    async def client(self, **settings: Any) -> requite.AsyncClient:
        client = requite.AsyncClient(self.url, service="gated", timeout=TIMEOUT_S, **settings)
        return await self.enter(client)

    async def enter(self, what: AbstractAsyncContextManager[T]) -> T:
        """Enter a context; it is closed after the test."""
        return await self._stack.enter_async_context(what)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        made = Cluster(stack, tmp_path)
        await made.start()
        yield made
        made.gate.set()


async def test_a_switch_moves_all_waiting_requests(cluster: Cluster) -> None:
    """Requests that wait for a worker move to the other broker, also if they are not idempotent."""
    client = await cluster.client()
    calls = [
        asyncio.ensure_future(client.call(b"%d" % number, idempotent=number % 2 == 0))
        for number in range(10)
    ]
    await cluster.until(lambda: cluster.brokers["primary"].snapshot().pending == 10)
    cluster.pairs["primary"].switch()
    await cluster.until(lambda: cluster.brokers["backup"].snapshot().pending == 10)
    assert cluster.brokers["primary"].snapshot().pending == 0
    cluster.gate.set()
    await cluster.add_worker()
    replies = await asyncio.gather(*calls)
    assert [reply.body for reply in replies] == [b"%d" % number for number in range(10)]
    assert sorted(cluster.runs) == sorted(reply.body for reply in replies)
    assert {reply.attempts for reply in replies} == {1}


async def test_a_switch_moves_running_requests_that_are_idempotent(cluster: Cluster) -> None:
    await cluster.add_worker()
    client = await cluster.client()
    again = asyncio.ensure_future(client.call(b"again"))
    once = asyncio.ensure_future(client.call(b"once", idempotent=False))
    await cluster.until(lambda: len(cluster.runs) == 2)
    cluster.pairs["backup"].switch()  # a switch works at either broker
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        await once
    assert caught.value.may_have_executed
    cluster.gate.set()
    assert (await again).body == b"again"
    assert cluster.runs.count(b"again") == 2
    assert cluster.runs.count(b"once") == 1
    assert cluster.pairs["backup"].view.state is State.ACTIVE


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_clients_and_workers_of_every_dialect_follow(cluster: Cluster, dialect: str) -> None:
    """The primary stops without a handover; the first request to the backup makes it active."""
    cluster.gate.set()
    await cluster.add_worker(dialect=dialect)
    client = await cluster.client(dialect=dialect)
    assert (await client.call(b"one")).body == b"one"
    bind = cluster.brokers["primary"].endpoints[0]
    await cluster.brokers["primary"].close()
    assert (await client.call(b"two")).body == b"two"
    assert cluster.pairs["backup"].view.epoch == 2
    await cluster.start_broker("primary", bind)
    await cluster.until(lambda: cluster.pairs["primary"].view.state is State.PASSIVE)
    assert (await client.call(b"three")).body == b"three"  # there is no automatic fail-back
    assert cluster.runs == [b"one", b"two", b"three"]
    pair_state = json.loads((await client.call(b"", service="mmi.pair")).body)
    assert (pair_state["role"], pair_state["peer"]) == ("backup", "passive")


async def test_without_clients_the_backup_stays_passive(cluster: Cluster) -> None:
    """Workers do not make the backup active; but they register at once when a client does."""
    await cluster.add_worker()
    await cluster.until(lambda: cluster.brokers["primary"].snapshot().workers)
    await cluster.brokers["primary"].close()
    await cluster.until(lambda: cluster.pairs["backup"].view.peer_is_silent)
    await asyncio.sleep(BEAT_S * 6)  # longer than a worker waits for a heartbeat
    assert cluster.pairs["backup"].view.state is State.PASSIVE
    cluster.gate.set()
    client = await cluster.client()
    assert (await client.call(b"x")).attempts == 1


async def test_a_separate_titanic_follows_the_pair(cluster: Cluster, tmp_path: Path) -> None:
    """Titanic dispatches durable requests through the active broker."""
    titanic = Titanic(cluster.url, tmp_path / "kept", heartbeat=HEARTBEAT)
    await cluster.enter(titanic)
    client = await cluster.client(heartbeat=HEARTBEAT)
    ticket = await client.submit(b"kept")
    await cluster.brokers["primary"].close()
    cluster.gate.set()
    await cluster.add_worker()
    assert (await client.result(ticket, timeout=TIMEOUT_S)).body == b"kept"
    assert cluster.pairs["backup"].serves


async def test_a_replica_of_durable_requests_takes_over_after_the_pair(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A machine with a broker of the pair and Titanic is lost; the other machine has a replica."""
    copy = tmp_path / "copy"
    standby = await cluster.enter(
        Broker("tcp://127.0.0.1:0", titanic=TitanicSettings(copy, standby=True))
    )
    beside = standby.endpoints[0].replace("tcp", "mdp")
    settings = TitanicSettings(tmp_path / "kept", replica=beside, sync=True)
    titanic = await cluster.enter(Titanic(cluster.url, settings, heartbeat=HEARTBEAT))
    client = await cluster.client(heartbeat=HEARTBEAT)
    ticket = await client.submit(b"kept")

    await cluster.brokers["primary"].close()
    await titanic.close()
    operator = await cluster.enter(requite.AsyncClient(beside, timeout=TIMEOUT_S))
    promoted = await operator.call(b"", service="titanic.promote")
    assert promoted.body[:3] == b"200"
    await standby.drain()
    await cluster.enter(Titanic(cluster.url, copy, heartbeat=HEARTBEAT))
    cluster.gate.set()
    await cluster.add_worker()
    assert (await client.result(ticket, timeout=TIMEOUT_S)).body == b"kept"
    assert cluster.pairs["backup"].serves


def test_a_paired_broker_has_no_titanic_inside(tmp_path: Path) -> None:
    pair = Pair("primary", bind=f"ipc://{tmp_path}/a", peer=f"ipc://{tmp_path}/b")
    with pytest.raises(ConfigurationError, match="as a separate process"):
        Broker(pair=pair, titanic=tmp_path)
