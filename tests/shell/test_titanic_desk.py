"""Titanic's desk: inputs of a turn are fed together, and effects are performed in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from requite.engine import (
    Cancel,
    Effect,
    Finished,
    Input,
    Load,
    Note,
    Stopped,
    Store,
    Submit,
    Wake,
    Warn,
)
from requite.errors import LogFailed
from requite.protocols.titanic.wire import REPLICATE
from requite.shell import clock
from requite.titanic.desk import Desk


class ScriptedTitanic:
    """An engine that answers each turn with the next item of `answers`."""

    failure: LogFailed | None = None

    def __init__(self) -> None:
        self.turns: list[list[Input]] = []
        self.answers: list[list[Effect]] = []
        self.at: float | None = None

    def handle(self, events: Sequence[Input], _now: float) -> list[Effect]:
        self.turns.append(list(events))
        return self.answers.pop(0) if self.answers else []

    def deadline(self) -> float | None:
        at, self.at = self.at, None
        return at


class DeskBench:
    """A desk with a scripted engine. `done` records the effects in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.engine: Any = ScriptedTitanic()
        self.desk = Desk(self._noting("note"))

    def start(self) -> None:
        self.desk.start(
            self.engine, self._noting("store"), self._noting("call"), self._noting("copy")
        )

    def answer_all(self, answers: list[Finished]) -> None:
        """Record answers, in place of a post."""
        self.done.append(("answers", answers))

    def _noting(self, kind: str) -> Callable[[Any], None]:
        return lambda effect: self.done.append((kind, effect))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_inputs_of_a_turn_are_fed_together_and_answers_come_last(caplog):
    scene = DeskBench()
    scene.start()
    await turn()
    assert scene.engine.turns == [[Wake()]]
    call = Submit(1, "echo", [b"x"], 1.0)
    copy = Submit(2, REPLICATE, [b"x"], 1.0)
    store, load, note = Store(3, [b"r"]), Load(4, 0), Note("submitted", {})
    scene.engine.answers = [
        [
            store,
            Finished((scene, "job"), [b"200"]),
            call,
            copy,
            load,
            Finished((scene, "other"), [b"300"]),
            Cancel(1),
            note,
        ]
    ]
    for number in range(3):
        scene.desk.take((number,))
    await turn()
    assert scene.engine.turns[1] == [(0,), (1,), (2,)]
    assert scene.done == [
        ("store", store),
        ("call", call),
        ("copy", copy),
        ("store", load),
        ("call", Cancel(1)),
        ("note", note),
        ("answers", [Finished("job", [b"200"]), Finished("other", [b"300"])]),
    ]
    scene.engine.answers = [[Warn("disk", "it is nearly full"), Stopped()]]
    scene.desk.take((0,))
    await scene.desk.stopped.wait()
    assert "it is nearly full" in caplog.text
    scene.desk.close()


async def test_results_of_the_store_are_fed_with_waiting_inputs_or_at_once():
    scene = DeskBench()
    scene.start()
    scene.desk.take_all([("a",), ("b",)])
    await turn()
    assert scene.engine.turns == [[Wake(), ("a",), ("b",)]]
    scene.desk.take_all([("c",)])
    assert scene.engine.turns[1:] == [[("c",)]]
    scene.desk.close()


async def test_the_desk_wakes_the_engine_at_its_deadline():
    scene = DeskBench()
    scene.engine.at = clock.now() + 0.01
    scene.start()
    async with asyncio.timeout(20):
        while len(scene.engine.turns) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    assert scene.engine.turns == [[Wake()], [Wake()]]
    scene.desk.close()


async def test_a_permanent_failure_of_the_store_is_reported():
    scene = DeskBench()
    scene.start()
    await turn()
    assert not scene.desk.failed.is_set()
    scene.engine.failure = LogFailed("the disk failed")
    scene.desk.take(("x",))
    await turn()
    assert scene.desk.failed.is_set()
    scene.desk.close()


async def test_a_closed_desk_feeds_nothing():
    scene = DeskBench()
    scene.start()
    await turn()
    scene.desk.take(("late",))
    scene.desk.close()
    scene.desk.take(("later",))
    scene.desk.take_all([("latest",)])
    await turn()
    assert scene.engine.turns == [[Wake()]]
