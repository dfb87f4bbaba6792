"""The fuzz targets of AMQP, run without the fuzzer on their corpora and on damaged copies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from fuzz import fuzz_amqp, fuzz_amqp_engines

from requite.protocols.amqp import methods


def _damaged(inputs: list[bytes], count: int) -> Iterator[bytes]:
    source = random.Random(20_26)
    for _ in range(count):
        data = bytearray(source.choice(inputs))
        for _ in range(source.randrange(6)):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        yield bytes(data)


def test_the_corpus_of_the_framing_reaches_the_close() -> None:
    whole = [data for data in fuzz_amqp.corpus() if len(data) > 1000]
    assert len(whole) == 2 * len(fuzz_amqp.STEPS)
    for data in whole:
        messages, end = fuzz_amqp.run(("raw", "open")[data[0]], data[2:], 0)
        assert "320 CONNECTION_FORCED" in end
        delivered = [m for m in messages if m and m[1].startswith(methods.BASIC_DELIVER)]
        assert [len(message[3:]) for message in delivered] == [1, 1, 1, 0, 1], "one was too large"


def test_the_corpus_of_the_engines_reaches_calls_and_handlers() -> None:
    seen: set[str] = set()

    class RecordingWorld(fuzz_amqp_engines.World):
        def _perform(self, effect: Any) -> None:
            super()._perform(effect)
            what = getattr(effect, "what", None)
            seen.add(type(effect).__name__ if what is None else type(what).__name__)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fuzz_amqp_engines, "World", RecordingWorld)
        for data in fuzz_amqp_engines.corpus():
            fuzz_amqp_engines.one_input(data)
    assert seen >= {"Request", "Partial", "Fail", "CancelHandler", "Send", "Stopped", "Warn"}


@pytest.mark.parametrize("target", [fuzz_amqp, fuzz_amqp_engines])
def test_damaged_inputs_cause_no_failure(target: Any) -> None:
    inputs = [data for data in target.corpus() if len(data) < 60_000]
    for data in _damaged(inputs, 300):
        target.one_input(data)
