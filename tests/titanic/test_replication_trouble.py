"""Replication in trouble: promotion of a replica, damaged or lost copies, full disks."""

from __future__ import annotations

import json

import pytest
from tests.titanic.life import SMALL, LocalTitanic
from tests.titanic.pairs import pair, restarted, state

from requite.errors import CallTimeout
from requite.protocols.titanic import replication
from requite.protocols.titanic.inputs import Answered
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.wire import (
    CLOSE,
    PROMOTE,
    REPLICATE,
    REPLY,
    REQUEST,
    RETRY,
    STATS,
)
from requite.request import Reply
from requite.sim.kernel.disk import SimDisk
from requite.storage import MemoryFolder
from requite.titanic.store import StoreSettings

SYNCED = StoreSettings(segment_size_bytes=4096, compact_below=0.8)


# --- promotion while the primary still runs -------------------------------------------------------
def assert_superseded(life: LocalTitanic, waiting: bytes) -> None:
    """Check that it accepts, sends, closes and acknowledges nothing, and states the reason."""
    sent = len(life.submits)
    for answer in (
        life.ask(REQUEST, b"echo", b"x"),
        life.ask(REQUEST, b"echo", b"waiting", key=b"known"),
        life.ask(CLOSE, waiting),
        life.ask(RETRY, waiting),
        life.ask(REPLY, waiting),
    ):
        assert answer[0].startswith(b"500 this Titanic was superseded: its replica was promoted")
    stats = json.loads(life.ask(STATS)[1])
    assert (stats["superseded"], stats["epoch"]) == (True, 1)
    life.wait(200.0)
    assert len(life.submits) == sent


@pytest.mark.parametrize("mode", [Replicate.ASYNC, Replicate.SYNC])
def test_a_superseded_primary_accepts_nothing(mode: Replicate) -> None:
    primary, replica = pair(mode)
    answered = primary.submit(b"answered")
    primary.serves = False
    waiting = primary.submit(b"waiting", key=b"known")
    replica.ask(PROMOTE)
    primary.wait(5.1)  # the idle primary polls its replica every 5 s
    assert any("was superseded" in warning for warning in primary.warnings)
    assert "was superseded" in primary.engine.snapshot().replicating
    assert_superseded(primary, waiting)
    assert primary.ask(REPLY, answered) == [b"200", b"re:answered"]
    assert replica.submit(b"waiting", key=b"known") == waiting
    again = restarted(primary, 1, replicate=mode)
    again.serves = False
    assert_superseded(again, waiting)  # a restart does not lift it


@pytest.mark.parametrize("mode", [Replicate.ASYNC, Replicate.SYNC])
def test_a_request_submitted_right_after_a_promotion(mode: Replicate) -> None:
    """An asynchronous primary still acknowledges one request; a synchronous one does not."""
    primary, replica = pair(mode)
    primary.serves = False
    replica.ask(PROMOTE)
    answer = primary.ask(REQUEST, b"echo", b"x", key=b"k")
    expected = b"500 stored here, but not at" if mode is Replicate.SYNC else b"200"
    assert answer[0].startswith(expected)
    assert primary.ask(REQUEST, b"echo", b"y")[0].startswith(b"500 this Titanic was superseded")
    assert primary.ask(REQUEST, b"echo", b"x", key=b"k")[0].startswith(b"500 this Titanic was")
    assert replica.ask(REQUEST, b"echo", b"x", key=b"k")[0] == b"200"


def test_a_reply_to_a_superseded_primary_is_withheld() -> None:
    """A worker answers an attempt of the superseded primary. Its clients never get that reply."""
    primary, replica = pair(Replicate.SYNC)
    primary.serves = False
    ticket = primary.submit(b"x")
    [call] = primary.submits
    replica.ask(PROMOTE)
    primary.wait(5.1)
    primary.feed([Answered(call.token, Reply([b"late"]))])
    assert primary.ask(REPLY, ticket)[0].startswith(b"500 this Titanic was superseded")
    assert replica.ask(REPLY, ticket) == [b"200", b"re:x"]


def test_a_superseded_primary_can_become_replica_and_be_promoted() -> None:
    primary, replica = pair()
    first = primary.submit(b"first")
    primary.wait(0.1)
    primary.replica = None
    lost = primary.submit(b"never copied")
    replica.ask(PROMOTE)
    second = replica.submit(b"second")
    primary.replica = replica
    primary.feed([Answered(call.token, CallTimeout("away")) for call in primary.submits])
    primary.wait(5.1)
    assert primary.engine.snapshot().superseded

    old = restarted(primary, 1, standby=True)
    new = restarted(replica, 2, replicate=Replicate.SYNC)
    new.replica = old
    new.feed([Answered(call.token, CallTimeout("away")) for call in new.submits])
    new.wait(5.0)
    assert old.engine.snapshot().replica
    assert state(old) == state(new)
    assert old.ask(REPLY, lost)[0].startswith(b"400")
    assert any("closes 1 requests that the Titanic" in text for text in old.warnings)

    assert old.ask(PROMOTE) == [b"200"]
    new.wait(5.1)
    assert (new.engine.snapshot().superseded, new.engine.snapshot().epoch) == (True, 2)
    assert old.ask(REPLY, first) == [b"200", b"re:first"]
    assert old.ask(REPLY, second) == [b"200", b"re:second"]


def test_an_operator_can_promote_a_superseded_primary() -> None:
    primary, replica = pair()
    replica.ask(PROMOTE)
    primary.wait(5.1)
    assert primary.engine.snapshot().superseded
    assert primary.ask(PROMOTE) == [b"200"]
    primary.wait(20.0)
    assert (primary.engine.snapshot().superseded, primary.engine.snapshot().epoch) == (False, 2)
    assert primary.submit(b"x")


def test_a_replica_promoted_during_a_full_copy_holds_its_requests() -> None:
    primary, replica = pair()
    primary.serves = False
    early = [primary.submit(b"%d" % n + b"x" * 50) for n in range(20)]
    primary.wait(5.1)
    begin = replication.Batch(primary.store.log_id, 0, 7, [], is_begin=True)
    assert replica.ask(REPLICATE, *replication.encode_batch(begin))[0] == b"200"
    assert replica.ask(PROMOTE) == [b"200"]
    replica.wait(1.0)
    assert replica.engine.snapshot().poisoned == 20
    assert replica.ask(REPLY, early[0])[0].startswith(
        b"400 poisoned: this replica was promoted before"
    )
    assert replica.ask(RETRY, early[0]) == [b"200"]
    assert replica.ask(REPLY, early[0]) == [b"200", b"re:0" + b"x" * 50]


# --- the only copy is never discarded -------------------------------------------------------------
def test_a_primary_without_its_folder_does_not_empty_the_replica() -> None:
    primary, replica = pair()
    ticket = primary.submit(b"old")
    primary.close()
    other = LocalTitanic(MemoryFolder(), seed=9, replicate=Replicate.SYNC)  # the folder is lost
    other.replica = replica
    other.wait(20.0)
    assert other.ask(REQUEST, b"echo", b"x")[0].startswith(b"500 synchronous replication fails")
    assert "holds 1 requests of another log" in other.engine.snapshot().replicating
    assert sum("holds 1 requests of another log" in text for text in other.warnings) == 1
    assert replica.ask(REPLY, ticket) == [b"200", b"re:old"]
    assert replica.ask(PROMOTE) == [b"200"]
    assert replica.submit(b"new")


def test_a_primary_behind_its_replica_does_not_truncate_it() -> None:
    """The primary restarts from an old backup, or damage has truncated its log."""
    primary, replica = pair()
    first = primary.submit(b"first")
    folder = primary.store._log._folder
    assert isinstance(folder, MemoryFolder)
    backup = MemoryFolder()
    for name in folder.names():
        backup.create(name, 0).write(folder.open(name).read(1 << 20, 0), 0)
    second = primary.submit(b"second")
    primary.wait(5.1)
    old = LocalTitanic(backup, SMALL, seed=5, replicate=Replicate.ASYNC)
    old.replica = replica
    old.wait(20.0)
    assert "records that the Titanic it copies has lost" in old.engine.snapshot().replicating
    for ticket, reply in ((first, b"re:first"), (second, b"re:second")):
        assert replica.ask(REPLY, ticket) == [b"200", reply]


def test_a_damaged_replica_gets_a_full_copy() -> None:
    primary, replica = pair()
    primary.serves = False
    tickets = [primary.submit(b"%d" % n + b"x" * 40) for n in range(10)]
    primary.wait(15.0)
    primary.ask(CLOSE, tickets.pop())
    folder = replica.store._log._folder
    replica.close()
    assert isinstance(folder, MemoryFolder)
    flip_bits(folder, b"3xxxx")
    damaged = LocalTitanic(folder, SMALL, seed=4, standby=True)
    damaged.wait(0.1)
    assert damaged.ask(REPLY, tickets[3])[0].startswith(b"400")
    assert damaged.engine.snapshot().poisoned == 3  # requests that may have been closed
    primary.replica = damaged
    primary.wait(20.0)
    assert state(primary) == state(damaged)
    assert damaged.engine.snapshot().poisoned == 0
    damaged.ask(PROMOTE)
    assert damaged.ask(REPLY, tickets[3]) == [b"200", b"re:3" + b"x" * 40]


def flip_bits(folder: MemoryFolder, what: bytes) -> None:
    """Flip a bit in each of the first two bytes of `what`, wherever it is stored."""
    for name in folder.names():
        file = folder.open(name, writable=True)
        at = file.read(1 << 20, 0).find(what)
        if at >= 0:
            file.write(bytes(byte ^ 1 for byte in what[:2]), at)
            return
    raise AssertionError(f"{what!r} is nowhere")


# --- synchronous replication ----------------------------------------------------------------------
def test_sync_returns_no_reply_before_the_replica_has_it() -> None:
    primary, replica = pair(Replicate.SYNC)
    primary.serves = False
    ticket = primary.submit(b"x")
    [call] = primary.submits
    primary.submits.clear()
    primary.replica = None
    primary.feed([Answered(call.token, Reply([b"y"]))])
    assert primary.ask(REPLY, ticket) == [b"300"]
    [copy] = primary.submits
    answer = replica.ask(REPLICATE, *copy.frames)
    assert replica.ask(REPLY, ticket) == [b"200", b"y"]
    primary.replica = replica
    primary.feed([Answered(copy.token, Reply(answer))])
    assert primary.ask(REPLY, ticket) == [b"200", b"y"]


def test_sync_withholds_replies_until_the_replica_returns() -> None:
    primary, replica = pair(Replicate.SYNC, cache_bytes_max=0)
    primary.serves = False
    tickets = [primary.submit(b"%d" % n) for n in range(3)]
    calls = primary.submits.copy()
    primary.submits.clear()
    primary.replica = None
    primary.feed([Answered(call.token, Reply([b"y"])) for call in calls])
    primary.feed([Answered(call.token, CallTimeout("away")) for call in primary.submits])
    assert [primary.ask(REPLY, ticket) for ticket in tickets] == [[b"300"]] * 3
    primary.submits.clear()
    primary.replica = replica
    primary.wait(5.0)
    assert [primary.ask(REPLY, ticket) for ticket in tickets] == [[b"200", b"y"]] * 3
    assert state(primary) == state(replica)


def test_sync_withholds_replies_after_a_restart_until_the_replica_confirms() -> None:
    primary, replica = pair(Replicate.SYNC)
    ticket = primary.submit(b"x")
    again = restarted(primary, 1, replicate=Replicate.SYNC)
    assert again.ask(REPLY, ticket) == [b"300"]
    assert again.ask(CLOSE, b"0" * 32)[0].startswith(b"500 closed here, but perhaps not at the")
    again.feed([Answered(call.token, CallTimeout("away")) for call in again.submits])
    again.replica = replica
    again.wait(2.0)
    assert again.ask(REPLY, ticket) == [b"200", b"re:x"]
    assert again.ask(CLOSE, b"0" * 32) == [b"200"]


def test_sync_confirms_no_close_before_the_replica_has_it() -> None:
    primary, replica = pair(Replicate.SYNC)
    ticket = primary.submit(b"x")
    primary.replica = None
    first = primary.begin(CLOSE, ticket)
    second = primary.begin(CLOSE, ticket)  # closed at the primary, but not yet at the replica
    assert primary.answers.keys().isdisjoint({first, second})
    primary.feed([Answered(primary.submits.pop().token, CallTimeout("away"))])
    for token in (first, second):
        assert primary.answers[token][0].startswith(b"500 stored here, but not at the replica")
    assert primary.ask(CLOSE, ticket)[0].startswith(b"500 closed here, but perhaps not at")
    assert replica.ask(REPLY, ticket) == [b"200", b"re:x"]
    primary.replica = replica
    primary.wait(5.0)
    assert primary.ask(CLOSE, ticket) == [b"200"]
    assert replica.ask(REPLY, ticket)[0].startswith(b"400")


# --- disk space -----------------------------------------------------------------------------------
def test_a_replica_with_the_same_limit_stores_all_that_its_primary_does() -> None:
    """The primary accepts up to the limit, again and again after requests are closed."""
    bounded = StoreSettings(segment_size_bytes=4096, disk_bytes_max=8 * 4096, sync=False)
    replica = LocalTitanic(MemoryFolder(), bounded, seed=1, standby=True)
    primary = LocalTitanic(MemoryFolder(), bounded, seed=2, replicate=Replicate.SYNC)
    primary.replica = replica
    for life in (replica, primary):
        life.wait(0.1)
    for _ in range(5):
        tickets = []
        while (answer := primary.ask(REQUEST, b"echo", bytes(300)))[0] == b"200":
            tickets.append(answer[1])
        assert b"disk_bytes_max" in answer[0]
        assert len(tickets) > 10
        primary.wait(6.0)
        assert state(primary) == state(replica)
        for ticket in tickets:
            assert primary.ask(REPLY, ticket)[0] == b"200"
            while primary.ask(CLOSE, ticket) != [b"200"]:  # the replica needs compaction
                replica.compact(3)
                primary.wait(1.0)
                assert primary.now < 1000.0
        for life in (primary, replica):
            life.compact()
            life.wait(6.0)
        assert replica.store.view().disk_bytes <= 8 * 4096


def test_a_replica_with_a_full_disk_catches_up_later() -> None:
    disk = SimDisk()
    replica = LocalTitanic(disk, SYNCED, seed=1, standby=True)
    primary = LocalTitanic(MemoryFolder(), SMALL, seed=2, replicate=Replicate.SYNC)
    primary.replica = replica
    for life in (replica, primary):
        life.wait(0.1)
    first = primary.submit(b"first")
    disk.is_full = True
    answers = [primary.ask(REQUEST, b"echo", bytes(1500)) for _ in range(8)]
    refused = [answer for answer in answers if answer[0] != b"200"]
    assert refused[0][0].startswith(b"500 stored here, but not at the replica: 500 not stored: no")
    assert refused[-1][0].startswith(b"500 synchronous replication fails")
    primary.wait(20.0)
    assert primary.ask(REPLY, first) == [b"200", b"re:first"]
    warned = [text for text in primary.warnings + replica.warnings if "no space" in text]
    assert len(warned) == 2  # each side warns once, despite twenty attempts
    disk.is_full = False
    primary.wait(3.0)
    assert primary.submit(b"second")
    assert state(primary) == state(replica)
    assert primary.engine.snapshot().trouble == ""


# --- warnings for the operator --------------------------------------------------------------------
def test_an_absent_replica_is_reported_once_and_its_return_once() -> None:
    primary, replica = pair()
    primary.replica = None
    primary.submit(b"x")
    for _ in range(20):
        lost, primary.submits = primary.submits, []
        primary.feed([Answered(call.token, CallTimeout("away")) for call in lost])
        primary.wait(2.0)
    assert [text for text in primary.warnings if "away" in text] == ["CallTimeout: away"]
    primary.replica = replica
    primary.feed([Answered(call.token, CallTimeout("away")) for call in primary.submits])
    primary.wait(5.0)
    assert primary.warnings[-1] == "works again"
    assert primary.engine.snapshot().trouble == ""


def test_a_restarted_primary_reports_an_absent_replica() -> None:
    primary = LocalTitanic(MemoryFolder(), replicate=Replicate.ASYNC)
    primary.wait(0.1)
    primary.feed([Answered(call.token, CallTimeout("nobody")) for call in primary.submits])
    assert primary.warnings == ["CallTimeout: nobody"]
    assert "nobody" in primary.engine.snapshot().trouble
