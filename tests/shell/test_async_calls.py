"""`AsyncClient` and its engine: what `map` submits, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from requite.client import AsyncClient, aio
from requite.engine import Cancel, DeliverAll, Effect, Input, Submit
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
