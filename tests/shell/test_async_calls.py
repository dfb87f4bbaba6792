"""`AsyncClient` and its engine: what starting, cancelling and `map` submit, and when."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable, Sequence

import pytest

from requite.client import AsyncClient, aio
from requite.engine import Cancel, DeliverAll, Effect, Input, Submit
from requite.errors import LocalViolation
from requite.request import Reply


class Echo:
    """An engine that answers each batch of calls at once; `batches` has the size of each."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.holds = False
        self.cancelled: list[object] = []

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        asked = [event for event in events if isinstance(event, Submit)]
        self.cancelled += [event.token for event in events if isinstance(event, Cancel)]
        if not asked:
            return []
        self.batches.append(len(asked))
        if self.holds:
            return []
        return [DeliverAll([(event.token, Reply(event.frames)) for event in asked])]

    def deadline(self) -> float | None:
        return None

    def snapshot(self) -> None:
        return None


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Echo:
    """The engine of all clients of this test, which dial nothing."""
    engine = Echo()
    plan = aio.client_plan

    def fake_plan(*args: object) -> object:
        return plan(*args)._replace(make_engine=lambda _origin, _chronicle: engine)  # type: ignore[arg-type]

    monkeypatch.setattr(aio, "client_plan", fake_plan)
    return engine


# --- started calls --------------------------------------------------------------------------------
async def test_gathering_started_calls_makes_no_task(engine: Echo) -> None:
    client = AsyncClient("mdp://localhost:1/echo")
    replies = asyncio.gather(*(client.start(b"%d" % number) for number in range(10)))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [reply.body for reply in await replies] == [b"%d" % number for number in range(10)]
    assert engine.batches == [10]


async def test_cancelling_a_started_call_cancels_it_at_once_and_once(engine: Echo) -> None:
    engine.holds = True
    client = AsyncClient("mdp://localhost:1/echo")
    call = client.start(b"x")
    assert call.cancel()
    assert engine.batches == [1]  # in this order
    assert engine.cancelled == [call]
    assert not call.cancel()
    assert engine.cancelled == [call]


async def test_time_outs_and_cancelled_tasks_cancel_started_calls(engine: Echo) -> None:
    engine.holds = True
    client = AsyncClient("mdp://localhost:1/echo")
    timed_out, in_scope, in_task = (client.start(b"x") for _ in range(3))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(timed_out, 0.001)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await in_scope
    task = asyncio.create_task(asyncio.wait_for(in_task, None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.cancelled == [timed_out, in_scope, in_task]


async def test_an_answered_call_cannot_be_cancelled(engine: Echo) -> None:
    client = AsyncClient("mdp://localhost:1/echo")
    call = client.start(b"x")
    assert (await call).body == b"x"
    assert not call.cancel()
    assert engine.cancelled == []


@pytest.mark.parametrize("method", ["call", "start"])
async def test_a_task_keeps_its_context_variables(engine: Echo, method: str) -> None:
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number")
    client = AsyncClient("mdp://localhost:1/echo")

    async def ask(mine: int) -> int:
        number.set(mine)
        await getattr(client, method)(b"x")
        return number.get()

    assert await asyncio.gather(*map(ask, range(10))) == list(range(10))


def test_a_call_cannot_be_started_outside_an_event_loop(engine: Echo) -> None:
    client = AsyncClient("mdp://localhost:1/echo")
    with pytest.raises(LocalViolation, match="no asyncio event loop is running"):
        client.start(b"x")
    assert engine.batches == []


# --- map ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("as_completed", [False, True])
async def test_map_submits_as_many_calls_together_as_replies_have_arrived(
    engine: Echo, as_completed: bool
) -> None:
    bodies = [b"%d" % number for number in range(160)]
    client = AsyncClient("mdp://localhost:1/echo")
    replies = client.map(bodies, concurrency=16, as_completed=as_completed)
    assert [reply.body async for reply in replies] == bodies
    assert engine.batches == [16] * 10


async def test_map_wakes_once_for_replies_that_arrive_together(engine: Echo) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    client = AsyncClient("mdp://localhost:1/echo")
    counting = asyncio.create_task(count_turns())
    assert len([reply async for reply in client.map([b"x"] * 160, concurrency=16)]) == 160
    counting.cancel()
    assert len(engine.batches) <= turns <= 4 * len(engine.batches)


async def test_map_checks_a_body_before_the_call_counts(engine: Echo) -> None:
    client = AsyncClient("mdp://localhost:1/echo")
    engine.holds = True
    with pytest.raises(TypeError, match="bytes"):
        await anext(client.map([b"good", "bad"]))  # type: ignore[list-item]
    assert engine.batches == [1]
    assert len(engine.cancelled) == 1  # the good one, and not the bad one
