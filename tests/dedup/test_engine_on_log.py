"""Requests and their retries, with entries in a log."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench

from requite.dedup.records import DIGEST_SIZE, Kind, encode_key
from requite.engine import Wake, Warn
from requite.request import Status

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED


def test_a_handler_starts_after_its_begun_record_is_on_disk(disk):
    disk.ask("a")
    assert disk.ran == []
    disk.sync()
    assert disk.ran == ["a"]
    assert disk.kinds() == [Kind.BEGUN]


def test_a_reply_is_sent_after_it_is_on_disk(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.ask("b")
    assert disk.reply("a") is None
    disk.sync()
    assert disk.reply("a") == disk.reply("b") == (OK, [b"reply"])
    assert disk.kinds() == [Kind.BEGUN, Kind.ENDED]


def test_a_stored_reply_is_read_from_the_log(disk):
    disk.ask("a")
    disk.sync()
    disk.start("a")
    disk.part("a", b"1")
    disk.finish("a")
    disk.sync()
    disk.ask("b")
    assert disk.reply("b") is None
    disk.load()
    assert disk.reply("b") == (OK, [b"1", b"reply"])


def test_an_unreadable_reply_fails_without_running(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.sync()
    disk.ask("b")
    disk.load(fail=True)
    assert disk.reply("b")[0] is FAILED
    assert disk.ran == ["a"]


def test_a_request_can_be_cancelled_while_its_reply_is_read(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.sync()
    disk.ask("b")
    disk.give_up("b")
    disk.load()
    assert disk.reply("b")[0] is CANCELLED


def test_a_request_without_a_begun_record_does_not_run(disk):
    disk.ask("a")
    disk.ask("b")
    disk.fail()
    assert disk.ran == []
    for token in ("a", "b"):
        status, [reason] = disk.reply(token)
        assert status is FAILED
        assert b"has not run" in reason
    disk.ask("c")
    disk.sync()
    assert disk.ran == ["c"]


def test_an_unstorable_reply_is_neither_sent_nor_run_again(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.fail()
    disk.ask("b")
    for token in ("a", "b"):
        status, [reason] = disk.reply(token)
        assert status is FAILED
        assert b"could not be stored" in reason
    assert disk.ran == ["a"]


def test_a_request_cancelled_before_its_record_does_not_run(disk):
    disk.ask("a")
    disk.give_up("a")
    assert disk.reply("a")[0] is CANCELLED
    disk.sync()
    assert disk.ran == []
    assert disk.kinds() == [Kind.BEGUN, Kind.DROPPED]


def test_the_next_request_runs_if_the_first_is_cancelled_before_its_record(disk):
    disk.ask("a")
    disk.ask("b")
    disk.give_up("a")
    disk.sync()
    assert disk.ran == ["b"]


def test_replies_survive_a_restart(disk):
    disk.ask("a")
    disk.sync()
    disk.start("a")
    disk.part("a", b"1")
    disk.finish("a")
    disk.sync()
    later = disk.reopened(later_s=60.0)
    later.ask("b")
    later.load()
    assert later.reply("b") == (OK, [b"1", b"reply"])
    assert later.ran == []


def test_replies_expire_across_a_restart(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.sync()
    later = disk.reopened(later_s=3600.0)
    later.ask("b")
    later.sync()
    assert later.ran == ["b"]
    almost = disk.reopened(later_s=3599.0)
    assert almost.engine.deadline() == pytest.approx(almost.now + 1.0)


def test_a_handler_running_at_a_crash_is_in_doubt(disk):
    disk.ask("a")
    disk.sync()
    later = disk.reopened()
    later.ask("b")
    status, [reason] = later.reply("b")
    assert (status, later.ran) == (FAILED, [])
    assert b"may have run" in reason
    again = disk.reopened(in_doubt="run")
    again.ask("b")
    assert again.ran == ["b"]


def test_the_window_of_a_key_in_doubt_starts_at_recovery(disk):
    """The handler may have run until just before the process died."""
    disk.ask("a")
    disk.sync()
    later = disk.reopened(later_s=7200.0)
    later.ask("b")
    later.sync()
    assert later.reply("b")[0] is FAILED
    assert later.kinds() == [Kind.BEGUN, Kind.DOUBTED]
    for after_s, runs in ((3599.0, []), (3600.0, ["c"])):
        again = later.reopened(later_s=after_s)
        again.ask("c")
        again.sync()
        assert again.ran == runs


def test_requests_prolong_the_doubt_about_their_key(disk):
    disk.ask("a")
    disk.sync()
    later = disk.reopened()
    for number in range(8):
        later.ask(number)
        later.sync()
        assert later.reply(number)[0] is FAILED
        later.now += 1800.0
    assert later.kinds().count(Kind.DOUBTED) == 8
    again = later.reopened()
    again.ask("b")
    assert again.reply("b")[0] is FAILED
    later.now += 1800.0
    later.ask("c")
    later.sync()
    assert later.ran == ["c"]


def test_a_failure_leaves_no_doubt(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a", b"no", FAILED)
    assert disk.reply("a") == (
        FAILED,
        [b"no"],
    )  # before the sync
    disk.sync()
    later = disk.reopened()
    later.ask("b")
    later.sync()
    assert later.ran == ["b"]


def test_in_doubt_run_needs_no_begun_records():
    disk = Bench(durable=True, in_doubt="run")
    disk.ask("a")
    assert disk.ran == ["a"]
    disk.run("a")
    disk.sync()
    assert disk.kinds() == [Kind.ENDED]


def test_a_reply_too_large_for_the_log_is_recorded_as_too_large():
    disk = Bench(durable=True, bytes_max=10_000)
    disk.ask("a")
    disk.sync()
    disk.run("a", b"x" * 20_000)
    disk.sync()
    assert disk.reply("a") == (OK, [b"x" * 20_000])
    assert disk.kinds() == [Kind.BEGUN, Kind.UNKEPT]
    for bench in (disk, disk.reopened()):
        bench.ask("b")
        assert bench.reply("b")[0] is FAILED
        assert bench.ran in (["a"], [])


def test_a_segment_is_deleted_when_its_replies_have_expired():
    disk = Bench(per_segment=4, durable=True, window_s=10.0)
    for number in range(6):
        disk.ask(number, b"%d" % number)
        disk.sync()
        disk.run(number)
        disk.sync()
        disk.now += 3.0
    assert disk.discarded == [1]
    assert disk.engine.snapshot().expired == 2
    disk.now += 10.0
    disk.feed(Wake())
    assert disk.discarded == [1, 2]  # the last segment is still being written
    assert disk.engine.snapshot().kept == 0


def test_bytes_max_limits_the_log_and_evicts_the_oldest_replies():
    disk = Bench(per_segment=10, durable=True, bytes_max=5_000)
    for number in range(200):
        disk.ask(number, b"%d" % number)
        disk.sync()
        disk.run(number, b"x" * 100)
        disk.sync()
    stats = disk.engine.snapshot()
    assert stats.size_bytes <= 5_000 + 10 * 200
    assert stats.evicted + stats.kept == 200
    assert len({place.segment for place in disk.log}) <= 4
    disk.ask("again", b"199")
    disk.load()
    assert disk.reply("again") == (OK, [b"x" * 100])


def test_the_begun_record_of_a_long_run_moves_to_a_new_segment():
    disk = Bench(per_segment=10, durable=True, bytes_max=5_000)
    disk.ask("long", b"long")
    disk.sync()
    disk.start("long")
    for number in range(100):
        disk.ask(number, b"%d" % number)
        disk.sync()
        disk.run(number, b"x" * 100)
        disk.sync()
    later = disk.reopened()
    later.ask("again", b"long")
    assert later.reply("again")[0] is FAILED
    disk.finish("long", b"done")
    disk.sync()
    later = disk.reopened()
    later.ask("again", b"long")
    later.load()
    assert later.reply("again") == (OK, [b"done"])


def test_failures_alone_do_not_fill_the_log():
    disk = Bench(per_segment=10, durable=True, bytes_max=1 << 20)
    for number in range(100):
        disk.ask(number, b"%d" % number)
        disk.sync()
        disk.run(number, b"no", FAILED)
        disk.sync()
    assert len({place.segment for place in disk.log}) <= 2


def test_a_full_disk_is_reported_once_and_its_recovery_once() -> None:
    bench = Bench(durable=True)
    for token in range(5):
        bench.ask(token, key=b"%d" % token)
        bench.fail()
    bench.ask("last")
    bench.sync()
    told = [effect for effect in bench.out if isinstance(effect, Warn)]
    assert [warning.kind for warning in told] == ["not stored", "stored again"]
    assert bench.ran == ["last"]


ONE, OTHER = bytes([1]) * DIGEST_SIZE, bytes([2]) * DIGEST_SIZE


@pytest.mark.parametrize("is_call", [False, True])
def test_a_request_from_before_callers_had_names_is_recognised(is_call):
    of_nobody, of_ann = (
        encode_key(b"pay", b"4711", principal, is_call=is_call) for principal in (b"", b"ann")
    )
    disk = Bench(durable=True)
    disk.ask("first", of_nobody, ONE)
    disk.sync()
    disk.ask("joins", of_ann, ONE)
    disk.run("first")
    disk.sync()
    disk.ask("repeats", of_ann, ONE)
    disk.load()
    assert disk.reply("joins") == disk.reply("repeats") == (OK, [b"reply"])
    disk.ask("another request", of_ann, OTHER)
    disk.sync()
    assert disk.ran == ["first", "another request"]


def test_without_a_digest_the_reply_to_a_caller_without_a_name_stays_secret():
    """Earlier versions stored no digests of requests that only a call id identifies."""
    of_nobody, of_ann = (
        encode_key(b"pay", b"4711", principal, is_call=True) for principal in (b"", b"ann")
    )
    disk = Bench(durable=True)
    disk.ask("first", of_nobody)
    disk.sync()
    disk.run("first")
    disk.sync()
    disk.ask("repeats", of_ann, ONE)
    status, [reason] = disk.reply("repeats")
    assert (status, disk.ran) == (FAILED, ["first"])
    assert b"may have run, for a caller without a name" in reason


def test_a_waiter_with_a_name_runs_under_its_own_key_if_the_first_is_given_up():
    of_nobody, of_ann = (
        encode_key(b"pay", b"4711", principal, is_call=False) for principal in (b"", b"ann")
    )
    disk = Bench(durable=True)
    disk.ask("first", of_nobody, ONE)
    disk.ask("of ann", of_ann, ONE)
    disk.give_up("first")
    disk.sync()
    disk.sync()
    disk.run("of ann")
    disk.sync()
    assert (disk.ran, disk.reply("of ann")) == (["of ann"], (OK, [b"reply"]))
    disk.ask("of nobody", of_nobody, ONE)
    disk.sync()
    assert disk.ran == ["of ann", "of nobody"]
