"""The feeder: batches of inputs, deferred inputs, and inputs that the engine refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from tests.shell.fakes import ScriptedEngine

from requite.engine import Cancel, Effect, Input, Warn
from requite.errors import LocalViolation
from requite.shell.feeder import Feeder


class Echo(ScriptedEngine):
    """An engine that answers each `Cancel` with a warning, and refuses negative tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.fed: list[list[int]] = []
        self._left: list[Effect] = []

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        tokens = [event.token for event in events]
        if tokens:
            self.fed.append(tokens)
        effects = [*self._left, *(Warn("echo", str(token)) for token in tokens if token >= 0)]
        self._left = []
        refused = [token for token in tokens if token < 0]
        if refused:
            self._left = effects
            raise LocalViolation(f"does not handle the input {refused[0]}")
        return effects


class Bench:
    """A feeder and a record of its effects. `on` maps a warning's text to a callback."""

    def __init__(self) -> None:
        self.engine = Echo()
        self.feeder = Feeder(self.engine, lambda: 7.0, self._perform)
        self.performed: list[str] = []
        self.on: dict[str, Callable[[], Any]] = {}

    def _perform(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            self.on.get(effect.text, lambda: None)()
            self.performed.append(effect.text)

    def feed(self, *tokens: int) -> LocalViolation | None:
        return self.feeder.feed([Cancel(token) for token in tokens])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_inputs_of_a_turn_are_fed_together(bench: Bench) -> None:
    assert bench.feed(1, 2, 3) is None
    assert bench.engine.fed == [[1, 2, 3]]
    assert bench.performed == ["1", "2", "3"]


def test_inputs_from_callbacks_wait_until_all_effects_are_performed(bench: Bench) -> None:
    bench.on["1"] = lambda: bench.feed(8, 9)
    bench.feed(1, 2)
    assert bench.engine.fed == [[1, 2], [8], [9]]
    assert bench.performed == ["1", "2", "8", "9"]
    assert len(bench.feeder) == 0


def test_a_refused_input_does_not_affect_the_others(bench: Bench) -> None:
    refused = bench.feed(1, -2, 3)
    assert str(refused) == "does not handle the input -2"
    assert bench.performed == ["1", "3"]


def test_the_first_refusal_is_returned(bench: Bench) -> None:
    bench.on["1"] = lambda: bench.feed(-8, -9, 4)
    refused = bench.feed(1, -2)
    assert str(refused) == "does not handle the input -2"
    assert bench.engine.fed == [[1, -2], [-8], [-9], [4]]
    assert bench.performed == ["1", "4"]


def test_a_refusal_of_an_input_from_a_callback_is_returned(bench: Bench) -> None:
    bench.on["1"] = lambda: bench.feed(-8)
    assert str(bench.feed(1)) == "does not handle the input -8"


def test_deferred_inputs_are_fed_together_and_a_refusal_reported_once(bench: Bench) -> None:
    bench.feeder.later += [Cancel(1), Cancel(-2), Cancel(3)]
    assert len(bench.feeder) == 3
    bench.feeder.feed_later()
    assert bench.engine.fed == [[1, -2, 3]]
    assert bench.performed == ["1", "3"]
    assert len(bench.feeder) == 0
    assert str(bench.feeder.take_refusal()) == "does not handle the input -2"
    assert bench.feeder.take_refusal() is None


def test_the_feeder_continues_after_an_exception_in_a_callback(bench: Bench) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    bench.on["1"] = fail
    with pytest.raises(ZeroDivisionError):
        bench.feed(1)
    assert not bench.feeder.feeding
    bench.feed(2)
    assert bench.performed == ["2"]


def test_inputs_left_by_an_exception_are_fed_first(bench: Bench) -> None:
    def feed_and_fail() -> None:
        bench.feed(2)
        raise ZeroDivisionError

    bench.on["1"] = feed_and_fail
    with pytest.raises(ZeroDivisionError):
        bench.feed(1)
    assert str(bench.feed(-3)) == "does not handle the input -3"
    assert bench.engine.fed == [[1], [2], [-3]]
    assert len(bench.feeder) == 0
