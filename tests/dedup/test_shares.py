"""A principal with many or large replies pushes out only its own."""

from __future__ import annotations

from typing import Any

from tests.dedup.bench import Bench

from requite.dedup.inputs import Interrupted
from requite.dedup.records import encode_key
from requite.request import Status


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


# --- a log ----------------------------------------------------------------------------------------
def log_with_replies_of_shop(**settings: Any) -> Bench:
    """Return a log with a stored reply, an unstored one and a request in doubt of shop."""
    bench = Bench(per_segment=10, durable=True, bytes_max=50_000, **settings)
    call(bench, b"shop", 0, 1000)
    call(bench, b"shop", 1, 60_000)
    bench.ask("died", key_of(b"shop", 2))
    bench.sync()
    bench.start("died")
    bench.feed(Interrupted(["died"]))
    bench.answers.clear()
    return bench


def flood(bench: Bench, first: int = 100) -> None:
    """Make calls of eve with large replies, far more than the log has room for."""
    for number in range(first, first + 60):
        call(bench, b"eve", number, 5000)
        work(bench)


def flood_until_copied(bench: Bench) -> None:
    """Make such calls until a reply of shop is read, to be copied."""
    for number in range(100, 200):
        if bench.loads:
            return
        call(bench, b"eve", number, 5000)
    raise AssertionError("no reply is copied")


def work(bench: Bench) -> None:
    while bench.loads or bench.stores:
        if bench.loads:
            bench.load()
        bench.sync()


def replies_of_shop(bench: Bench) -> list[tuple[Status, bytes]]:
    found = []
    for number in range(3):
        token = f"repetition {number} {bench.now}"
        bench.ask(token, key_of(b"shop", number))
        work(bench)
        reply = bench.reply(token)
        assert reply is not None
        found.append((reply[0], reply[1][0]))
    return found


def test_a_log_keeps_what_is_known_of_a_principal_with_few_replies() -> None:
    bench = log_with_replies_of_shop()
    before = replies_of_shop(bench)
    assert [status for status, _ in before] == [Status.OK, Status.FAILED, Status.FAILED]
    for _ in range(2):
        flood(bench, 100 + len(bench.ran))
        assert bench.engine.snapshot().size_bytes <= 50_000 + 10 * 5100
        assert bench.discarded
        assert replies_of_shop(bench) == before
        bench = bench.reopened()
        assert replies_of_shop(bench) == before
        bench.discarded = []
    assert bench.ran == []


def test_copies_do_not_extend_a_window() -> None:
    bench = log_with_replies_of_shop(window_s=100.0)
    flood(bench)
    bench = bench.reopened(later_s=45.0)
    assert bench.engine.snapshot().kept > 0
    assert all(runs_again(bench, b"shop", number) for number in range(3))


def test_what_cannot_be_copied_is_evicted_and_its_segment_removed() -> None:
    for fails in ("load", "store"):
        bench = log_with_replies_of_shop()
        flood_until_copied(bench)
        evicted = bench.engine.snapshot().evicted
        bench.load(fail=fails == "load")
        if fails == "store":
            bench.fail()
        work(bench)
        assert bench.engine.snapshot().evicted == evicted + 1
        call(bench, b"eve", 1000)
        assert 1 in bench.discarded
        assert runs_again(bench, b"shop", 0)


def test_a_reply_that_expires_while_it_is_copied_stays_removed() -> None:
    bench = log_with_replies_of_shop(window_s=1000.0)
    flood_until_copied(bench)
    bench.now += 1000.0
    assert runs_again(bench, b"shop", 0)
    work(bench)
    [token] = [token for token in bench.ran if token == ("again", b"shop", 0)]
    bench.run(token, b"new")
    work(bench)
    bench = bench.reopened()
    bench.ask("later", key_of(b"shop", 0))
    work(bench)
    assert bench.reply("later") == (Status.OK, [b"new"])
