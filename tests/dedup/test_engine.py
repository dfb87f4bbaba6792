"""Requests and their retries, with entries in memory."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench

from requite.dedup.inputs import Interrupted
from requite.engine import CancelHandler, Drain, Finished, Progressed, Wake
from requite.errors import ConfigurationError, LocalViolation
from requite.request import Status

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED


# --- in memory ------------------------------------------------------------------------------------
def test_a_retry_gets_the_stored_reply_without_running(bench):
    bench.ask("a")
    bench.run("a", b"once")
    bench.ask("b")
    assert bench.ran == ["a"]
    assert bench.reply("a") == bench.reply("b") == (OK, [b"once"])


def test_other_keys_run(bench):
    for token in ("a", "b"):
        bench.ask(token, token.encode())
        bench.run(token)
    assert bench.ran == ["a", "b"]


def test_concurrent_retries_wait_for_the_first(bench):
    for token in ("a", "b", "c"):
        bench.ask(token)
    bench.start("a")
    assert bench.ran == ["a"]
    assert bench.reply("b") is None
    bench.finish("a")
    assert [bench.reply(token) for token in ("a", "b", "c")] == [(OK, [b"reply"])] * 3
    stats = bench.engine.snapshot()
    assert (stats.ran, stats.joined, stats.replayed, stats.kept) == (1, 2, 2, 1)


def test_partial_replies_are_stored_and_replayed_in_order(bench):
    bench.ask("a")
    bench.start("a")
    bench.part("a", b"1")
    bench.ask("b")
    assert bench.reply("b") is None
    bench.part("a", b"2")
    bench.finish("a", b"end")
    bench.ask("c")
    for token in ("a", "b", "c"):
        assert bench.reply(token) == (OK, [b"1", b"2", b"end"])


def test_a_failure_goes_to_all_waiting_requests_and_is_not_stored(bench):
    bench.ask("a")
    bench.ask("b")
    bench.run("a", b"no", FAILED)
    assert bench.reply("a") == bench.reply("b") == (FAILED, [b"no"])
    bench.ask("c")
    assert bench.ran == ["a", "c"]


def test_store_failures_stores_failures():
    bench = Bench(store_failures=True)
    bench.ask("a")
    bench.run("a", b"no", FAILED)
    bench.ask("b")
    assert bench.ran == ["a"]
    assert bench.reply("b") == (FAILED, [b"no"])


def test_a_final_failure_is_stored_as_that():
    bench = Bench(store_failures=True)
    bench.ask("a")
    bench.start("a")
    bench.feed(Finished("a", (b"no", b"final"), FAILED))
    bench.ask("b")
    assert [each.frames for each in bench.answers["b"]] == [(b"no", b"final")]


def test_a_key_with_another_body_is_refused(bench):
    bench.ask("a", digest=b"1" * 16)
    bench.ask("b", digest=b"2" * 16)
    bench.run("a")
    bench.ask("c", digest=b"2" * 16)
    bench.ask("d", digest=b"1" * 16)
    for token in ("b", "c"):
        status, [reason] = bench.reply(token)
        assert status is FAILED
        assert b"another body" in reason
    assert bench.reply("d") == (OK, [b"reply"])
    assert bench.ran == ["a"]


def test_a_request_without_a_key_is_refused(bench):
    bench.ask("a", b"")
    status, [reason] = bench.reply("a")
    assert (status, bench.ran) == (FAILED, [])
    assert b"idempotency key" in reason


def test_unkeyed_run_runs_requests_without_a_key():
    bench = Bench(unkeyed="run")
    for token in ("a", "b"):
        bench.ask(token, b"")
        bench.start(token)
        bench.part(token, b"1")
        bench.finish(token)
        assert bench.reply(token) == (OK, [b"1", b"reply"])
    assert bench.ran == ["a", "b"]
    assert bench.engine.snapshot().kept == 0


def test_progress_of_a_handler_counts_for_all_waiting_requests(bench):
    bench.ask("a")
    bench.ask("b")
    assert bench.feed(Progressed("a", 2.0)) == [Progressed("a", 2.0), Progressed("b", 2.0)]


# --- abandoned requests ---------------------------------------------------------------------------
def test_a_started_handler_continues_when_its_request_is_cancelled(bench):
    bench.ask("a")
    bench.start("a")
    assert bench.give_up("a") == []
    bench.ask("b")
    bench.finish("a", b"done")
    assert bench.ran == ["a"]
    assert bench.reply("b") == (OK, [b"done"])


def test_an_unstarted_handler_is_cancelled_with_its_request(bench):
    bench.ask("a")
    assert bench.give_up("a") == [CancelHandler("a", "nobody waits")]
    bench.finish("a", b"given up", CANCELLED)
    bench.ask("b")
    assert bench.ran == ["a", "b"]
    bench.run("b")
    assert bench.reply("b") == (OK, [b"reply"])


def test_an_unstarted_handler_is_kept_while_a_request_waits(bench):
    bench.ask("a")
    bench.ask("b")
    assert bench.give_up("a") == []


def test_a_request_that_joins_a_cancelled_handler_runs_later(bench):
    bench.ask("a")
    bench.give_up("a")
    bench.ask("b")
    bench.finish("a", b"given up", CANCELLED)
    assert bench.ran == ["a", "b"]
    bench.run("b")
    assert bench.reply("b") == (OK, [b"reply"])


def test_a_waiting_request_can_be_cancelled(bench):
    bench.ask("a")
    bench.ask("b")
    bench.give_up("b")
    assert bench.reply("b")[0] is CANCELLED
    bench.run("a")
    assert bench.reply("a") == (OK, [b"reply"])


def test_an_interrupted_handler_leaves_its_key_in_doubt(bench):
    bench.ask("a")
    bench.start("a")
    bench.feed(Interrupted(["a"]))
    bench.ask("b")
    status, [reason] = bench.reply("b")
    assert (status, bench.ran) == (FAILED, ["a"])
    assert b"may have run" in reason
    assert bench.engine.snapshot().in_doubt == 1


def test_in_doubt_run_runs_an_interrupted_request_again():
    bench = Bench(in_doubt="run")
    bench.ask("a")
    bench.start("a")
    bench.feed(Interrupted(["a"]))
    bench.ask("b")
    assert bench.ran == ["a", "b"]


def test_an_interrupted_unstarted_request_runs_later(bench):
    bench.ask("a")
    bench.ask("b")
    bench.feed(Interrupted(["a", "b"]))
    bench.ask("c")
    assert bench.ran == ["a", "c"]
    assert bench.engine.snapshot().running == 1


# --- limits ---------------------------------------------------------------------------------------
def test_a_reply_is_stored_for_its_window():
    bench = Bench(window_s=10.0)
    bench.ask("a")
    bench.run("a")
    bench.now += 9.9
    bench.ask("b")
    assert bench.engine.deadline() == 1010.0
    bench.now += 0.1
    bench.feed(Wake())
    assert bench.engine.snapshot().expired == 1
    assert bench.engine.deadline() is None
    bench.ask("c")
    assert bench.ran == ["a", "c"]


def test_the_oldest_replies_are_evicted_first():
    bench = Bench(entries_max=2)
    for token in ("a", "b", "c"):
        bench.ask(token, token.encode())
        bench.run(token)
    assert bench.engine.snapshot().evicted == 1
    for token, key in (("d", b"c"), ("e", b"b"), ("f", b"a")):
        bench.ask(token, key)
    assert bench.ran == ["a", "b", "c", "f"]


def test_bytes_max_limits_memory():
    bench = Bench(bytes_max=10_000)
    for number in range(100):
        bench.ask(number, b"%d" % number)
        bench.run(number, b"x" * 1000)
    stats = bench.engine.snapshot()
    assert 5000 < stats.size_bytes <= 10_000
    assert stats.evicted + stats.kept == 100


def test_a_reply_too_large_for_memory_is_recorded_as_too_large():
    bench = Bench(bytes_max=10_000)
    bench.ask("a")
    bench.ask("b")
    bench.run("a", b"x" * 20_000)
    bench.ask("c")
    assert bench.reply("a") == bench.reply("b") == (OK, [b"x" * 20_000])
    assert bench.reply("c")[0] is FAILED
    assert b"too large" in bench.reply("c")[1][0]
    assert bench.ran == ["a"]


def test_too_many_partial_replies_are_not_stored():
    bench = Bench(bytes_max=10_000)
    bench.ask("a")
    bench.ask("b")
    bench.start("a")
    for _ in range(20):
        bench.part("a", b"x" * 1000)
    bench.finish("a")
    bench.ask("c")
    assert len(bench.answers["a"]) == 21
    assert bench.reply("b")[0] is bench.reply("c")[0] is FAILED


def test_no_state_remains_of_ended_requests():
    bench = Bench(window_s=1.0)
    for number in range(50):
        bench.ask(number, b"%d" % (number % 7))
        if number % 3 == 0:
            bench.give_up(number)
    for token in list(bench.ran):
        bench.run(token)
    bench.now += 2.0
    bench.feed(Wake())
    assert not len(bench.engine._entries)
    assert not bench.engine._tokens
    assert bench.engine.snapshot().running == 0


def test_invalid_settings_are_refused():
    for settings in (
        {"window_s": 0.0},
        {"entries_max": 0},
        {"bytes_max": 0},
        {"unkeyed": "maybe"},
        {"in_doubt": "maybe"},
    ):
        with pytest.raises(ConfigurationError):
            Bench(**settings)


def test_an_unknown_input_raises(bench):
    with pytest.raises(LocalViolation):
        bench.feed(Drain())
