"""A manager at a broker of MDP, with real workers: groups come with requests, and go without."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pool.brokered import Yard, broker_in, broker_process, who
from tests.pool.live import WAIT_S, ask, eventually, until

from requite import AsyncClient, Poisoned, RemoteFailure
from requite.pool.config import BrokerSection, Lifetime, PoolSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager.carrier import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    """A broker, and room for managers and workers."""
    async with AsyncExitStack() as stack:
        yard = Yard(await broker_in(stack), tmp_path, stack)
        stack.push_async_callback(yard.clear)
        yield yard


KEYS = ("", "a/b 100% é\n\x7f", "x" * 250)


async def test_the_first_request_of_any_key_starts_its_group(yard: Yard) -> None:
    await yard.active()
    clients = [await yard.client(key) for key in KEYS]
    replies = await asyncio.gather(*(client.call(b"hi") for client in clients))
    assert tuple(reply.body.decode().rsplit(" ", 2)[0] for reply in replies) == KEYS
    assert {record.key for record in yard.workers()} == set(KEYS)
    again = [await who(client) for client in clients]
    assert again == [reply.body.decode().rsplit(" ", 2)[1] for reply in replies]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("core/a/b", "'core/a%2Fb'; or set pool= and key= in the URL"),
        ("core/%c3%b6", "'core/%C3%B6'"),
        ("core/%00", "a key cannot contain a NUL"),
        ("core/%FF", "no key has this service name"),
    ],
)
async def test_a_request_to_a_name_that_is_no_groups_is_told_why(
    yard: Yard, name: str, why: str
) -> None:
    await yard.active()
    async with AsyncClient(yard.url, service=name, timeout=WAIT_S) as client:
        for _ in range(2):
            with pytest.raises(RemoteFailure, match="is not a group of the pool 'core'") as refused:
                await client.call(b"hi")
            assert why in str(refused.value)
    assert yard.workers() == []


async def test_a_group_without_requests_goes_and_comes_back_with_the_next(yard: Yard) -> None:
    manager = await yard.active(yard.config(lifetime=Lifetime(0.3, 0.3, 0.1)))
    client = await yard.client()
    first = await who(client)
    await until(lambda: not yard.workers(), "the end of the idle group")
    await until(lambda: not manager.snapshot().state.groups, "a manager that expects none")
    assert await who(client) != first


async def test_no_request_is_lost_while_a_worker_is_stopped_under_it(yard: Yard) -> None:
    await yard.active()
    client = await yard.client()
    first = await who(client)
    [record] = yard.workers()

    async def call_on() -> None:
        while await who(client, b"sleep 0.01") == first:
            pass

    calls = [asyncio.create_task(call_on()) for _ in range(4)]
    os.kill(record.pid, signal.SIGTERM)
    await asyncio.gather(*calls)


async def test_a_worker_that_is_killed_is_replaced_and_its_request_answered(yard: Yard) -> None:
    await yard.active()
    client = await yard.client()
    first = await who(client)
    call = asyncio.create_task(who(client, b"hang"))

    async def is_held() -> bool:
        rows = json.loads((await client.call(b"core/42", service="mmi.under")).body)
        return rows[0]["in_progress"] == 1

    await eventually(is_held, "a worker with the request")
    [record] = yard.workers()
    os.killpg(record.pid, signal.SIGKILL)
    assert await call != first


async def test_a_request_that_kills_its_workers_ends_with_the_brokers_limit(yard: Yard) -> None:
    await yard.active()
    client = await yard.client()
    with pytest.raises(Poisoned):
        await client.call(b"die")
    assert await who(client)


@pytest.mark.timeout(120)
async def test_a_broker_that_is_killed_and_comes_back_finds_the_same_workers(
    tmp_path: Path,
) -> None:
    broker = await asyncio.to_thread(broker_process)
    async with AsyncExitStack() as stack:
        stack.callback(lambda: broker.dispose())
        yard = Yard(broker.url, tmp_path, stack)
        stack.push_async_callback(yard.clear)
        config = yard.config(broker=BrokerSection(yard.url, 0.05, timeout_s=0.5, settle_s=0.5))
        manager = await yard.active(config)
        client = await yard.client()
        first = await who(client)
        await asyncio.to_thread(broker.dispose)
        call = asyncio.create_task(who(client))
        other = asyncio.create_task(who(await yard.client("other")))
        await until(lambda: manager.state is State.CONNECTING, "a manager that has noticed")
        status, health = await ask(f"{manager.url}/health")
        assert (status, list(health["flaws"])) == (503, ["broker"])
        broker = await asyncio.to_thread(broker_process, broker.endpoint)
        assert await call == first
        assert await other != first
        await until(lambda: manager.snapshot().queues["42"].actual == "bound", "its worker")
        assert len(yard.workers()) == 2


async def test_a_manager_that_is_there_before_its_broker_waits_for_it(tmp_path: Path) -> None:
    broker = await asyncio.to_thread(broker_process)
    async with AsyncExitStack() as stack:
        stack.callback(lambda: broker.dispose())
        yard = Yard(broker.url, tmp_path, stack)
        await asyncio.to_thread(broker.dispose)
        seen: list[State] = []
        config = yard.config(broker=BrokerSection(yard.url, 0.05, timeout_s=0.2))
        manager = await yard.manager(config, driver=NoopDriver(), on_state=seen.append)
        client = await yard.client()
        call = asyncio.create_task(client.call(b"hi"))
        assert (await ask(f"{manager.url}/ready"))[0] == 503
        refused = await ask(f"{manager.url}/require", {"key": "1"})
        assert refused == (
            503,
            {"error": "this manager is connecting; send the request to the active one"},
        )
        broker = await asyncio.to_thread(broker_process, broker.endpoint)
        await until(lambda: "42" in manager.snapshot().state.groups, "the group of the request")
        assert manager.state is State.ACTIVE
        call.cancel()


async def test_the_second_manager_stands_by_and_takes_over_with_all_workers(yard: Yard) -> None:
    one = await yard.active()
    two = await yard.manager()
    await until(lambda: two.state is State.STANDBY, "a manager that stands by")
    client = await yard.client()
    first = await who(client)
    assert (await ask(f"{two.url}/ready"))[0] == 503
    await one.close()
    await until(lambda: two.state is State.ACTIVE, "the other manager")
    assert await who(client) == first
    assert await who(await yard.client("new")) != first
    await until(lambda: two.snapshot().is_listed, "a manager that may stop groups")
    assert {record.key for record in yard.workers()} == {"42", "new"}
    assert two.snapshot().state.groups.keys() == {"42", "new"}


async def test_a_manager_that_ends_leaves_its_groups_to_the_one_that_stands_by(yard: Yard) -> None:
    one = await yard.active()
    client = await yard.client()
    first = await who(client)
    two = await yard.manager()
    await until(lambda: two.state is State.STANDBY, "a manager that stands by")
    await one.drain()
    await until(lambda: two.state is State.ACTIVE, "the other manager")
    assert await who(client) == first
    await two.drain()
    assert yard.workers() == []


async def test_a_new_version_replaces_workers_and_requests_wait_for_them(yard: Yard) -> None:
    old = await yard.active()
    client = await yard.client()
    first = await who(client)
    await old.close()
    config = replace(yard.config(), pool=PoolSection("core", version="2"))
    await yard.active(config)
    calls = [asyncio.create_task(who(client, b"sleep 0.1")) for _ in range(3)]
    await until(lambda: [r.version for r in yard.workers()] == ["2"], "the other version")
    assert await who(client) != first
    await asyncio.gather(*calls)


async def test_what_operators_ask_and_tell(yard: Yard) -> None:
    manager = await yard.active()
    url = manager.url
    assert (await ask(f"{url}/scale", {"key": "42", "workers": 2}))[0] == 202

    def running() -> int | None:
        group = (manager.snapshot().groups.running or {}).get("42")
        return None if group is None else group.workers

    await until(lambda: running() == 2, "two workers")
    client = await yard.client()
    await client.call(b"hi")
    await until(lambda: manager.snapshot().queues["42"].actual == "bound", "a service that is seen")
    _, status = await ask(f"{url}/status")
    assert (status["broker"], status["state"]) == (yard.url, "active")
    [group] = status["groups"]
    assert (group["key"], group["queue"], group["workers"]) == ("42", "bound", 2)
    assert await ask(f"{url}/health") == (
        200,
        {"healthy": True, "state": "active", "flaws": {}},
    )
    assert 'requite_pool_workers{pool="core"}' in (await ask(f"{url}/metrics"))[1]
    for path, body in (("/poison", None), ("/poison/retry", {"all": True})):
        code, said = await ask(url + path, body)
        assert code == 400
        assert "does not store poisoned requests" in said["error"]
    for key, why in (("x" * 300, "has 305 bytes"), ("\0", "NUL"), ("\ud800", "UTF-8")):
        for path, body in (("/require", {}), ("/scale", {"workers": 1})):
            code, said = await ask(url + path, {"key": key, **body})
            assert code == 400
            assert why in said["error"]


async def test_a_request_to_the_managers_tells_who_decides(yard: Yard) -> None:
    await yard.active()
    async with AsyncClient(yard.url, service="core/!managers", timeout=WAIT_S) as client:
        assert (await client.call(b"")).body == b'{"pool": "core", "state": "active"}'


async def test_many_names_that_are_no_groups_are_refused_a_few_at_a_time(yard: Yard) -> None:
    manager = await yard.manager(driver=NoopDriver())
    async with AsyncClient(yard.url, timeout=WAIT_S) as client:
        calls = [client.call(b"", service=f"core/{number}/x") for number in range(70)]
        told = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in told} == {RemoteFailure}
    assert manager.snapshot().state.groups == {}
