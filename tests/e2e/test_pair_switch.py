"""A pair of brokers within one event loop: switches, and every dialect that follows them."""

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
BEAT_S = 0.5  # none is taken for dead for want of the processor
HEARTBEAT = HeartbeatPolicy(BEAT_S, 4)

T = TypeVar("T")


class Town:
    """The pair, and what calls and serves there."""

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
        """Start something that is closed after the test."""
        return await self._stack.enter_async_context(what)

    async def until(self, look: Any) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not look():  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        made = Town(stack, tmp_path)
        await made.start()
        yield made
        made.gate.set()


async def test_a_switch_moves_all_that_has_not_run(town: Town) -> None:
    """Requests wait for a service without workers: even those that must not run twice go along."""
    client = await town.client()
    calls = [
        asyncio.ensure_future(client.call(b"%d" % number, idempotent=number % 2 == 0))
        for number in range(10)
    ]
    await town.until(lambda: town.brokers["primary"].snapshot().pending == 10)
    town.pairs["primary"].switch()
    await town.until(lambda: town.brokers["backup"].snapshot().pending == 10)
    assert town.brokers["primary"].snapshot().pending == 0
    town.gate.set()
    await town.add_worker()
    replies = await asyncio.gather(*calls)
    assert [reply.body for reply in replies] == [b"%d" % number for number in range(10)]
    assert sorted(town.runs) == sorted(reply.body for reply in replies)
    assert {reply.attempts for reply in replies} == {1}


async def test_a_switch_while_they_run_moves_what_may_run_twice(town: Town) -> None:
    await town.add_worker()
    client = await town.client()
    again = asyncio.ensure_future(client.call(b"again"))
    once = asyncio.ensure_future(client.call(b"once", idempotent=False))
    await town.until(lambda: len(town.runs) == 2)
    town.pairs["backup"].switch()  # either of them may be told
    with pytest.raises(requite.TransportError, match="not idempotent") as caught:
        await once
    assert caught.value.may_have_executed
    town.gate.set()
    assert (await again).body == b"again"
    assert town.runs.count(b"again") == 2
    assert town.runs.count(b"once") == 1
    assert town.pairs["backup"].view.state is State.ACTIVE


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
async def test_clients_and_workers_of_every_dialect_follow(town: Town, dialect: str) -> None:
    """The primary ends without a word; the first request that reaches the backup is the vote."""
    town.gate.set()
    await town.add_worker(dialect=dialect)
    client = await town.client(dialect=dialect)
    assert (await client.call(b"one")).body == b"one"
    bind = town.brokers["primary"].endpoints[0]
    await town.brokers["primary"].close()
    assert (await client.call(b"two")).body == b"two"
    assert town.pairs["backup"].view.epoch == 2
    await town.start_broker("primary", bind)
    await town.until(lambda: town.pairs["primary"].view.state is State.PASSIVE)
    assert (await client.call(b"three")).body == b"three"  # there is no automatic fail-back
    assert town.runs == [b"one", b"two", b"three"]
    standing = json.loads((await client.call(b"", service="mmi.pair")).body)
    assert (standing["role"], standing["peer"]) == ("backup", "passive")


async def test_without_clients_nobody_takes_over(town: Town) -> None:
    """Workers alone do not vote; but they are there at once when a client does."""
    await town.add_worker()
    await town.until(lambda: town.brokers["primary"].snapshot().workers)
    await town.brokers["primary"].close()
    await town.until(lambda: town.pairs["backup"].view.peer_is_silent)
    await asyncio.sleep(BEAT_S * 6)  # longer than a worker waits inside for a word
    assert town.pairs["backup"].view.state is State.PASSIVE
    town.gate.set()
    client = await town.client()
    assert (await client.call(b"x")).attempts == 1


async def test_a_titanic_beside_the_pair_follows_it(town: Town, tmp_path: Path) -> None:
    """What is kept is dispatched by way of whoever serves."""
    titanic = Titanic(town.url, tmp_path / "kept", heartbeat=HEARTBEAT)
    await town.enter(titanic)
    client = await town.client(heartbeat=HEARTBEAT)
    ticket = await client.submit(b"kept")
    await town.brokers["primary"].close()
    town.gate.set()
    await town.add_worker()
    assert (await client.result(ticket, timeout=TIMEOUT_S)).body == b"kept"
    assert town.pairs["backup"].serves


async def test_the_copy_of_what_is_kept_takes_over_after_the_pair(
    town: Town, tmp_path: Path
) -> None:
    """One machine is lost, with a broker of the pair and Titanic; the other one has a copy."""
    copy = tmp_path / "copy"
    standby = await town.enter(
        Broker("tcp://127.0.0.1:0", titanic=TitanicSettings(copy, standby=True))
    )
    beside = standby.endpoints[0].replace("tcp", "mdp")
    settings = TitanicSettings(tmp_path / "kept", replica=beside, sync=True)
    titanic = await town.enter(Titanic(town.url, settings, heartbeat=HEARTBEAT))
    client = await town.client(heartbeat=HEARTBEAT)
    ticket = await client.submit(b"kept")

    await town.brokers["primary"].close()
    await titanic.close()
    operator = await town.enter(requite.AsyncClient(beside, timeout=TIMEOUT_S))
    promoted = await operator.call(b"", service="titanic.promote")
    assert promoted.body[:3] == b"200"
    await standby.drain()
    await town.enter(Titanic(town.url, copy, heartbeat=HEARTBEAT))
    town.gate.set()
    await town.add_worker()
    assert (await client.result(ticket, timeout=TIMEOUT_S)).body == b"kept"
    assert town.pairs["backup"].serves


def test_a_pair_keeps_no_requests_inside_one_broker(tmp_path: Path) -> None:
    pair = Pair("primary", bind=f"ipc://{tmp_path}/a", peer=f"ipc://{tmp_path}/b")
    with pytest.raises(ConfigurationError, match="as a separate process"):
        Broker(pair=pair, titanic=tmp_path)
