"""The fuzz target of SP, run without the fuzzer on its corpus and on damaged copies."""

import random

import pytest
from fuzz import fuzz_sp as target


def test_every_input_of_the_corpus_is_valid():
    inputs = list(target.corpus())
    assert len(inputs) == len(target.KINDS) * len(target.STEPS)
    for data in inputs:
        kind = target.KINDS[data[0]]
        messages, end, framing = target.run(kind, data[2:], 0)
        if kind == "client":  # no recorded answer fits the client's random key
            assert (messages, end) == ([], "violation")
        else:
            assert framing.ready
            assert messages[:3] == [[b"\x80\0\0\1hello"], [b""], [bytes(300)]]
            assert messages[3:15] == [[b"again"]] * 12
            assert messages[15:] == ([] if kind in ("stream", "ipc") else [[b"ab"]])
            assert end == framing.farewell
        target.one_input(data)


def test_make_corpus_writes_files(tmp_path):
    target.make_corpus(tmp_path / "corpus")
    written = [path.read_bytes() for path in sorted((tmp_path / "corpus").iterdir())]
    assert [data[:2] for data in written] == [data[:2] for data in target.corpus()]


def test_damaged_inputs_cause_no_failure():
    source = random.Random(20_26)
    inputs = list(target.corpus())
    for _ in range(1000):
        data = bytearray(source.choice(inputs))
        for _ in range(source.randrange(4)):
            data[source.randrange(len(data))] = source.randrange(256)
        if source.random() < 0.3:
            del data[source.randrange(len(data)) :]
        if source.random() < 0.3:
            data += source.randbytes(source.randrange(40))
        target.one_input(bytes(data))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 66, 500])
def test_random_bytes_cause_no_failure(size):
    source = random.Random(size)
    for _ in range(50):
        target.one_input(source.randbytes(size))


@pytest.mark.parametrize("kind", [target.SpStream, target.SpWebSocket])
def test_the_target_reports_a_failing_reader(monkeypatch, kind):
    def broken(framing, chunk):
        raise IndexError("a bug")

    data = list(target.corpus())[0 if kind is target.SpStream else -1]
    monkeypatch.setattr(kind, "receive", broken)
    with pytest.raises(IndexError):
        target.one_input(data)
