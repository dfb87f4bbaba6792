"""A pool manager at a real RabbitMQ with real workers: requests start groups, idle groups stop."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from tests.pool.live import COMMAND, RabbitTestbed, ask, eventually, until
from tests.support.amqp_connection import connected, header_of
from tests.typed.shop import Order, Orders, OutOfStock, Quote

from requite import AsyncClient, CallTimeout, ConfigurationError, Poisoned
from requite.pool.config import DriverSection, Lifetime, Limits, PoolSection, RabbitSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State
from requite.pool.manager.rabbit import Rabbit, _declare
from requite.protocols.amqp.fields import AS_IT_IS
from requite.protocols.amqp.topology import Exchange

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def answering_worker(client: AsyncClient, word: bytes = b"hi") -> str:
    """Return the id of the worker that answers."""
    body = (await client.call(word)).body.removesuffix(b" " + word)
    return body.decode().rsplit(" ", 1)[1]


async def test_the_first_request_of_a_key_starts_its_group(testbed: RabbitTestbed) -> None:
    await testbed.active()
    client = await testbed.client("a/b é")
    first = await client.call(b"hi")
    key, worker_id, word = first.body.decode().rsplit(" ", 2)
    assert (key, word) == ("a/b é", "hi")
    assert await answering_worker(client) == worker_id
    assert [record.key for record in testbed.workers()] == ["a/b é"]


async def test_a_typed_service_has_partial_replies(testbed: RabbitTestbed) -> None:
    config = testbed.config()
    command = [word.replace(":identify", ":orders") for word in COMMAND]
    driver = replace(config.driver, settings={**config.driver.settings, "command": command})
    await testbed.active(testbed.config(driver=driver))
    quotes = [Quote(Decimal(0)), Quote(Decimal(1))]
    for key in ("anna", "bo"):
        orders = (await testbed.client(key)).bind(Orders, "orders")
        assert await orders.price(Order("a", 2)) == Quote(Decimal(1))
        assert [quote async for quote in orders.watch(Order("a", 2))] == quotes
        with pytest.raises(OutOfStock):
            [quote async for quote in orders.watch(Order("none", 2))]
    assert {record.key for record in testbed.workers()} == {"anna", "bo"}


async def test_an_idle_group_stops_and_the_next_request_starts_it_again(
    testbed: RabbitTestbed,
) -> None:
    await testbed.active(testbed.config(lifetime=Lifetime(0.4, 0.4, 0.1)))
    client = await testbed.client()
    first = await answering_worker(client)
    await until(lambda: not testbed.workers(), "the end of the idle group")
    await until(lambda: testbed.rabbit.queue("core-req-42") is None, "the end of its queue")
    assert await answering_worker(client) != first


async def test_above_the_limit_of_groups_orphans_wait_until_a_group_goes(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    config = testbed.config(limits=Limits(groups=1), lifetime=Lifetime(60.0, 0.4, 0.1))
    manager = await testbed.active(config)
    await answering_worker(await testbed.client("a"))
    others = [await testbed.client(str(number), timeout=2.0) for number in range(12)]
    ended = await asyncio.gather(
        *(answering_worker(each) for each in others), return_exceptions=True
    )
    assert {type(each) for each in ended} == {CallTimeout}
    assert [record.key for record in testbed.workers()] == ["a"]
    assert caplog.text.count("groups-max: the pool has as many groups") == 1
    patient = await testbed.client("b")
    call = asyncio.create_task(answering_worker(patient))
    await until(lambda: manager.snapshot().orphans.waiting.get("b"), "an orphan")
    assert (await ask(f"{manager.url}/release", {"key": "a"}))[0] == 202
    assert await call


async def test_steady_traffic_keeps_a_group_alive(testbed: RabbitTestbed) -> None:
    await testbed.active(testbed.config(lifetime=Lifetime(2.0, 1.0, 0.3)))
    client = await testbed.client()
    ids = set()
    for _ in range(20):
        ids.add(await answering_worker(client))
        await asyncio.sleep(0.2)
    assert len(ids) == 1


async def test_a_request_that_kills_its_workers_is_poisoned_stored_and_retried(
    testbed: RabbitTestbed,
) -> None:
    manager = await testbed.active(testbed.config(limits=Limits(delivery_limit=1)))
    client = await testbed.client()
    with pytest.raises(Poisoned):
        await client.call(b"die")
    _, kept = await ask(f"{manager.url}/poison")
    [poisoned] = kept["poison"]
    assert (poisoned["key"], poisoned["size_bytes"], poisoned["attempts"]) == ("42", 3, 2)
    assert (await ask(f"{manager.url}/poison"))[1] == kept  # listing removes nothing
    refused = await ask(f"{manager.url}/poison/retry", {"ids": ["another"]})
    assert refused == (200, {"retried": 0})
    retried = await ask(f"{manager.url}/poison/retry", {"ids": [poisoned["id"]]})
    assert retried == (200, {"retried": 1})

    async def poisoned_again() -> bool:
        return len((await ask(f"{manager.url}/poison"))[1]["poison"]) == 1

    await eventually(poisoned_again, "the request in the poison queue again")
    _, status = await ask(f"{manager.url}/status")
    assert status["dead_letters"]["by_reason"] == {"delivery_limit": 2}


async def test_killed_workers_are_replaced_and_no_request_is_lost(testbed: RabbitTestbed) -> None:
    await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    call = asyncio.create_task(answering_worker(client, b"sleep 2"))
    await until(lambda: testbed.workers() and testbed.workers()[0].pid, "the process of the worker")
    os.killpg(testbed.workers()[0].pid, signal.SIGKILL)
    assert await call != first


@pytest.mark.timeout(240)
async def test_calls_survive_a_kill_of_rabbitmq(testbed: RabbitTestbed) -> None:
    manager = await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    await asyncio.to_thread(testbed.rabbit.kill)
    await until(lambda: manager.state is State.CONNECTING, "a manager that has noticed")
    await asyncio.to_thread(testbed.rabbit.start)
    assert await answering_worker(client) == first
    other = await testbed.client("new")
    assert await answering_worker(other) != first
    assert manager.state == State.ACTIVE


async def test_a_deleted_queue_of_orphans_is_declared_again(testbed: RabbitTestbed) -> None:
    manager = await testbed.active()
    testbed.rabbit.delete_queue("core-orphan")
    await until(lambda: manager.state is not State.ACTIVE, "a manager that has noticed")
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    assert await answering_worker(await testbed.client())


async def test_requests_wait_for_a_manager_that_starts_later(testbed: RabbitTestbed) -> None:
    gone = await testbed.active()
    await gone.close()
    client = await testbed.client()
    call = asyncio.create_task(answering_worker(client))
    await until(lambda: _messages(testbed, "core-orphan"), "an orphan")
    await testbed.active()
    assert await call


def _messages(testbed: RabbitTestbed, queue: str) -> int:
    found = testbed.rabbit.queue(queue)
    return 0 if found is None else int(found.get("messages", 0))


async def test_a_second_manager_stands_by_and_takes_over_with_the_workers(
    testbed: RabbitTestbed,
) -> None:
    first = await testbed.active()
    second = await testbed.manager()
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    client = await testbed.client()
    worker_id = await answering_worker(client)
    assert (await ask(f"{second.url}/ready"))[0] == 503
    assert (await ask(f"{second.url}/health"))[0] == 200
    refused, said = await ask(f"{second.url}/scale", {"key": "42", "workers": 2})
    assert (refused, "standby" in said["error"]) == (503, True)
    await first.close()
    await until(lambda: second.state is State.ACTIVE, "the other manager")
    assert await answering_worker(client) == worker_id
    assert await answering_worker(await testbed.client("43")) != worker_id


async def test_a_new_version_replaces_workers_and_no_call_fails(testbed: RabbitTestbed) -> None:
    first = await testbed.active(testbed.config(pool=PoolSection("core", version="1")))
    client = await testbed.client()
    old = await answering_worker(client)
    await first.close()
    second = await testbed.active(testbed.config(pool=PoolSection("core", version="2")))
    seen = {old}
    while len(seen) < 2:
        seen.add(await answering_worker(client))
    await until(lambda: [each.version for each in testbed.workers()] == ["2"], "the new version")
    assert (await ask(f"{second.url}/version", {"version": "3"}))[0] == 202
    await until(lambda: [each.version for each in testbed.workers()] == ["3"], "the newest version")
    assert (await ask(f"{second.url}/status"))[1]["version"] == "3"
    assert await answering_worker(client) not in seen


async def test_operators_scale_and_release_groups(testbed: RabbitTestbed) -> None:
    manager = await testbed.active(testbed.config(lifetime=Lifetime(60.0, 0.3, 0.1)))
    assert (await ask(f"{manager.url}/scale", {"key": "42", "workers": 2}))[0] == 202
    await until(lambda: len(testbed.workers()) == 2, "two workers")
    client = await testbed.client()
    seen = set()
    while len(seen) < 2:
        seen |= set(await asyncio.gather(*(answering_worker(client) for _ in range(4))))

    async def counted() -> bool:
        [group] = (await ask(f"{manager.url}/status"))[1]["groups"]
        return (group["workers"], group["expected"], group["queue"]) == (2, "active", "bound")

    await eventually(counted, "two workers in the status")
    assert (await ask(f"{manager.url}/release", {"key": "42"}))[0] == 202
    await until(lambda: not testbed.workers(), "the end of the group")


async def test_a_manager_that_drains_stops_its_groups(testbed: RabbitTestbed) -> None:
    manager = await testbed.active()
    await answering_worker(await testbed.client())
    await manager.drain()
    assert testbed.workers() == []
    assert manager.state == State.CLOSED


async def test_a_manager_can_leave_its_groups_behind(testbed: RabbitTestbed) -> None:
    section = PoolSection("core", stop_groups_on_exit=False)
    manager = await testbed.active(testbed.config(pool=section))
    client = await testbed.client()
    first = await answering_worker(client)
    await manager.drain()
    assert len(testbed.workers()) == 1
    assert await answering_worker(client) == first


async def test_requests_of_groups_that_cannot_start_expire(testbed: RabbitTestbed) -> None:
    driver = DriverSection("subprocess", 50.0, {"command": ("no-such-program",)})
    config = testbed.config(driver=driver, limits=Limits(message_ttl_s=0.5))
    manager = await testbed.active(config)
    client = await testbed.client(timeout=20.0)
    with pytest.raises(CallTimeout, match="expired"):
        await client.call(b"hi")
    _, status = await ask(f"{manager.url}/status")
    assert status["dead_letters"]["by_reason"] == {"expired": 1}


async def test_queues_are_declared_with_their_arguments(testbed: RabbitTestbed) -> None:
    vhost = f"/vhosts/{testbed.rabbit.vhost}"  # RabbitMQ 3.10 does not support this setting
    testbed.rabbit.api("PUT", vhost, {"default_queue_type": "quorum"})
    await testbed.active(testbed.config(limits=Limits(message_ttl_s=7.0, delivery_limit=2)))
    await answering_worker(await testbed.client())
    queue = testbed.rabbit.queue("core-req-42")
    assert queue is not None
    assert (queue["type"], queue["durable"]) == ("quorum", True)
    assert queue["arguments"]["x-dead-letter-exchange"] == "core-dl-xchg"
    assert queue["arguments"]["x-delivery-limit"] == 2
    assert queue["arguments"]["x-message-ttl"] == 7000
    exchange = testbed.rabbit.api("GET", f"/exchanges/{testbed.rabbit.vhost}/core-req-xchg")
    assert exchange["arguments"] == {"alternate-exchange": "core-orphan-xchg"}
    for name in ("core-orphan", "core-dl", "core-activity", "core-poison"):
        found = testbed.rabbit.queue(name)
        assert found is not None, name
        assert (found["durable"], found["exclusive"], found["auto_delete"]) == (True, False, False)
        assert found["type"] == "classic", name  # not the default of the virtual host


def cut_connections(testbed: RabbitTestbed) -> None:
    """Close all connections that RabbitMQ lists; some of them may be closed already."""
    for connection in testbed.rabbit.api("GET", f"/vhosts/{testbed.rabbit.vhost}/connections"):
        with suppress(LookupError):
            testbed.rabbit.api("DELETE", f"/connections/{quote(connection['name'])}")


async def test_a_queue_with_other_limits_keeps_serving(testbed: RabbitTestbed) -> None:
    section = PoolSection("core", stop_groups_on_exit=False)
    first = await testbed.active(testbed.config(pool=section, limits=Limits(message_ttl_s=7.0)))
    client = await testbed.client()
    await answering_worker(client)
    await first.close()
    manager = await testbed.active(testbed.config(limits=Limits(message_ttl_s=8.0)))
    states: list[State] = []

    async def noticed() -> bool:
        # Repeatedly, since RabbitMQ lists new connections with a delay.
        await asyncio.to_thread(cut_connections, testbed)
        for _ in range(50):
            states.append(manager.state)
            await asyncio.sleep(0.02)
        return any(state is not State.ACTIVE for state in states)

    await eventually(noticed, "a manager that has noticed")  # and then declares the queue again
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    await answering_worker(client)

    async def bound() -> bool:
        groups = (await ask(f"{manager.url}/status"))[1]["groups"]
        return [each["queue"] for each in groups] == ["bound"]

    await eventually(bound, "a queue that is bound")


async def test_the_request_exchange_is_declared_last(testbed: RabbitTestbed) -> None:
    declared: list[str] = []
    rabbit = Rabbit(testbed.config())

    async def note(channel: Any, exchange: Exchange) -> None:
        declared.append(exchange.name)
        if exchange.name == "core-req-xchg":
            source = f"/exchanges/{testbed.rabbit.vhost}/core-orphan-xchg/bindings/source"
            found = await asyncio.to_thread(testbed.rabbit.api, "GET", source)
            assert [each["destination"] for each in found] == ["core-orphan"]
        await _declare(channel, exchange)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requite.pool.manager.rabbit._declare", note)
        await rabbit.open()
    await rabbit.close()
    assert declared[-1] == "core-req-xchg"


async def test_a_queue_with_other_arguments_is_reported(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    # Without a dead-letter exchange, RabbitMQ would drop dead letters of this queue silently.
    testbed.rabbit.api("PUT", f"/queues/{testbed.rabbit.vhost}/core-req-42", {"durable": True})
    await testbed.active()
    client = await testbed.client()
    call = asyncio.create_task(answering_worker(client))
    await until(lambda: "PRECONDITION_FAILED" in caplog.text, "a warning")
    assert "could not declare the queue of '42'" in caplog.text
    other = await testbed.client("43")
    assert await answering_worker(other)  # other groups are not delayed
    testbed.rabbit.delete_queue("core-req-42")
    assert await call


async def publish_raw(testbed: RabbitTestbed, routing_key: bytes) -> None:
    """Publish a request with a routing key that is not checked first."""
    key = routing_key.decode("utf-8", AS_IT_IS)
    async with connected(testbed.rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        assert await channel.publish("core-req-xchg", key, header_of(b"hi"), b"hi")


@pytest.mark.parametrize("routing_key", [b"\xff", b"a\xfe\xffb", b"\xc3"])
async def test_keys_that_are_not_utf_8_delay_no_other_group(
    testbed: RabbitTestbed, routing_key: bytes
) -> None:
    manager = await testbed.active()
    await publish_raw(testbed, routing_key)
    assert await answering_worker(await testbed.client())
    key = routing_key.decode(errors="replace")
    await until(lambda: key in {each.key for each in testbed.workers()}, "its group")
    assert manager.state is State.ACTIVE


# --- invalid configurations and commands ----------------------------------------------------------
@pytest.mark.parametrize(
    ("section", "text"),
    [
        (
            lambda rabbit: {"url": rabbit.url_of(password="wrong")},
            "refused the user name or password",
        ),
        (lambda rabbit: {"url": rabbit.url_of(vhost="nowhere")}, "virtual host does not exist"),
        (
            lambda rabbit: {"management_url": rabbit.management_url.replace("secret", "wrong")},
            r"rabbitmq\.management_url: RabbitMQ refused the user name or password",
        ),
    ],
)
async def test_refusals_by_rabbitmq_name_the_setting(
    testbed: RabbitTestbed, section: Any, text: str
) -> None:
    right = RabbitSection(testbed.rabbit.url, testbed.rabbit.management_url)
    config = testbed.config(rabbitmq=replace(right, **section(testbed.rabbit)))
    manager = PoolManager(config)
    with pytest.raises(ConfigurationError, match=text) as caught:
        await manager.start()
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("tags", "text"),
    [("", "give the user the tag `management`"), ("management", "does not show the virtual host")],
)
async def test_refusals_by_the_management_api_name_the_setting(
    testbed: RabbitTestbed, tags: str, text: str
) -> None:
    rabbit = testbed.rabbit
    name = rabbit.make_user(f"{rabbit.user}-of-another-host", tags=tags)
    url = rabbit.management_url.replace(f"{rabbit.user}:", f"{name}:")
    manager = PoolManager(testbed.config(rabbitmq=RabbitSection(rabbit.url, url)))
    with pytest.raises(ConfigurationError, match=f"rabbitmq.management_url: .*{text}"):
        await manager.start()
    rabbit.delete_user(name)


async def test_missing_permissions_are_named(testbed: RabbitTestbed) -> None:
    testbed.rabbit.permit(testbed.rabbit.user, configure="")
    manager = PoolManager(testbed.config())
    with pytest.raises(ConfigurationError, match=r"rabbitmq\.url .* lacks permissions"):
        await manager.start()


async def test_without_the_management_api_nothing_is_lost(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    off = RabbitSection(testbed.rabbit.url, "http://guest:guest@127.0.0.1:1")
    manager = await testbed.active(testbed.config(rabbitmq=off))
    # Without the management API, groups are started, but none is stopped.
    assert await answering_worker(await testbed.client())
    status, said = await ask(f"{manager.url}/health")
    assert status == 503
    assert "rabbitmq.management_url" in said["flaws"]["management"]
    assert "rabbitmq.management_url" in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/scale", {"key": "42"}, "workers is missing"),
        ("/scale", {"key": "42", "workers": 0}, "workers must be 1 to 64"),
        ("/scale", {"key": "42", "workers": "2"}, "workers must be of type int"),
        ("/scale", {"key": "42", "workers": 1, "now": True}, "unknown members: now"),
        ("/release", [], "not a JSON object"),
    ],
)
async def test_invalid_commands_are_refused(
    testbed: RabbitTestbed, path: str, body: Any, text: str
) -> None:
    manager = await testbed.active()
    status, said = await ask(manager.url + path, body)
    assert status == 400
    assert text in said["error"]


async def test_scaling_is_refused_for_externally_scaled_groups(testbed: RabbitTestbed) -> None:
    driver = NoopDriver()
    driver.workers_max = 0
    manager = await testbed.manager(driver=driver)
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    status, said = await ask(f"{manager.url}/scale", {"key": "42", "workers": 1})
    assert (status, "driver.scaling" in said["error"]) == (400, True)


async def test_metrics_are_in_the_format_of_prometheus(testbed: RabbitTestbed) -> None:
    manager = await testbed.active()
    await answering_worker(await testbed.client())
    status, text = await ask(f"{manager.url}/metrics")
    assert status == 200
    assert 'requite_pool_active{pool="core"} 1.0\n' in text
    assert 'requite_pool_groups{pool="core",status="active"} 1.0\n' in text
    assert 'requite_pool_orphans_forwarded_total{pool="core"} 1.0\n' in text
    assert "requite_ready 1.0\n" in text
    assert (await ask(f"{manager.url}/ready"))[0] == 200
