"""The fuzz target of Majordomo's decoders, with a few hundred inputs that are identical in every
run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz import fuzz_majordomo_wire
from fuzz.fuzz_majordomo_wire import corpus, frames_of, input_of, make_corpus, one_input
from tests.wire.majordomo_samples import SAMPLES

from requite.engine import Message

MUTATIONS_PER_SAMPLE = 20
GARBAGE_INPUTS = 300


def mutated(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(damaged))
        change = rng.randrange(3)
        if change == 0:
            damaged[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            damaged.insert(at, rng.randrange(256))
        elif len(damaged) > 1:
            del damaged[at]
    return bytes(damaged)


def test_frames_survive_the_conversion_to_an_input() -> None:
    for sample in SAMPLES:
        assert frames_of(input_of(sample.message)) == sample.message
    assert frames_of(b"") == []
    assert frames_of(b"\x05ab") == [b"ab"]


def test_golden_messages() -> None:
    for sample in SAMPLES:
        one_input(input_of(sample.message))


def test_mutations_of_golden_messages() -> None:
    rng = random.Random(18)
    for sample in SAMPLES:
        for _ in range(MUTATIONS_PER_SAMPLE):
            one_input(mutated(input_of(sample.message), rng))


def test_garbage() -> None:
    rng = random.Random(7)
    for _ in range(GARBAGE_INPUTS):
        one_input(rng.randbytes(rng.randrange(80)))


def test_the_corpus_is_written(tmp_path: Path) -> None:
    make_corpus(tmp_path / "corpus")
    inputs = [path.read_bytes() for path in (tmp_path / "corpus").iterdir()]
    assert sorted(inputs) == sorted(corpus())
    for data in inputs:
        one_input(data)


def test_the_target_lets_other_exceptions_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(message: Message) -> None:
        raise IndexError

    monkeypatch.setattr(fuzz_majordomo_wire, "DECODERS", (broken,))
    with pytest.raises(IndexError):
        one_input(b"")
