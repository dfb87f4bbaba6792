"""A request and its repetitions, on a log under manual control."""

from __future__ import annotations

import pytest
from tests.dedup.bench import Bench

from requite.dedup.records import Kind
from requite.engine import Wake, Warn
from requite.request import Status

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED

OK, FAILED, CANCELLED = Status.OK, Status.FAILED, Status.CANCELLED


def test_nothing_starts_before_that_is_on_the_disk(disk):
    disk.ask("a")
    assert disk.ran == []
    disk.sync()
    assert disk.ran == ["a"]
    assert disk.kinds() == [Kind.BEGUN]


def test_nothing_is_answered_before_it_is_on_the_disk(disk):
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


def test_a_reply_that_cannot_be_read_runs_nothing(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.sync()
    disk.ask("b")
    disk.load(fail=True)
    assert disk.reply("b")[0] is FAILED
    assert disk.ran == ["a"]


def test_who_waits_for_a_reply_to_be_read_may_give_up(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a")
    disk.sync()
    disk.ask("b")
    disk.give_up("b")
    disk.load()
    assert disk.reply("b")[0] is CANCELLED


def test_what_cannot_be_noted_does_not_run(disk):
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


def test_a_reply_that_cannot_be_stored_is_not_given_and_not_run_again(disk):
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


def test_given_up_before_it_is_noted_nothing_runs(disk):
    disk.ask("a")
    disk.give_up("a")
    assert disk.reply("a")[0] is CANCELLED
    disk.sync()
    assert disk.ran == []
    assert disk.kinds() == [Kind.BEGUN, Kind.DROPPED]


def test_given_up_before_it_is_noted_the_next_runs(disk):
    disk.ask("a")
    disk.ask("b")
    disk.give_up("a")
    disk.sync()
    assert disk.ran == ["b"]


def test_replies_outlive_the_process(disk):
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


def test_replies_end_with_their_window_whatever_the_process(disk):
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


def test_what_had_begun_when_the_process_died_is_in_doubt(disk):
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


def test_the_window_of_what_is_in_doubt_begins_when_it_is_found(disk):
    """The handler may have run until a moment before the process died."""
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


def test_what_is_in_doubt_stays_so_while_it_is_asked_for(disk):
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


def test_failures_leave_no_doubt(disk):
    disk.ask("a")
    disk.sync()
    disk.run("a", b"no", FAILED)
    assert disk.reply("a") == (FAILED, [b"no"])  # nobody relies on it
    disk.sync()
    later = disk.reopened()
    later.ask("b")
    later.sync()
    assert later.ran == ["b"]


def test_without_doubt_starts_are_not_noted():
    disk = Bench(durable=True, in_doubt="run")
    disk.ask("a")
    assert disk.ran == ["a"]
    disk.run("a")
    disk.sync()
    assert disk.kinds() == [Kind.ENDED]


def test_a_reply_too_large_for_the_log_is_remembered_as_such():
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


def test_segments_go_when_all_their_replies_are_gone():
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
    assert disk.discarded == [1, 2]  # the last one is being written
    assert disk.engine.snapshot().kept == 0


def test_the_log_is_bounded_and_the_oldest_replies_go_first():
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


def test_what_runs_for_long_is_noted_anew_when_its_segment_goes():
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


def test_a_full_disk_is_told_of_once_and_once_more_when_it_takes_records_again() -> None:
    bench = Bench(durable=True)
    for token in range(5):
        bench.ask(token, key=b"%d" % token)
        bench.fail()
    bench.ask("last")
    bench.sync()
    told = [effect for effect in bench.out if isinstance(effect, Warn)]
    assert [warning.kind for warning in told] == ["not stored", "stored again"]
    assert bench.ran == ["last"]
