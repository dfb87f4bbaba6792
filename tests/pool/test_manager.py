"""A manager with a real RabbitMQ and real workers: groups come with requests, and go without."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from tests.pool.live import Floor, ask, eventually, until
from tests.support.amqp_connection import connected, header_of

from requite import AsyncClient, CallTimeout, ConfigurationError, Poisoned
from requite.pool.config import DriverSection, Lifetime, Limits, PoolSection, RabbitSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager import PoolManager
from requite.pool.manager.carrier import State
from requite.pool.manager.rabbit import Rabbit, _declare
from requite.protocols.amqp.fields import AS_IT_IS
from requite.protocols.amqp.topology import Exchange

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


async def who(client: AsyncClient, word: bytes = b"hi") -> str:
    """Return the id of the worker that answers."""
    body = (await client.call(word)).body.removesuffix(b" " + word)
    return body.decode().rsplit(" ", 1)[1]


async def test_the_first_request_of_a_key_starts_its_group(floor: Floor) -> None:
    await floor.active()
    client = await floor.client("a/b é")
    first = await client.call(b"hi")
    key, worker_id, word = first.body.decode().rsplit(" ", 2)
    assert (key, word) == ("a/b é", "hi")
    assert await who(client) == worker_id
    assert [record.key for record in floor.workers()] == ["a/b é"]


async def test_a_group_without_requests_goes_and_comes_back_with_the_next(floor: Floor) -> None:
    await floor.active(floor.config(lifetime=Lifetime(0.4, 0.4, 0.1)))
    client = await floor.client()
    first = await who(client)
    await until(lambda: not floor.workers(), "the end of the idle group")
    await until(lambda: floor.rabbit.queue("core-req-42") is None, "the end of its queue")
    assert await who(client) != first


async def test_steady_traffic_keeps_a_group_alive(floor: Floor) -> None:
    await floor.active(floor.config(lifetime=Lifetime(2.0, 1.0, 0.3)))
    client = await floor.client()
    ids = set()
    for _ in range(20):
        ids.add(await who(client))
        await asyncio.sleep(0.2)  # the traffic of the title
    assert len(ids) == 1


async def test_a_request_that_kills_its_workers_is_told_kept_and_tried_again(floor: Floor) -> None:
    manager = await floor.active(floor.config(limits=Limits(delivery_limit=1)))
    client = await floor.client()
    with pytest.raises(Poisoned):
        await client.call(b"die")
    _, kept = await ask(f"{manager.url}/poison")
    [poisoned] = kept["poison"]
    assert (poisoned["key"], poisoned["size_bytes"], poisoned["attempts"]) == ("42", 3, 2)
    assert (await ask(f"{manager.url}/poison"))[1] == kept  # a look takes nothing away
    refused = await ask(f"{manager.url}/poison/retry", {"ids": ["another"]})
    assert refused == (200, {"retried": 0})
    retried = await ask(f"{manager.url}/poison/retry", {"ids": [poisoned["id"]]})
    assert retried == (200, {"retried": 1})

    async def poisoned_again() -> bool:
        return len((await ask(f"{manager.url}/poison"))[1]["poison"]) == 1

    await eventually(poisoned_again, "the request in the poison queue again")
    _, status = await ask(f"{manager.url}/status")
    assert status["dead_letters"]["by_reason"] == {"delivery_limit": 2}


async def test_workers_that_die_are_replaced_and_nothing_is_lost(floor: Floor) -> None:
    await floor.active()
    client = await floor.client()
    first = await who(client)
    call = asyncio.create_task(who(client, b"sleep 2"))
    await until(lambda: floor.workers() and floor.workers()[0].pid, "the process of the worker")
    os.killpg(floor.workers()[0].pid, signal.SIGKILL)
    assert await call != first


@pytest.mark.timeout(240)
async def test_calls_outlive_a_kill_of_rabbitmq(floor: Floor) -> None:
    manager = await floor.active()
    client = await floor.client()
    first = await who(client)
    await asyncio.to_thread(floor.rabbit.kill)
    await until(lambda: manager.state is State.CONNECTING, "a manager that has noticed")
    await asyncio.to_thread(floor.rabbit.start)
    assert await who(client) == first
    other = await floor.client("new")
    assert await who(other) != first
    assert manager.state == State.ACTIVE


async def test_a_deleted_queue_of_orphans_is_made_again(floor: Floor) -> None:
    manager = await floor.active()
    floor.rabbit.delete_queue("core-orphan")
    await until(lambda: manager.state is not State.ACTIVE, "a manager that has noticed")
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    assert await who(await floor.client())


async def test_requests_wait_for_a_manager_that_comes_later(floor: Floor) -> None:
    gone = await floor.active()
    await gone.close()
    client = await floor.client()
    call = asyncio.create_task(who(client))
    await until(lambda: _messages(floor, "core-orphan"), "an orphan")
    await floor.active()
    assert await call


def _messages(floor: Floor, queue: str) -> int:
    found = floor.rabbit.queue(queue)
    return 0 if found is None else int(found.get("messages", 0))


async def test_a_second_manager_stands_by_and_takes_over_with_the_workers(floor: Floor) -> None:
    first = await floor.active()
    second = await floor.manager()
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    client = await floor.client()
    worker_id = await who(client)
    assert (await ask(f"{second.url}/ready"))[0] == 503
    assert (await ask(f"{second.url}/health"))[0] == 200
    refused, said = await ask(f"{second.url}/scale", {"key": "42", "workers": 2})
    assert (refused, "standby" in said["error"]) == (503, True)
    await first.close()
    await until(lambda: second.state is State.ACTIVE, "the other manager")
    assert await who(client) == worker_id
    assert await who(await floor.client("43")) != worker_id


async def test_a_new_version_replaces_workers_and_no_call_fails(floor: Floor) -> None:
    first = await floor.active(floor.config(pool=PoolSection("core", version="1")))
    client = await floor.client()
    old = await who(client)
    await first.close()
    second = await floor.active(floor.config(pool=PoolSection("core", version="2")))
    seen = {old}
    while len(seen) < 2:
        seen.add(await who(client))
    await until(lambda: [each.version for each in floor.workers()] == ["2"], "the new version")
    assert (await ask(f"{second.url}/version", {"version": "3"}))[0] == 202
    await until(lambda: [each.version for each in floor.workers()] == ["3"], "the newest version")
    assert (await ask(f"{second.url}/status"))[1]["version"] == "3"
    assert await who(client) not in seen


async def test_operators_scale_groups_and_let_them_go(floor: Floor) -> None:
    manager = await floor.active(floor.config(lifetime=Lifetime(60.0, 0.3, 0.1)))
    assert (await ask(f"{manager.url}/scale", {"key": "42", "workers": 2}))[0] == 202
    await until(lambda: len(floor.workers()) == 2, "two workers")
    client = await floor.client()
    seen = set()
    while len(seen) < 2:
        seen |= set(await asyncio.gather(*(who(client) for _ in range(4))))

    async def counted() -> bool:
        [group] = (await ask(f"{manager.url}/status"))[1]["groups"]
        return (group["workers"], group["expected"], group["queue"]) == (2, "active", "bound")

    await eventually(counted, "two workers in the status")
    assert (await ask(f"{manager.url}/release", {"key": "42"}))[0] == 202
    await until(lambda: not floor.workers(), "the end of the group")


async def test_a_manager_that_drains_stops_its_groups(floor: Floor) -> None:
    manager = await floor.active()
    await who(await floor.client())
    await manager.drain()
    assert floor.workers() == []
    assert manager.state == State.CLOSED


async def test_a_manager_can_leave_its_groups_behind(floor: Floor) -> None:
    section = PoolSection("core", stop_groups_on_exit=False)
    manager = await floor.active(floor.config(pool=section))
    client = await floor.client()
    first = await who(client)
    await manager.drain()
    assert len(floor.workers()) == 1
    assert await who(client) == first


async def test_requests_of_groups_that_cannot_start_are_answered_in_time(floor: Floor) -> None:
    driver = DriverSection("subprocess", 50.0, {"command": ("no-such-program",)})
    config = floor.config(driver=driver, limits=Limits(message_ttl_s=0.5))
    manager = await floor.active(config)
    client = await floor.client(timeout=20.0)
    with pytest.raises(CallTimeout, match="expired"):
        await client.call(b"hi")
    _, status = await ask(f"{manager.url}/status")
    assert status["dead_letters"]["by_reason"] == {"expired": 1}


async def test_queues_have_what_they_must_have(floor: Floor) -> None:
    vhost = f"/vhosts/{floor.rabbit.vhost}"  # RabbitMQ 3.10 does not know this setting
    floor.rabbit.api("PUT", vhost, {"default_queue_type": "quorum"})
    await floor.active(floor.config(limits=Limits(message_ttl_s=7.0, delivery_limit=2)))
    await who(await floor.client())
    queue = floor.rabbit.queue("core-req-42")
    assert queue is not None
    assert (queue["type"], queue["durable"]) == ("quorum", True)
    assert queue["arguments"]["x-dead-letter-exchange"] == "core-dl-xchg"
    assert queue["arguments"]["x-delivery-limit"] == 2
    assert queue["arguments"]["x-message-ttl"] == 7000
    exchange = floor.rabbit.api("GET", f"/exchanges/{floor.rabbit.vhost}/core-req-xchg")
    assert exchange["arguments"] == {"alternate-exchange": "core-orphan-xchg"}
    for name in ("core-orphan", "core-dl", "core-activity", "core-poison"):
        found = floor.rabbit.queue(name)
        assert found is not None, name
        assert (found["durable"], found["exclusive"], found["auto_delete"]) == (True, False, False)
        assert found["type"] == "classic", name  # whatever else is the virtual host's default


def cut_connections(floor: Floor) -> None:
    """End all connections to RabbitMQ of which it tells, among which may be some that are gone."""
    for told in floor.rabbit.api("GET", f"/vhosts/{floor.rabbit.vhost}/connections"):
        with suppress(LookupError):
            floor.rabbit.api("DELETE", f"/connections/{quote(told['name'])}")


async def test_queues_with_other_limits_serve_on(floor: Floor) -> None:
    section = PoolSection("core", stop_groups_on_exit=False)
    first = await floor.active(floor.config(pool=section, limits=Limits(message_ttl_s=7.0)))
    client = await floor.client()
    await who(client)
    await first.close()
    manager = await floor.active(floor.config(limits=Limits(message_ttl_s=8.0)))
    states: list[State] = []

    async def noticed() -> bool:
        await asyncio.to_thread(cut_connections, floor)  # it tells of a new one after a while
        for _ in range(50):
            states.append(manager.state)
            await asyncio.sleep(0.02)
        return any(state is not State.ACTIVE for state in states)

    await eventually(noticed, "a manager that has noticed")  # and declares the queue again
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    await who(client)

    async def bound() -> bool:
        groups = (await ask(f"{manager.url}/status"))[1]["groups"]
        return [each["queue"] for each in groups] == ["bound"]

    await eventually(bound, "a queue that is bound")


async def test_requests_find_a_way_as_soon_as_their_exchange_is_there(floor: Floor) -> None:
    declared: list[str] = []
    rabbit = Rabbit(floor.config())

    async def note(channel: Any, exchange: Exchange) -> None:
        declared.append(exchange.name)
        if exchange.name == "core-req-xchg":
            source = f"/exchanges/{floor.rabbit.vhost}/core-orphan-xchg/bindings/source"
            found = await asyncio.to_thread(floor.rabbit.api, "GET", source)
            assert [each["destination"] for each in found] == ["core-orphan"]
        await _declare(channel, exchange)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requite.pool.manager.rabbit._declare", note)
        await rabbit.open()
    await rabbit.close()
    assert declared[-1] == "core-req-xchg"


async def test_a_queue_that_was_made_otherwise_is_told_of(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    # Without the dead-letter exchange its requests would vanish in silence.
    floor.rabbit.api("PUT", f"/queues/{floor.rabbit.vhost}/core-req-42", {"durable": True})
    await floor.active()
    client = await floor.client()
    call = asyncio.create_task(who(client))
    await until(lambda: "PRECONDITION_FAILED" in caplog.text, "a warning")
    assert "could not declare the queue of '42'" in caplog.text
    other = await floor.client("43")
    assert await who(other)  # nobody else is kept waiting
    floor.rabbit.delete_queue("core-req-42")
    assert await call


async def publish_raw(floor: Floor, routing_key: bytes) -> None:
    """Publish a request of which nothing is checked before RabbitMQ sees it."""
    key = routing_key.decode("utf-8", AS_IT_IS)
    async with connected(floor.rabbit.url) as connection:
        channel = await connection.channel(confirms=True)
        assert await channel.publish("core-req-xchg", key, header_of(b"hi"), b"hi")


@pytest.mark.parametrize("routing_key", [b"\xff", b"a\xfe\xffb", b"\xc3"])
async def test_keys_that_are_no_text_keep_nobody_waiting(floor: Floor, routing_key: bytes) -> None:
    manager = await floor.active()
    await publish_raw(floor, routing_key)
    assert await who(await floor.client())
    key = routing_key.decode(errors="replace")
    await until(lambda: key in {each.key for each in floor.workers()}, "its group")
    assert manager.state is State.ACTIVE


# --- what cannot work -----------------------------------------------------------------------------
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
async def test_what_rabbitmq_refuses_is_named(floor: Floor, section: Any, text: str) -> None:
    right = RabbitSection(floor.rabbit.url, floor.rabbit.management_url)
    config = floor.config(rabbitmq=replace(right, **section(floor.rabbit)))
    manager = PoolManager(config)
    with pytest.raises(ConfigurationError, match=text) as caught:
        await manager.start()
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("tags", "text"),
    [("", "give the user the tag `management`"), ("management", "does not show the virtual host")],
)
async def test_what_the_management_api_refuses_is_named(floor: Floor, tags: str, text: str) -> None:
    rabbit = floor.rabbit
    name = rabbit.make_user(f"{rabbit.user}-of-another-host", tags=tags)
    url = rabbit.management_url.replace(f"{rabbit.user}:", f"{name}:")
    manager = PoolManager(floor.config(rabbitmq=RabbitSection(rabbit.url, url)))
    with pytest.raises(ConfigurationError, match=f"rabbitmq.management_url: .*{text}"):
        await manager.start()
    rabbit.delete_user(name)


async def test_missing_permissions_are_named(floor: Floor) -> None:
    floor.rabbit.permit(floor.rabbit.user, configure="")
    manager = PoolManager(floor.config())
    with pytest.raises(ConfigurationError, match=r"rabbitmq\.url .* lacks permissions"):
        await manager.start()


async def test_without_the_management_api_nothing_is_lost(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    off = RabbitSection(floor.rabbit.url, "http://guest:guest@127.0.0.1:1")
    manager = await floor.active(floor.config(rabbitmq=off))
    assert await who(await floor.client())  # a group is started without it, but none is stopped
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
async def test_commands_that_make_no_sense_are_refused(
    floor: Floor, path: str, body: Any, text: str
) -> None:
    manager = await floor.active()
    status, said = await ask(manager.url + path, body)
    assert status == 400
    assert text in said["error"]


async def test_groups_that_others_scale_are_not_scaled(floor: Floor) -> None:
    driver = NoopDriver()
    driver.workers_max = 0
    manager = await floor.manager(driver=driver)
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    status, said = await ask(f"{manager.url}/scale", {"key": "42", "workers": 1})
    assert (status, "driver.scaling" in said["error"]) == (400, True)


async def test_figures_are_told_as_prometheus_reads_them(floor: Floor) -> None:
    manager = await floor.active()
    await who(await floor.client())
    status, text = await ask(f"{manager.url}/metrics")
    assert status == 200
    assert 'requite_pool_active{pool="core"} 1.0\n' in text
    assert 'requite_pool_groups{pool="core",status="active"} 1.0\n' in text
    assert 'requite_pool_orphans_forwarded_total{pool="core"} 1.0\n' in text
    assert (await ask(f"{manager.url}/ready"))[0] == 200
