"""A principal with many or large replies pushes out only its own."""

from __future__ import annotations

from typing import Any

from tests.dedup.bench import Bench

from requite.dedup.records import encode_key


def key_of(owner: bytes, number: int) -> bytes:
    return encode_key(b"pay", b"%d" % number, owner, is_call=False)


def call(bench: Bench, owner: bytes, number: int, size: int = 10) -> None:
    """Make a call that runs, a second after the one before."""
    bench.now += 1.0
    token = (owner, number, len(bench.ran))
    bench.ask(token, key_of(owner, number))
    bench.sync()
    bench.run(token, bytes(size))
    bench.sync()


def runs_again(bench: Bench, owner: bytes, number: int) -> bool:
    """Whether a repetition runs."""
    token: Any = ("again", owner, number)
    bench.ask(token, key_of(owner, number))
    bench.sync()
    return token in bench.ran


def test_large_replies_push_out_those_of_their_principal() -> None:
    bench = Bench(bytes_max=50_000)
    for number in range(3):
        call(bench, b"shop", number, 1000)
        call(bench, b"", 100 + number, 1000)
    for number in range(20):
        call(bench, b"eve", number, 14_000)
    stats = bench.engine.snapshot()
    assert stats.size_bytes <= 50_000
    assert (stats.kept, stats.evicted) == (8, 18)
    for number in range(3):
        assert not runs_again(bench, b"shop", number)
        assert not runs_again(bench, b"", 100 + number)
    assert not runs_again(bench, b"eve", 19)
    assert runs_again(bench, b"eve", 17)


def test_many_replies_push_out_those_of_their_principal() -> None:
    for durable in (False, True):
        bench = Bench(entries_max=10, durable=durable)
        for number in range(4):
            call(bench, b"shop", number, 1000)
        for number in range(100):
            call(bench, b"eve", number)
        assert bench.engine.snapshot().kept == 10
        assert not any(runs_again(bench, b"shop", number) for number in range(4))
        assert not any(runs_again(bench, b"eve", number) for number in range(94, 100))
        assert runs_again(bench, b"eve", 93)


def test_a_principal_with_as_much_as_the_others_shares_with_them() -> None:
    bench = Bench(entries_max=10)
    for number in range(10):
        call(bench, b"shop", number)
    for number in range(20):
        call(bench, b"eve", number)
    assert not runs_again(bench, b"eve", 19)
    assert not any(runs_again(bench, b"shop", number) for number in range(5, 10))
    assert runs_again(bench, b"shop", 4)


def test_windows_end_in_order_of_time_whosever_they_are() -> None:
    bench = Bench(window_s=10.0)
    for number in range(6):
        call(bench, (b"ann", b"eve", b"")[number % 3], number)
    for kept in range(6, 0, -1):
        at = bench.engine.deadline()
        assert at is not None
        bench.now = at
        bench.ask(kept, b"")
        assert bench.engine.snapshot().kept == kept - 1
    assert bench.engine.snapshot().expired == 6
    assert bench.engine.deadline() is None
