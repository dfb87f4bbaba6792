"""`titanic.erase`: the requests of an owner are closed, and their bodies leave the disk."""

from __future__ import annotations

import pytest
from tests.spec.requirement import requirement
from tests.support.builds import constant_replaced
from tests.titanic.life import LocalTitanic
from tests.titanic.pairs import pair, restarted

from requite.errors import LogFull
from requite.protocols.titanic import erasing, records
from requite.protocols.titanic.records import Closed
from requite.protocols.titanic.wire import CLOSE, ERASE, PROMOTE, REPLY
from requite.storage import MemoryFolder, layout

SECRET = b"her secret"


def raw(life: LocalTitanic) -> bytes:
    """Return all bytes of all segments."""
    folder = life.store._log._folder
    files = [folder.open(name) for name in folder.names() if name.endswith(layout.SUFFIX)]
    return b"".join(file.read(file.size(), 0) for file in files)


def erase(life: LocalTitanic, owner: bytes = b"ann") -> int:
    """Erase the requests of an owner; return the number of closed ones."""
    cursor, count = b"", 0
    while True:
        status, closed, cursor = life.ask(ERASE, owner, cursor, owner=b"ops")
        assert status == b"200"
        count += int(closed)
        if not cursor:
            return count


def filled(life: LocalTitanic) -> list[bytes]:
    """Store requests of two owners, most of them of `bob`, whose tickets are returned.

    Too little of each segment is dead for compaction, unless it is made to erase it.
    """
    of_bob = []
    for n in range(60):
        of_bob.append(life.submit(b"bob %d" % n + bytes(100), owner=b"bob"))
        if n % 6 == 0:
            life.submit(SECRET, b"key %d" % n, b"ann")
        if n % 6 == 3:
            life.ask(CLOSE, life.submit(SECRET, b"closed %d" % n, b"ann"), owner=b"ann")
    return of_bob


def assert_served(life: LocalTitanic, of_bob: list[bytes]) -> None:
    for n, ticket in enumerate(of_bob):
        expected = [b"200", b"re:bob %d" % n + bytes(100)]
        assert life.ask(REPLY, ticket, owner=b"bob") == expected


@requirement("tsp:owner:erase")
def test_erased_bodies_leave_the_disk_and_others_stay() -> None:
    life = LocalTitanic(MemoryFolder())
    of_bob = filled(life)
    life.compact()
    assert raw(life).count(SECRET) >= 20  # of closed requests, too
    assert erase(life) == 10
    assert life.store.view().rewriting > 0
    life.compact()
    assert life.store.view().rewriting == 0
    assert SECRET not in raw(life)
    assert b"key 0" not in raw(life)
    assert b"ann" not in raw(life)
    assert_served(life, of_bob)
    again = restarted(life, 1)
    assert_served(again, of_bob)
    again.close()


@requirement("tsp:owner:erase")
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
def test_an_erasure_survives_restarts(steps: int) -> None:
    """However often the process ends, after some steps of compaction each time."""
    life = LocalTitanic(MemoryFolder())
    of_bob = filled(life)
    erase(life)
    for n in range(3):
        life.compact(steps)
        life = restarted(life, n)
    life.compact()
    assert life.store.view().rewriting == 0
    assert SECRET not in raw(life)
    assert_served(life, of_bob)
    life.close()


@requirement("tsp:owner:erase")
def test_a_replica_erases_as_well() -> None:
    primary, replica = pair()
    of_bob = filled(primary)
    primary.wait(1.0)
    assert SECRET in raw(replica)
    assert replica.ask(ERASE, b"ann")[0].startswith(b"500 this is a replica; send this to the")
    erase(primary)
    for _ in range(3):  # the primary keeps segments until it knows that the replica has them
        primary.wait(6.0)
        primary.compact()
    replica.compact()
    for life in (primary, replica):
        assert life.store.view().rewriting == 0
        assert SECRET not in raw(life)
    replica.ask(PROMOTE)
    assert_served(replica, of_bob)
    for life in (primary, replica):
        life.close()


@requirement("tsp:owner:erase")
def test_keys_are_erased_also_those_of_closed_requests() -> None:
    life = LocalTitanic(MemoryFolder())
    of_bob = life.submit(b"hi", b"k", b"bob")
    first = [life.submit(b"hi", b"k", b"ann"), life.submit(b"hi", b"closed", b"ann")]
    life.ask(CLOSE, first[1], owner=b"ann")
    assert erase(life) == 1
    for n in range(2):
        second = [life.submit(b"hi", key, b"ann") for key in (b"k", b"closed")]
        assert not set(first) & set(second)
        assert life.submit(b"hi", b"k", b"bob") == of_bob
        erase(life)
        life = restarted(life, n)
    life.close()


@requirement("tsp:owner:erase")
def test_requests_that_wait_or_run_do_not_run_any_more() -> None:
    life = LocalTitanic(MemoryFolder(), service_window=1)
    life.serves = False
    tickets = [life.submit(SECRET, owner=b"ann") for _ in range(3)]
    assert erase(life) == 3
    assert [life.ask(REPLY, one, owner=b"ann")[0][:3] for one in tickets] == [b"400"] * 3
    assert life.engine.snapshot().requests == 0
    assert len(life.submits) == 1
    life.close()


@requirement("tsp:owner:erase")
@constant_replaced
def test_many_requests_are_erased_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "_CLOSED_MAX", 3)
    monkeypatch.setattr(erasing, "_SCANNED_MAX", 7)
    life = LocalTitanic(MemoryFolder())
    of_bob = filled(life)
    assert erase(life) == 10
    assert erase(life) == 0
    assert_served(life, of_bob)
    life.close()


def test_an_owner_must_be_given_and_a_cursor_must_be_a_number() -> None:
    life = LocalTitanic(MemoryFolder())
    assert life.ask(ERASE) == [b"400 the first frame must be the owner of the requests to erase"]
    assert life.ask(ERASE, b"ann", b"x")[0].startswith(b"400 the cursor of a list must be")
    life.close()


def test_an_erasure_that_is_not_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    life = LocalTitanic(MemoryFolder())
    life.submit(SECRET, owner=b"ann")

    def fail(*_: object) -> None:
        raise LogFull("the disk is full")

    monkeypatch.setattr(life.store._log, "commit", fail)
    assert life.ask(ERASE, b"ann") == [b"500 not stored: the disk is full"]
    monkeypatch.undo()
    assert erase(life) == 1
    life.close()


def test_the_record_of_an_erasure() -> None:
    record = records.encode_erasure(7)
    assert record.hex() == f"04010200{'00' * 16}0700000000000000{'00' * 8}"
    assert records.decode(record) == Closed(bytes(16), 7, b"", 0, erasure=True)
