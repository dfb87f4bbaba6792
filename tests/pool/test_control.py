"""Drains and cancels of a pool at a real RabbitMQ, and a manager that hands its groups over."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from urllib.parse import quote

import pytest
from tests.amqp.live import hearing, is_consuming
from tests.pool.live import WAIT_S, Floor, ask, eventually, until
from tests.pool.test_manager import who
from tests.support.amqp_connection import connected, header_of, headers_of, take

from requite import AsyncClient, Request, Worker, service
from requite.pool.config import Lifetime, PoolSection, RabbitSection
from requite.pool.drivers.noop import NoopDriver
from requite.pool.manager import PoolManager, rabbit_carrier
from requite.pool.manager.carrier import State
from requite.pool.manager.errors import Refused
from requite.protocols.amqp import methods

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Servant:
    """A worker of the test's own process, whose handler waits until it is let go."""

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

    async def start(self, floor: Floor) -> None:
        """Serve until the test ends."""
        await floor.stack.enter_async_context(self.worker)
        self.over = asyncio.ensure_future(self.worker.until_over())
        floor.stack.callback(self.over.cancel)


async def serving(
    floor: Floor, key: str, worker_id: str, url: str = "", rabbit_url: str = ""
) -> Servant:
    """Start a worker of the test's own process, by default for a queue that is not there yet; with
    the `url` of a manager for one that is, which takes no time."""

    async def bound() -> bool:
        rows = (await ask(f"{url}/status"))[1]["groups"]
        return (key, "bound") in [(row["key"], row["queue"]) for row in rows]

    if url:
        await ask(f"{url}/require", {"key": key})
        await eventually(bound, "its queue")
    servant = Servant(rabbit_url or floor.rabbit.url, key, worker_id)
    await servant.start(floor)
    return servant


async def listening(floor: Floor, count: int) -> None:
    """Wait until so many workers hear of drains and cancels."""
    for exchange in ("core-control-xchg", "core-drain-xchg"):
        await until(
            lambda exchange=exchange: hearing(floor.rabbit, exchange) == count,
            f"{count} workers that hear {exchange}",
        )


async def by_hand(floor: Floor, url: str = "") -> PoolManager:
    """Start a manager whose workers somebody else starts."""
    lifetime = Lifetime(unbind_delay_s=60.0, stop_delay_s=0.3, extra_lifetime_s=0.1)
    rabbit = RabbitSection(url or floor.rabbit.url, floor.rabbit.management_url)
    config = floor.config(lifetime=lifetime, rabbitmq=rabbit)
    manager = await floor.manager(config, driver=NoopDriver())
    await until(lambda: manager.state is State.ACTIVE, "an active manager")
    return manager


# --- drains ---------------------------------------------------------------------------------------
async def test_a_worker_that_is_drained_finishes_what_it_has_and_ends(floor: Floor) -> None:
    manager = await by_hand(floor)
    one = await serving(floor, "a/b", "w1", manager.url)
    two = await serving(floor, "c", "w2", manager.url)
    client, other = await floor.client("a/b"), await floor.client("c")
    call = asyncio.ensure_future(client.call(b"hold"))
    await asyncio.wait_for(one.began.wait(), 30)
    assert (await other.call(b"hi")).body == b"hi"

    await listening(floor, 2)
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
    await serving(floor, "a/b", "w3", manager.url)
    assert (await waits).body == b"later"


async def test_drains_of_a_key_and_of_all_reach_whom_they_mean(floor: Floor) -> None:
    manager = await by_hand(floor)
    url = manager.url
    servants = [await serving(floor, key, f"w-{key}-{n}", url) for key in "ab" for n in (1, 2)]
    for key in "ab":
        assert (await (await floor.client(key)).call(b"hi")).body == b"hi"
    await listening(floor, 4)
    await ask(f"{manager.url}/drain", {"key": "a"})
    await asyncio.wait_for(asyncio.gather(*(each.over for each in servants[:2])), 30)
    assert not any(each.over.done() for each in servants[2:])
    await ask(f"{manager.url}/drain", {"all": True})
    await asyncio.wait_for(asyncio.gather(*(each.over for each in servants[2:])), 30)


@pytest.mark.parametrize(
    "body", [{}, {"key": "a", "all": True}, {"all": False}, {"worker": 5}, {"workers": "w"}]
)
async def test_drains_that_make_no_sense_are_refused(floor: Floor, body: object) -> None:
    manager = await by_hand(floor)
    status, said = await ask(f"{manager.url}/drain", body)
    assert (status, bool(said["error"])) == (400, True)


async def test_a_drain_that_no_worker_hears_says_so(floor: Floor) -> None:
    manager = await by_hand(floor)
    assert await ask(f"{manager.url}/drain", {"all": True}) == (202, {"heard": False})


async def test_workers_that_no_driver_ends_are_told_when_their_group_goes(floor: Floor) -> None:
    manager = await by_hand(floor)
    servant = await serving(floor, "42", "w1", manager.url)
    assert (await (await floor.client()).call(b"hi")).body == b"hi"
    await listening(floor, 1)
    await ask(f"{manager.url}/release", {"key": "42"})
    await asyncio.wait_for(servant.over, 30)


async def test_workers_that_are_drained_are_replaced_and_no_call_fails(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "requite.pool")
    manager = await floor.active()
    client = await floor.client()
    first = await who(client)
    await listening(floor, 1)
    call = asyncio.ensure_future(who(client, b"sleep 0.5"))
    assert (await ask(f"{manager.url}/drain", {"key": "42"}))[0] == 202
    assert await call

    async def replaced() -> bool:
        return await who(client) != first

    await eventually(replaced, "another worker")  # the first one may not have heard yet
    await until(lambda: len(floor.workers()) == 1, "one worker")
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


def user(floor: Floor, role: str) -> str:
    """Add a user with the permissions of a role; return its URL."""
    name = f"{floor.rabbit.user}-{role}"
    floor.rabbit.make_user(name)
    floor.stack.callback(floor.rabbit.delete_user, name)
    floor.rabbit.permit(name, *(f"^({each})$" for each in PERMISSIONS[role]))
    return floor.rabbit.url_of(name)


async def test_with_the_permissions_of_the_page_only_managers_can_drain_workers(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await by_hand(floor, user(floor, "manager"))
    worker = user(floor, "worker")
    servant = await serving(floor, "42", "w1", manager.url, worker)
    await listening(floor, 1)
    caller = user(floor, "caller")
    client = AsyncClient(f"{caller}?pool=core&key=42", timeout=WAIT_S)
    async with client, connected(caller) as connection:
        call = asyncio.ensure_future(client.call(b"hold"))
        await asyncio.wait_for(servant.began.wait(), 30)
        channel = await connection.channel(confirms=True)
        forged = header_of(b"", headers=DRAIN)
        assert await channel.publish("core-control-xchg", b"", forged, b"")
        call.cancel()  # comes to the worker after the drain
        await asyncio.wait_for(servant.interrupted.wait(), 30)
        assert is_consuming(servant.worker)
        assert (await client.call(b"hi")).body == b"hi"
        with pytest.raises(Refused, match="access to exchange 'core-drain-xchg'"):
            await channel.publish("core-drain-xchg", b"", forged, b"")
    assert not servant.over.done()
    await ask(f"{manager.url}/drain", {"key": "42"})
    await asyncio.wait_for(servant.over, 30)
    assert "ACCESS_REFUSED" not in caplog.text


async def test_workers_of_older_versions_hear_drains(floor: Floor) -> None:
    """They bind their queues to the exchange of cancels only."""
    manager = await by_hand(floor)
    async with connected(floor.rabbit.url) as connection:
        channel = await connection.channel()
        await channel.ask(methods.queue_declare("older", {}, exclusive=True))
        await channel.ask(methods.queue_bind("older", "core-control-xchg", ""))
        drained = await ask(f"{manager.url}/drain", {"key": "42"})
        assert drained == (202, {"heard": True})
        assert headers_of(await take(channel, "older")) == {**DRAIN, "x-key": "42"}


async def test_a_worker_says_that_its_manager_is_older(
    floor: Floor, caplog: pytest.LogCaptureFixture
) -> None:
    manager = await by_hand(floor)
    floor.rabbit.api("DELETE", f"/exchanges/{floor.rabbit.vhost}/core-drain-xchg")
    servant = await serving(floor, "42", "w1", manager.url)
    client = await floor.client("42")
    call = asyncio.ensure_future(client.call(b"hold"))
    await asyncio.wait_for(servant.began.wait(), 30)
    await until(lambda: "no drains arrive" in caplog.text, "a warning")
    assert "start the pool's manager in this version" in caplog.text
    await until(lambda: hearing(floor.rabbit, "core-control-xchg") == 1, "a worker that hears")
    call.cancel()
    await asyncio.wait_for(servant.interrupted.wait(), 30)  # cancels do arrive
    assert (await client.call(b"hi")).body == b"hi"


# --- cancels, and traces --------------------------------------------------------------------------
async def test_a_cancelled_call_interrupts_its_handler_in_the_pool(floor: Floor) -> None:
    url = (await by_hand(floor)).url
    one, two = await serving(floor, "a", "w1", url), await serving(floor, "b", "w2", url)
    client, other = await floor.client("a"), await floor.client("b")
    call = asyncio.ensure_future(client.call(b"hold"))
    kept = asyncio.ensure_future(other.call(b"hold"))
    await asyncio.wait_for(one.began.wait(), 30)
    await asyncio.wait_for(two.began.wait(), 30)
    await listening(floor, 2)
    call.cancel()
    await asyncio.wait_for(one.interrupted.wait(), 30)
    assert not two.interrupted.is_set()
    two.release.set()
    assert (await kept).body == b"hold"
    assert (await client.call(b"hi")).body == b"hi"


async def test_a_trace_reaches_the_handler_through_the_manager(floor: Floor) -> None:
    await by_hand(floor)
    servant = await serving(floor, "42", "w1")
    client = await floor.client()
    await client.call(b"hi")  # an orphan, which the manager has republished
    await client.call(b"hi")
    first, second = servant.traces
    assert [len(part) for part in first.split("-")] == [2, 32, 16, 2]
    assert first != second


# --- a manager that leaves ------------------------------------------------------------------------
@pytest.mark.parametrize("stops", [True, False])
async def test_a_manager_leaves_its_groups_to_the_one_that_stands_by(
    floor: Floor, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = floor.config(pool=PoolSection("core", stop_groups_on_exit=stops))
    first = await floor.active(config)
    second = await floor.manager(config)
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    client = await floor.client()
    worker_id = await who(client)
    calls = asyncio.ensure_future(_keep_calling(client, 30))
    with monkeypatch.context() as patch:
        patch.setattr(rabbit_carrier, "_HAND_OVER_S", WAIT_S)  # the other one may be slow here
        await first.drain()
    assert second.state is State.ACTIVE or not stops
    assert await calls == {worker_id}  # nobody was stopped
    await until(lambda: second.state is State.ACTIVE, "the other manager")
    assert await who(client) == worker_id
    await second.drain()
    assert (floor.workers() == []) is stops


async def _keep_calling(client: AsyncClient, count: int) -> set[str]:
    """Return who has answered."""
    return {await who(client, b"sleep 0.05") for _ in range(count)}


async def test_managers_that_leave_together_leave_no_worker_behind(floor: Floor) -> None:
    first = await floor.active()
    second = await floor.manager(replace(first.config))
    await until(lambda: second.state is State.STANDBY, "a manager that stands by")
    await who(await floor.client())
    await asyncio.gather(first.drain(), second.drain())
    assert floor.workers() == []
