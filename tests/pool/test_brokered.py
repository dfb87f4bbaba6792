"""A pool manager at an MDP broker with real workers: requests start groups, idle groups stop."""

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
from tests.pool.brokered import BrokerTestbed, answering_worker, broker_process, start_broker
from tests.pool.live import WAIT_S, ask, eventually, until

from requite import AsyncClient, Poisoned, RemoteFailure
from requite.pool.config import BrokerSection, Lifetime, Limits, PoolSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager.carrier import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[BrokerTestbed]:
    """A broker in this event loop with a testbed; all workers are killed afterwards."""
    async with AsyncExitStack() as stack:
        testbed = BrokerTestbed(await start_broker(stack), tmp_path, stack)
        stack.push_async_callback(testbed.clear)
        yield testbed


KEYS = ("", "a/b 100% é\n\x7f", "x" * 250)


async def test_the_first_request_of_any_key_starts_its_group(testbed: BrokerTestbed) -> None:
    await testbed.active()
    clients = [await testbed.client(key) for key in KEYS]
    replies = await asyncio.gather(*(client.call(b"hi") for client in clients))
    assert tuple(reply.body.decode().rsplit(" ", 2)[0] for reply in replies) == KEYS
    assert {record.key for record in testbed.workers()} == set(KEYS)
    again = [await answering_worker(client) for client in clients]
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
async def test_a_request_to_an_invalid_group_name_is_refused_with_the_reason(
    testbed: BrokerTestbed, name: str, why: str
) -> None:
    await testbed.active()
    async with AsyncClient(testbed.url, service=name, timeout=WAIT_S) as client:
        for _ in range(2):
            with pytest.raises(RemoteFailure, match="is not a group of the pool 'core'") as refused:
                await client.call(b"hi")
            assert why in str(refused.value)
    assert testbed.workers() == []


async def test_an_idle_group_stops_and_the_next_request_starts_it_again(
    testbed: BrokerTestbed,
) -> None:
    manager = await testbed.active(testbed.config(lifetime=Lifetime(0.3, 0.3, 0.1)))
    client = await testbed.client()
    first = await answering_worker(client)
    await until(lambda: not testbed.workers(), "the end of the idle group")
    await until(lambda: not manager.snapshot().state.groups, "a manager that expects none")
    assert await answering_worker(client) != first


async def test_above_the_limit_of_groups_requests_wait_until_a_group_goes(
    testbed: BrokerTestbed,
) -> None:
    lifetime = Lifetime(60.0, 0.3, 0.1)
    manager = await testbed.active(testbed.config(limits=Limits(groups=2), lifetime=lifetime))
    clients = {str(number): await testbed.client(str(number)) for number in range(12)}
    calls = {key: asyncio.create_task(answering_worker(client)) for key, client in clients.items()}
    await until(lambda: sum(call.done() for call in calls.values()) == 2, "two answers")

    async def are_waiting() -> bool:
        _, status = await ask(f"{manager.url}/status")
        return sum(bool(group["messages"]) for group in status["groups"]) == 10

    await eventually(are_waiting, "requests at the broker")
    _, status = await ask(f"{manager.url}/status")
    served = {group["key"] for group in status["groups"] if group["running"]}
    assert (status["groups_max"], len(served), len(testbed.workers())) == (2, 2, 2)
    refused, said = await ask(f"{manager.url}/require", {"key": "new"})
    assert (refused, "limits.groups (2)" in said["error"]) == (503, True)
    assert (await ask(f"{manager.url}/release", {"key": served.pop()}))[0] == 202
    await until(lambda: sum(call.done() for call in calls.values()) == 3, "another answer")
    for call in calls.values():
        call.cancel()
    await asyncio.gather(*calls.values(), return_exceptions=True)


async def test_no_request_is_lost_while_its_worker_is_stopped(testbed: BrokerTestbed) -> None:
    await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    [record] = testbed.workers()

    async def call_until_replaced() -> str:
        while (worker_id := await answering_worker(client, b"sleep 0.01")) == first:
            pass
        return worker_id

    calls = [asyncio.create_task(call_until_replaced()) for _ in range(4)]
    os.kill(record.pid, signal.SIGTERM)
    assert first not in await asyncio.gather(*calls)


async def test_a_worker_that_is_killed_is_replaced_and_its_request_answered(
    testbed: BrokerTestbed,
) -> None:
    await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    call = asyncio.create_task(answering_worker(client, b"hang"))

    async def is_held() -> bool:
        rows = json.loads((await client.call(b"core/42", service="mmi.under")).body)
        return rows[0]["in_progress"] == 1

    await eventually(is_held, "a worker with the request")
    [record] = testbed.workers()
    os.killpg(record.pid, signal.SIGKILL)
    assert await call != first


async def test_a_request_that_kills_its_workers_is_poisoned_at_the_brokers_limit(
    testbed: BrokerTestbed,
) -> None:
    await testbed.active()
    client = await testbed.client()
    with pytest.raises(Poisoned):
        await client.call(b"die")
    assert await answering_worker(client)


@pytest.mark.timeout(120)
async def test_workers_survive_a_kill_and_restart_of_the_broker(
    tmp_path: Path,
) -> None:
    broker = await asyncio.to_thread(broker_process)
    async with AsyncExitStack() as stack:
        stack.callback(lambda: broker.dispose())
        testbed = BrokerTestbed(broker.url, tmp_path, stack)
        stack.push_async_callback(testbed.clear)
        config = testbed.config(
            broker=BrokerSection(testbed.url, 0.05, timeout_s=0.5, settle_s=0.5)
        )
        manager = await testbed.active(config)
        client = await testbed.client()
        first = await answering_worker(client)
        await asyncio.to_thread(broker.dispose)
        call = asyncio.create_task(answering_worker(client))
        other = asyncio.create_task(answering_worker(await testbed.client("other")))
        await until(lambda: manager.state is State.CONNECTING, "a manager that has noticed")
        status, health = await ask(f"{manager.url}/health")
        assert (status, list(health["flaws"])) == (503, ["broker"])
        broker = await asyncio.to_thread(broker_process, broker.endpoint)
        assert await call == first
        assert await other != first
        await until(lambda: manager.snapshot().queues["42"].actual == "bound", "its worker")
        assert len(testbed.workers()) == 2


async def test_a_manager_waits_for_a_broker_that_starts_later(tmp_path: Path) -> None:
    broker = await asyncio.to_thread(broker_process)
    async with AsyncExitStack() as stack:
        stack.callback(lambda: broker.dispose())
        testbed = BrokerTestbed(broker.url, tmp_path, stack)
        await asyncio.to_thread(broker.dispose)
        seen: list[State] = []
        config = testbed.config(broker=BrokerSection(testbed.url, 0.05, timeout_s=0.2))
        manager = await testbed.manager(config, driver=NoopDriver(), on_state=seen.append)
        client = await testbed.client()
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


async def test_the_second_manager_stands_by_and_takes_over_with_all_workers(
    testbed: BrokerTestbed,
) -> None:
    one = await testbed.active()
    two = await testbed.manager()
    await until(lambda: two.state is State.STANDBY, "a manager that stands by")
    client = await testbed.client()
    first = await answering_worker(client)
    assert (await ask(f"{two.url}/ready"))[0] == 503
    _, text = await ask(f"{two.url}/metrics")
    assert "requite_ready 0.0\n" in text
    assert 'requite_pool_standby{pool="core"} 1.0\n' in text
    await one.close()
    await until(lambda: two.state is State.ACTIVE, "the other manager")
    assert await answering_worker(client) == first
    assert await answering_worker(await testbed.client("new")) != first
    await until(lambda: two.snapshot().is_listed, "a manager that may stop groups")
    assert {record.key for record in testbed.workers()} == {"42", "new"}
    assert two.snapshot().state.groups.keys() == {"42", "new"}


async def test_a_drained_manager_leaves_its_groups_to_the_standby(testbed: BrokerTestbed) -> None:
    one = await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    two = await testbed.manager()
    await until(lambda: two.state is State.STANDBY, "a manager that stands by")
    await one.drain()
    await until(lambda: two.state is State.ACTIVE, "the other manager")
    assert await answering_worker(client) == first
    await two.drain()
    assert testbed.workers() == []


async def test_a_new_version_replaces_workers_and_requests_wait_for_them(
    testbed: BrokerTestbed,
) -> None:
    old = await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    await old.close()
    config = replace(testbed.config(), pool=PoolSection("core", version="2"))
    await testbed.active(config)
    calls = [asyncio.create_task(answering_worker(client, b"sleep 0.1")) for _ in range(3)]
    await until(lambda: [r.version for r in testbed.workers()] == ["2"], "the other version")
    assert await answering_worker(client) != first
    await asyncio.gather(*calls)


async def test_the_endpoints_for_operators(testbed: BrokerTestbed) -> None:
    manager = await testbed.active()
    url = manager.url
    assert (await ask(f"{url}/scale", {"key": "42", "workers": 2}))[0] == 202

    def running() -> int | None:
        group = (manager.snapshot().groups.running or {}).get("42")
        return None if group is None else group.workers

    await until(lambda: running() == 2, "two workers")
    client = await testbed.client()
    await client.call(b"hi")
    await until(lambda: manager.snapshot().queues["42"].actual == "bound", "a service that is seen")
    _, status = await ask(f"{url}/status")
    assert (status["broker"], status["state"]) == (testbed.url, "active")
    [group] = status["groups"]
    assert (group["key"], group["queue"], group["workers"]) == ("42", "bound", 2)
    assert await ask(f"{url}/health") == (
        200,
        {"healthy": True, "state": "active", "flaws": {}},
    )
    _, text = await ask(f"{url}/metrics")
    assert 'requite_pool_workers{pool="core"}' in text
    assert "requite_ready 1.0\n" in text
    assert 'command="pool run"' in text
    assert "process_cpu_seconds_total" in text
    for path, body in (("/poison", None), ("/poison/retry", {"all": True})):
        code, said = await ask(url + path, body)
        assert code == 400
        assert "does not store poisoned requests" in said["error"]
    for key, why in (("x" * 252, "has 257 bytes"), ("\0", "NUL"), ("\ud800", "UTF-8")):
        for path, body in (("/require", {}), ("/scale", {"workers": 1})):
            code, said = await ask(url + path, {"key": key, **body})
            assert code == 400
            assert why in said["error"]


async def test_the_managers_service_reports_the_state_of_the_leader(testbed: BrokerTestbed) -> None:
    await testbed.active()
    async with AsyncClient(testbed.url, service="core/!managers", timeout=WAIT_S) as client:
        assert (await client.call(b"")).body == b'{"pool": "core", "state": "active"}'


async def test_many_requests_to_invalid_group_names_are_all_refused(testbed: BrokerTestbed) -> None:
    manager = await testbed.manager(driver=NoopDriver())
    async with AsyncClient(testbed.url, timeout=WAIT_S) as client:
        calls = [client.call(b"", service=f"core/{number}/x") for number in range(70)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in results} == {RemoteFailure}
    assert manager.snapshot().state.groups == {}
