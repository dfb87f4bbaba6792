"""The fuzz target of CURVE, run without the fuzzer on its corpus and on damaged copies."""

from __future__ import annotations

import random
from pathlib import Path

import fuzz.fuzz_curve as target
import pytest


def test_every_input_of_the_corpus_is_valid_and_delivers_messages() -> None:
    inputs = list(target.corpus())
    assert len(inputs) == target.KINDS * len(target.STEPS)
    for data in inputs:
        target.one_input(data)
        if data[0] not in (2, 4):
            before, stream = target._stream(data[0], data[2:])
            messages, violated, framing = target._run(data[0], before, stream, 0)
            assert framing.ready
            assert not violated
            assert len(messages) == (2 if data[0] == 3 else 3)


def test_make_corpus_writes_files(tmp_path: Path) -> None:
    target.make_corpus(tmp_path / "corpus")
    written = [path.read_bytes() for path in sorted((tmp_path / "corpus").iterdir())]
    assert written == list(target.corpus())


def test_damaged_inputs_cause_no_failure() -> None:
    source = random.Random(26)
    inputs = list(target.corpus())
    outcomes = set()
    for _ in range(400):
        data = bytearray(source.choice(inputs))
        for _ in range(source.randrange(4)):
            data[source.randrange(2, len(data))] = source.randrange(256)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        if source.random() < 0.3:
            data += source.randbytes(source.randrange(40))
        target.one_input(bytes(data))
        if len(data) > 2 and data[0] < 2:
            before, stream = target._stream(data[0], bytes(data[2:]))
            _, violated, framing = target._run(data[0], before, stream, 0)
            outcomes.add((data[0], violated, framing.ready))
    assert len(outcomes) >= 6  # of eight: each side admits and refuses, before and after READY


@pytest.mark.parametrize("size", [0, 1, 2, 3, 66, 500])
def test_random_bytes_cause_no_failure(size: int) -> None:
    source = random.Random(size)
    for _ in range(50):
        target.one_input(source.randbytes(size))


def test_a_client_that_knows_its_keys_may_send_any_nonce() -> None:
    valid = next(data for data in target.corpus() if data[0] == 4)
    for nonce in (0, 1, 2, 1 << 63, (1 << 64) - 2, (1 << 64) - 1):
        target.one_input(valid[:2] + nonce.to_bytes(8, "big") + valid[10:])
    right, cookie, rest = target._half_shaken()
    right.receive(target.encode_command(b"INITIATE", cookie + rest))
    assert right.ready
