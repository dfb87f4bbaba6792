"""The fuzz target of the broker engine, with several hundred inputs that are identical in every
run."""

from __future__ import annotations

import random

import pytest
from fuzz import fuzz_majordomo_broker as target
from fuzz.fuzz_majordomo_broker import World, corpus, one_input, steps

from requite.engine import Send

SEQUENCES = 600


def test_the_corpus_consists_of_complete_steps() -> None:
    for data in corpus():
        kinds = [kind for kind, _, _, _ in steps(data[1:])]
        assert kinds.count(target.MESSAGE) >= 2
        one_input(data)


def test_damaged_and_mixed_sequences_cause_no_failure() -> None:
    source = random.Random(18)
    inputs = list(corpus())
    for _ in range(SEQUENCES):
        data = bytearray(source.choice(inputs))
        for _ in range(source.randrange(4)):
            data += source.choice(inputs)[1:]
        for _ in range(source.randrange(6)):
            data[source.randrange(len(data))] = source.randrange(256)
        one_input(bytes(data))


@pytest.mark.parametrize("size", [0, 1, 2, 9, 80, 400])
def test_random_bytes_cause_no_failure(size: int) -> None:
    source = random.Random(size)
    for _ in range(20):
        one_input(source.randbytes(size))


def test_the_target_detects_a_leaking_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "leave", lambda self, peer: self.connected.discard(peer))
    with pytest.raises(AssertionError):
        one_input(next(corpus()))


def test_the_target_detects_a_message_to_a_lost_peer() -> None:
    world = World(target._policy(0))
    with pytest.raises(AssertionError, match="gone"):
        world._perform(Send(3, [b"x"]))
