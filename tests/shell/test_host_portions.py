"""The host with a bulk engine: inputs are fed together, and output is written in portions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tests.shell.fakes import FakeStream, LineFraming, ScriptedEngine

from requite.engine import Cancel, DeliverAll, Effect, Input, Received, SendAll
from requite.errors import LocalViolation
from requite.shell.host import _PORTION, Host, Link


class PromptFake(FakeStream):
    """A stream that records writes within a turn differently from those at its end."""

    def write_now(self, data: bytes) -> None:
        self.calls.append(("now", data))


class Bulk(ScriptedEngine):
    """An engine that sends a message to `peer` per `Cancel`, and delivers received messages."""

    peer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.fed: list[list[Any]] = []

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        self.fed.append(list(events))
        for event in events:
            if isinstance(event, Received):
                yield DeliverAll([(message[0], message[1]) for message in event.messages])
        messages = [(b"%d" % event.token,) for event in events if isinstance(event, Cancel)]
        if messages:
            yield SendAll(self.peer, messages)


class Bench:
    """A host with one peer. A turn ends with `host.flush`."""

    def __init__(self, engine: ScriptedEngine, stream: FakeStream, **uses: Any) -> None:
        self.engine = engine
        self.flushes_wanted = 0
        self.host = Host(
            engine,
            lambda: 100.0,
            LineFraming,
            wake_at=lambda _at: None,
            want_flush=self._want_flush,
            **uses,
        )
        self.link: Link = self.host.opened(stream, accepted=True)
        self.host.received(self.link, b"peer\n")
        self.stream = stream
        stream.calls.clear()
        self.flushes_wanted = 0

    def _want_flush(self) -> None:
        self.flushes_wanted += 1


@pytest.fixture
def bulk() -> Bench:
    engine = Bulk()
    bench = Bench(engine, PromptFake())
    engine.peer = bench.link
    engine.fed.clear()
    return bench


def tokens(events: Sequence[Any]) -> list[int]:
    return [event.token for event in events]


def test_deferred_inputs_of_a_turn_are_fed_together_and_written_at_once(bulk: Bench) -> None:
    for token in range(3):
        bulk.host.submit_soon(Cancel(token))
    assert bulk.engine.fed == []
    assert bulk.flushes_wanted == 1
    bulk.host.flush()
    assert [tokens(events) for events in bulk.engine.fed] == [[0, 1, 2]]
    assert bulk.stream.calls == [b"0\n1\n2\n"]


def test_a_full_portion_is_written_before_the_turn_ends(bulk: Bench) -> None:
    for token in range(_PORTION + 1):
        bulk.host.submit_soon(Cancel(token))
    first = b"".join(b"%d\n" % token for token in range(_PORTION))
    assert bulk.stream.calls == [("now", first)]
    assert bulk.flushes_wanted == 1
    bulk.host.flush()
    assert bulk.stream.calls == [("now", first), b"%d\n" % _PORTION]


def test_submitted_inputs_are_fed_in_portions_after_deferred_ones(
    bulk: Bench,
) -> None:
    bulk.host.submit_soon(Cancel(0))
    bulk.host.submit(*(Cancel(token) for token in range(1, _PORTION + 2)))
    fed = [[0], list(range(1, _PORTION + 1)), [_PORTION + 1]]
    assert [tokens(events) for events in bulk.engine.fed] == fed
    first = b"".join(b"%d\n" % token for token in range(_PORTION + 1))
    assert bulk.stream.calls == [("now", first)]
    bulk.host.flush()
    assert bulk.stream.calls == [("now", first), b"%d\n" % (_PORTION + 1)]


def test_a_stream_without_write_now_is_written_to() -> None:
    engine = Bulk()
    bench = Bench(engine, FakeStream())
    engine.peer = bench.link
    for token in range(_PORTION):
        bench.host.submit_soon(Cancel(token))
    assert len(bench.stream.calls) == 1
    assert bench.stream.written.count(b"\n") == _PORTION


def test_a_blocked_link_holds_its_portion_back(bulk: Bench) -> None:
    bulk.host.blocked(bulk.link)
    for token in range(_PORTION):
        bulk.host.submit_soon(Cancel(token))
    assert bulk.stream.calls == []
    bulk.host.writable(bulk.link)
    assert bulk.stream.written.count(b"\n") == _PORTION


def test_submitted_inputs_follow_deferred_ones(bulk: Bench) -> None:
    bulk.host.submit_soon(Cancel(1))
    bulk.host.submit_soon(Cancel(2))
    bulk.host.submit(Cancel(3))
    assert [tokens(events) for events in bulk.engine.fed] == [[1, 2], [3]]


def test_inputs_from_callbacks_wait_for_all_effects_even_beyond_a_portion() -> None:
    engine = Bulk()

    def deliver_all(pairs: Sequence[tuple[Any, Any]]) -> None:
        for token in range(2 * _PORTION):
            bench.host.submit_soon(Cancel(token))

    bench = Bench(engine, PromptFake(), deliver_all=deliver_all)
    engine.peer = bench.link
    engine.fed.clear()
    bench.host.received(bench.link, b"one two\n")
    bench.host.flush()
    assert [len(events) for events in engine.fed] == [1, 2 * _PORTION]
    assert bench.stream.written.count(b"\n") == 2 * _PORTION


def test_deliver_all_falls_back_to_deliver() -> None:
    told: list[Any] = []
    engine = Bulk()
    bench = Bench(engine, PromptFake(), deliver=lambda *pair: told.append(pair))
    bench.host.received(bench.link, b"a 1\nb 2\n")
    assert told == [(b"a", b"1"), (b"b", b"2")]


class RefusingBulk(Bulk):
    """A bulk engine that refuses every third token."""

    def __init__(self) -> None:
        super().__init__()
        self._left: list[Any] = []

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        bad = [event for event in events if isinstance(event, Cancel) and event.token % 3 == 2]
        effects = [*self._left, *super().handle([e for e in events if e not in bad], now)]
        self._left = effects if bad else []
        if bad:
            raise LocalViolation(f"does not handle the input {bad[0]}")
        return effects


def test_a_refused_input_discards_no_other_of_its_turn() -> None:
    engine = RefusingBulk()
    bench = Bench(engine, PromptFake())
    engine.peer = bench.link
    for token in range(5):
        bench.host.submit_soon(Cancel(token))
    with pytest.raises(LocalViolation, match="token=2"):
        bench.host.flush()
    bench.host.flush()
    assert bench.stream.written == b"0\n1\n3\n4\n"


@pytest.fixture
def refusing() -> Bench:
    engine = RefusingBulk()
    bench = Bench(engine, PromptFake())
    engine.peer = bench.link
    engine.fed.clear()
    return bench


def test_the_next_portion_is_fed_after_a_refusal(refusing: Bench) -> None:
    with pytest.raises(LocalViolation, match="token=2"):
        refusing.host.submit(*(Cancel(token) for token in range(2 * _PORTION)))
    refusing.host.flush()
    first, second = (
        b"".join(b"%d\n" % token for token in range(at, at + _PORTION) if token % 3 != 2)
        for at in (0, _PORTION)
    )
    assert refusing.stream.calls == [("now", first), second]
    assert refusing.flushes_wanted == 1


def test_a_refused_deferred_input_harms_no_other_caller(refusing: Bench) -> None:
    refusing.host.submit_soon(Cancel(2))
    refusing.host.submit(Cancel(3))
    with pytest.raises(LocalViolation, match="token=2"):
        refusing.host.flush()
    assert refusing.stream.written == b"3\n"
    refusing.host.flush()  # the refusal is reported once


def test_inputs_from_a_callback_are_fed_despite_a_refusal() -> None:
    engine = RefusingBulk()

    def deliver_all(pairs: Sequence[tuple[Any, Any]]) -> None:
        bench.host.submit(Cancel(2), Cancel(4))

    bench = Bench(engine, PromptFake(), deliver_all=deliver_all)
    engine.peer = bench.link
    with pytest.raises(LocalViolation, match="token=2"):
        bench.host.received(bench.link, b"one two\n")
    bench.host.flush()
    assert bench.stream.written == b"4\n"
