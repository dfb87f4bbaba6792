"""Drains and cancellations in a pool over a real RabbitMQ, and handover between managers."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from urllib.parse import quote

import pytest
from opentelemetry.trace import SpanKind
from tests.amqp.live import control_listeners, is_consuming
from tests.pool.live import WAIT_S, RabbitTestbed, ask, eventually, until
from tests.pool.test_manager import answering_worker
from tests.support.amqp_connection import connected, header_of, headers_of, take
from tests.tracing.conftest import Spans

from requite import AsyncClient, Request, Worker, service
from requite.pool.config import Lifetime, PoolSection, RabbitSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager import PoolManager, rabbit_carrier
from requite.pool.manager.carrier import State
from requite.pool.manager.errors import Refused
from requite.protocols.amqp import methods
from requite.trace_context import decode_traceparent
from requite.tracing.api import trace_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class HoldingWorker:
    """A worker in the test's event loop.

    The body `hold` blocks its handler until `release` is set.
    """

    def __init__(self, url: str, key: str, worker_id: str) -> None:
        self.began, self.release = asyncio.Event(), asyncio.Event()
        self.interrupted = asyncio.Event()
        self.traces: list[str] = []
        query = f"pool=core&key={quote(key, safe='')}&id={worker_id}"
        self.worker = Worker(f"{url}?{query}", self._service())
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _service(self) -> service:
        @service("pool")
        async def hold(request: Request) -> bytes:
            self.traces.append(request.traceparent)
            self.began.set()
            try:
                if request.body == b"hold":
                    await self.release.wait()
            except asyncio.CancelledError:
                self.interrupted.set()
                raise
            return request.body

        return hold

    async def start(self, testbed: RabbitTestbed) -> None:
        """Serve until the test ends."""
        await testbed.stack.enter_async_context(self.worker)
        self.over = asyncio.ensure_future(self.worker.until_over())
        testbed.stack.callback(self.over.cancel)


async def start_worker(
    testbed: RabbitTestbed, key: str, worker_id: str, url: str = "", rabbit_url: str = ""
) -> HoldingWorker:
    """Start a worker in the test's event loop.

    With the `url` of a manager, wait first until that manager has bound the queue of the key.
    Without, the worker waits for its queue.
    """

    async def bound() -> bool:
        rows = (await ask(f"{url}/status"))[1]["groups"]
        return (key, "bound") in [(row["key"], row["queue"]) for row in rows]

    if url:
        await ask(f"{url}/require", {"key": key})
        await eventually(bound, "its queue")
    worker = HoldingWorker(rabbit_url or testbed.rabbit.url, key, worker_id)
    await worker.start(testbed)
    return worker


async def until_bound(testbed: RabbitTestbed, count: int) -> None:
    """Wait until `count` workers are bound to the exchanges of drains and of cancels."""
    for exchange in ("core-control-xchg", "core-drain-xchg"):
        await until(
            lambda exchange=exchange: control_listeners(testbed.rabbit, exchange) == count,
            f"{count} workers that are bound to {exchange}",
        )


async def start_idle_manager(testbed: RabbitTestbed, url: str = "") -> PoolManager:
    """Start a manager whose driver starts no workers."""
    lifetime = Lifetime(unbind_delay_s=60.0, stop_delay_s=0.3, extra_lifetime_s=0.1)
    rabbit = RabbitSection(url or testbed.rabbit.url, testbed.rabbit.management_url)
    config = testbed.config(lifetime=lifetime, rabbitmq=rabbit)
    manager = await testbed.manager(config, driver=NoopDriver())
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    return manager


# --- drains ---------------------------------------------------------------------------------------
async def test_a_drained_worker_finishes_its_requests_and_exits(testbed: RabbitTestbed) -> None:
    manager = await start_idle_manager(testbed)
    one = await start_worker(testbed, "a/b", "w1", manager.url)
    two = await start_worker(testbed, "c", "w2", manager.url)
    client, other = await testbed.client("a/b"), await testbed.client("c")
    call = asyncio.ensure_future(client.call(b"hold"))
    await asyncio.wait_for(one.began.wait(), 30)
    assert (await other.call(b"hi")).body == b"hi"

    await until_bound(testbed, 2)
    drained = await ask(f"{manager.url}/drain", {"worker": "w1"})
    assert drained == (202, {"heard": True})
    await until(lambda: not is_consuming(one.worker), "a worker that takes no more")
    assert not one.over.done()  # it holds a request
    one.release.set()
    assert (await call).body == b"hold"
    await asyncio.wait_for(one.over, 30)
    assert not two.over.done()
    assert (await other.call(b"hi")).body == b"hi"

    waits = asyncio.ensure_future(client.call(b"later"))  # in the queue, for the next worker
    await start_worker(testbed, "a/b", "w3", manager.url)
    assert (await waits).body == b"later"


async def test_drains_reach_the_workers_of_a_key_or_all_workers(testbed: RabbitTestbed) -> None:
    manager = await start_idle_manager(testbed)
    url = manager.url
    workers = [
        await start_worker(testbed, key, f"w-{key}-{n}", url) for key in "ab" for n in (1, 2)
    ]
    for key in "ab":
        assert (await (await testbed.client(key)).call(b"hi")).body == b"hi"
    await until_bound(testbed, 4)
    await ask(f"{manager.url}/drain", {"key": "a"})
    await asyncio.wait_for(asyncio.gather(*(each.over for each in workers[:2])), 30)
    assert not any(each.over.done() for each in workers[2:])
    await ask(f"{manager.url}/drain", {"all": True})
    await asyncio.wait_for(asyncio.gather(*(each.over for each in workers[2:])), 30)


@pytest.mark.parametrize(
    "body", [{}, {"key": "a", "all": True}, {"all": False}, {"worker": 5}, {"workers": "w"}]
)
async def test_invalid_drains_are_refused(testbed: RabbitTestbed, body: object) -> None:
    manager = await start_idle_manager(testbed)
    status, said = await ask(f"{manager.url}/drain", body)
    assert (status, bool(said["error"])) == (400, True)


async def test_a_drain_that_reaches_no_worker_is_reported(testbed: RabbitTestbed) -> None:
    manager = await start_idle_manager(testbed)
    assert await ask(f"{manager.url}/drain", {"all": True}) == (202, {"heard": False})


async def test_releasing_a_group_drains_workers_that_the_driver_did_not_start(
    testbed: RabbitTestbed,
) -> None:
    manager = await start_idle_manager(testbed)
    worker = await start_worker(testbed, "42", "w1", manager.url)
    assert (await (await testbed.client()).call(b"hi")).body == b"hi"
    await until_bound(testbed, 1)
    await ask(f"{manager.url}/release", {"key": "42"})
    await asyncio.wait_for(worker.over, 30)


async def test_drained_workers_are_replaced_and_no_call_fails(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    manager = await testbed.active()
    client = await testbed.client()
    first = await answering_worker(client)
    await until_bound(testbed, 1)
    call = asyncio.ensure_future(answering_worker(client, b"sleep 0.5"))
    assert (await ask(f"{manager.url}/drain", {"key": "42"}))[0] == 202
    assert await call

    async def replaced() -> bool:
        return await answering_worker(client) != first

    # The first worker may not have received the drain yet.
    await eventually(replaced, "another worker")
    await until(lambda: len(testbed.workers()) == 1, "one worker")
    await until(lambda: f"worker {first} ended: 0" in caplog.text, "its end in good order")


# --- who may drain --------------------------------------------------------------------------------
DRAIN = {"x-control": "drain"}


# docs/protocols/pools.md, "Permissions": what each may configure, write and read.
PERMISSIONS = {
    "caller": ("requite-reply-.*", "core-req-xchg|core-control-xchg", "requite-reply-.*"),
    "worker": (
        r"amq\.gen-.*",
        r"amq\.default|amq\.gen-.*|core-activity-xchg",
        r"amq\.gen-.*|core-control-xchg|core-drain-xchg|core-req-(?!xchg$).*",
    ),
    "manager": ("core-.*", r"amq\.default|core-.*", "core-.*"),
}


def user(testbed: RabbitTestbed, role: str) -> str:
    """Add a user with the permissions of a role; return its URL."""
    name = f"{testbed.rabbit.user}-{role}"
    testbed.rabbit.make_user(name)
    testbed.stack.callback(testbed.rabbit.delete_user, name)
    testbed.rabbit.permit(name, *(f"^({each})$" for each in PERMISSIONS[role]))
    return testbed.rabbit.url_of(name)


async def test_with_the_permissions_of_the_page_only_managers_can_drain_workers(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await start_idle_manager(testbed, user(testbed, "manager"))
    worker_url = user(testbed, "worker")
    worker = await start_worker(testbed, "42", "w1", manager.url, worker_url)
    await until_bound(testbed, 1)
    caller = user(testbed, "caller")
    client = AsyncClient(f"{caller}?pool=core&key=42", timeout=WAIT_S)
    async with client, connected(caller) as connection:
        call = asyncio.ensure_future(client.call(b"hold"))
        await asyncio.wait_for(worker.began.wait(), 30)
        channel = await connection.channel(confirms=True)
        forged = header_of(b"", headers=DRAIN)
        assert await channel.publish("core-control-xchg", "", forged, b"")
        call.cancel()  # comes to the worker after the drain
        await asyncio.wait_for(worker.interrupted.wait(), 30)
        assert is_consuming(worker.worker)
        assert (await client.call(b"hi")).body == b"hi"
        with pytest.raises(Refused, match="access to exchange 'core-drain-xchg'"):
            await channel.publish("core-drain-xchg", "", forged, b"")
    assert not worker.over.done()
    await ask(f"{manager.url}/drain", {"key": "42"})
    await asyncio.wait_for(worker.over, 30)
    assert "ACCESS_REFUSED" not in caplog.text


async def test_workers_of_older_versions_hear_drains(testbed: RabbitTestbed) -> None:
    """They bind their queues to the exchange of cancels only."""
    manager = await start_idle_manager(testbed)
    async with connected(testbed.rabbit.url) as connection:
        channel = await connection.channel()
        await channel.ask(methods.queue_declare("older", {}, exclusive=True))
        await channel.ask(methods.queue_bind("older", "core-control-xchg", ""))
        drained = await ask(f"{manager.url}/drain", {"key": "42"})
        assert drained == (202, {"heard": True})
        assert headers_of(await take(channel, "older")) == {**DRAIN, "x-key": "42"}


async def test_a_worker_says_that_its_manager_is_older(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await start_idle_manager(testbed)
    testbed.rabbit.api("DELETE", f"/exchanges/{testbed.rabbit.vhost}/core-drain-xchg")
    worker = await start_worker(testbed, "42", "w1", manager.url)
    client = await testbed.client("42")
    call = asyncio.ensure_future(client.call(b"hold"))
    await asyncio.wait_for(worker.began.wait(), 30)
    await until(lambda: "no drains arrive" in caplog.text, "a warning")
    assert "start the pool's manager in this version" in caplog.text
    await until(
        lambda: control_listeners(testbed.rabbit, "core-control-xchg") == 1, "a worker that hears"
    )
    call.cancel()
    await asyncio.wait_for(worker.interrupted.wait(), 30)  # cancels do arrive
    assert (await client.call(b"hi")).body == b"hi"


# --- cancellations and traces ---------------------------------------------------------------------
async def test_cancelling_a_call_cancels_its_handler_in_the_pool(testbed: RabbitTestbed) -> None:
    url = (await start_idle_manager(testbed)).url
    one, two = (
        await start_worker(testbed, "a", "w1", url),
        await start_worker(testbed, "b", "w2", url),
    )
    client, other = await testbed.client("a"), await testbed.client("b")
    call = asyncio.ensure_future(client.call(b"hold"))
    kept = asyncio.ensure_future(other.call(b"hold"))
    await asyncio.wait_for(one.began.wait(), 30)
    await asyncio.wait_for(two.began.wait(), 30)
    await until_bound(testbed, 2)
    call.cancel()
    await asyncio.wait_for(one.interrupted.wait(), 30)
    assert not two.interrupted.is_set()
    two.release.set()
    assert (await kept).body == b"hold"
    assert (await client.call(b"hi")).body == b"hi"


async def test_a_trace_reaches_the_handler_through_the_manager(
    spans: Spans, testbed: RabbitTestbed
) -> None:
    await start_idle_manager(testbed)
    worker = await start_worker(testbed, "42", "w1")
    client = await testbed.client()
    await client.call(b"hi")  # an orphan, which the manager has republished
    await client.call(b"hi")
    first, second = worker.traces
    sent = [trace_of(span.context) for span in spans.of(SpanKind.CLIENT)]
    assert [decode_traceparent(first), decode_traceparent(second)] == sent


# --- handover to the standby ----------------------------------------------------------------------
@pytest.mark.parametrize("stops", [True, False])
async def test_a_drained_manager_hands_its_groups_to_the_standby(
    testbed: RabbitTestbed, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = testbed.config(pool=PoolSection("core", stop_groups_on_exit=stops))
    first = await testbed.active(config)
    second = await testbed.manager(config)
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    client = await testbed.client()
    worker_id = await answering_worker(client)
    calls = asyncio.ensure_future(_keep_calling(client, 30))
    with monkeypatch.context() as patch:
        # The standby may be slow to take over.
        patch.setattr(rabbit_carrier, "_HAND_OVER_S", WAIT_S)
        await first.drain()
    assert second.state is State.ACTIVE or not stops
    assert await calls == {worker_id}  # no worker was stopped
    await until(lambda: second.state is State.ACTIVE, "the other manager")
    assert await answering_worker(client) == worker_id
    await second.drain()
    assert (testbed.workers() == []) is stops


async def _keep_calling(client: AsyncClient, count: int) -> set[str]:
    """Call `count` times; return the ids of the workers that answered."""
    return {await answering_worker(client, b"sleep 0.05") for _ in range(count)}


async def test_managers_drained_together_stop_all_workers(testbed: RabbitTestbed) -> None:
    first = await testbed.active()
    second = await testbed.manager(replace(first.config))
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    await answering_worker(await testbed.client())
    await asyncio.gather(first.drain(), second.drain())
    assert testbed.workers() == []
