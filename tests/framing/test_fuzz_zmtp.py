"""The fuzz target of ZMTP, run without the fuzzer on its corpus and on damaged copies."""

import random
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

TARGET = Path(__file__).parents[2] / "fuzz" / "fuzz_zmtp.py"


@pytest.fixture(scope="module")
def target() -> ModuleType:
    spec = spec_from_file_location("fuzz_zmtp", TARGET)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_input_of_the_corpus_is_valid_and_delivers_messages(target):
    inputs = list(target.corpus())
    assert len(inputs) == 96
    for data in inputs:
        messages, violated, framing = target._run(data[0], data[2:], 0)
        assert framing.ready
        assert not violated
        assert len(messages) == 2
        target.one_input(data)


def test_make_corpus_writes_files(target, tmp_path):
    target.make_corpus(tmp_path / "corpus")
    written = [path.read_bytes() for path in sorted((tmp_path / "corpus").iterdir())]
    assert written == list(target.corpus())


def test_damaged_inputs_cause_no_failure(target):
    source = random.Random(20_24)
    inputs = list(target.corpus())
    for _ in range(400):
        data = bytearray(source.choice(inputs))
        for _ in range(source.randrange(4)):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        if source.random() < 0.3:
            data += source.randbytes(source.randrange(40))
        target.one_input(bytes(data))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 66, 500])
def test_random_bytes_cause_no_failure(target, size):
    source = random.Random(size)
    for _ in range(50):
        target.one_input(source.randbytes(size))


def test_the_target_reports_a_failing_reader(target, monkeypatch):
    def broken(framing, chunk):
        raise IndexError("a bug")

    monkeypatch.setattr(target.Zmtp, "receive", broken)
    with pytest.raises(IndexError):
        target.one_input(next(target.corpus()))
