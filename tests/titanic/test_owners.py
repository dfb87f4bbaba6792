"""Owners of requests on the disk, after restarts and compaction, and at a replica."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec.requirement import requirement
from tests.support.builds import constant_replaced
from tests.titanic.life import SMALL, LocalTitanic
from tests.titanic.pairs import compact_all, pair, restarted, state

from requite.errors import LogMismatch, RemoteFailure, RemoteViolation
from requite.protocols.titanic import closed_keys, records
from requite.protocols.titanic.inputs import Answered as Outcome
from requite.protocols.titanic.policy import Replicate
from requite.protocols.titanic.records import Answered, Closed, Submitted, Tried
from requite.protocols.titanic.wire import CLOSE, LIST, PROMOTE, REPLY, RETRY
from requite.storage import MemoryFolder
from requite.titanic.store import open_memory

UUID = bytes(range(16))
UNKNOWN = b"F" * 32

owners = st.binary(min_size=1, max_size=255)
frames = st.lists(st.binary(max_size=50), max_size=3)


# --- records --------------------------------------------------------------------------------------
def test_an_owner_follows_the_head() -> None:
    head, owner = f"02 0000{UUID.hex()}0700000000000000", "03616e6e"
    cases = {
        f"01 {head} {owner} 01 04 01000000 6b 6563686f 02000000 6869": (
            records.encode_submitted(UUID, 7, b"echo", b"k", [b"hi"], b"ann")
        ),
        f"02 {head} {owner} 03000000 01000000 02000000 686f": (
            records.encode_answered(UUID, 7, 3, [b"ho"], b"ann")
        ),
        f"03 {head} {owner} 09000000 6e6f": (records.encode_tried(UUID, 7, 9, False, "no", b"ann")),
        f"04 {head} {owner} 0800000000000000 6b": (
            records.encode_closed(UUID, 7, b"k", 8, owner=b"ann")
        ),
    }
    for expected, encoded in cases.items():
        assert encoded == bytes.fromhex(expected)


@given(owners, frames, st.binary(max_size=255))
def test_records_with_an_owner(owner: bytes, body: list[bytes], key: bytes) -> None:
    cases = {
        records.encode_submitted(UUID, 1, b"echo", key, body, owner): (
            Submitted(UUID, 1, b"echo", key, body, owner)
        ),
        records.encode_answered(UUID, 1, 2, body, owner): Answered(UUID, 1, 2, body, owner),
        records.encode_tried(UUID, 1, 2, True, "no", owner): Tried(UUID, 1, 2, True, "no", owner),
        records.encode_closed(UUID, 1, key, 2, owner=owner): Closed(UUID, 1, key, 2, False, owner),
    }
    for encoded, entry in cases.items():
        assert records.decode(encoded) == entry
        assert records.decode(memoryview(encoded), bodies=False).at_us == 1
        if isinstance(entry, Submitted | Answered):
            assert records.body_size(encoded) == sum(map(len, body))


@given(st.integers(28, 40))
def test_a_record_that_ends_within_its_owner_is_refused(size: int) -> None:
    whole = records.encode_tried(UUID, 1, 2, True, "", b"ann" * 3)
    with pytest.raises(RemoteViolation):
        records.decode(whole[:size])


def test_a_version_that_is_not_known_is_refused_with_a_sentence() -> None:
    record = bytearray(records.encode_submitted(UUID, 7, b"echo", b"", [b"hi"], b"ann"))
    record[1] = 5
    with pytest.raises(RemoteViolation, match="kind 1, version 5 is not supported; use a newer"):
        records.decode(bytes(record))


# --- restarts -------------------------------------------------------------------------------------
@pytest.fixture(params=["restart", "compaction", "replica"])
def later(request: pytest.FixtureRequest) -> Iterator[list[LocalTitanic]]:
    """A Titanic, and the one that has its requests later: returned by `after`."""
    primary, replica = pair(key_window_s=3600.0, attempts_max=1)
    yield [primary, replica]
    primary.close()
    replica.close()


def after(lives: list[LocalTitanic], how: str) -> LocalTitanic:
    primary, replica = lives
    primary.wait(1.0)
    if how == "compaction":
        compact_all(primary)
    if how == "replica":
        assert state(primary) == state(replica)
        assert replica.ask(PROMOTE) == [b"200"]
        return replica
    lives[0] = restarted(primary, 5, attempts_max=1)
    return lives[0]


@requirement("tsp:owner:stored", "tsp:owner:key")
def test_owners_and_their_keys_survive(
    later: list[LocalTitanic], request: pytest.FixtureRequest
) -> None:
    how = request.node.callspec.params["later"]
    primary = later[0]
    of_ann = primary.submit(b"hi", b"k", b"ann")
    closed = primary.submit(b"hi", b"closed", b"ann")
    primary.ask(CLOSE, closed, owner=b"ann")
    of_none = primary.submit(b"hi", b"k")
    life = after(later, how)
    assert life.ask(REPLY, of_ann, owner=b"eve") == life.ask(REPLY, UNKNOWN, owner=b"eve")
    assert life.ask(REPLY, of_ann, owner=b"ann") == [b"200", b"re:hi"]
    assert life.submit(b"hi", b"k", b"ann") == of_ann
    assert life.submit(b"hi", b"k") == of_none
    assert life.submit(b"hi", b"closed", b"ann") == closed
    assert life.submit(b"hi", b"closed", b"eve") != closed
    assert life.submit(b"hi", b"k", b"eve") not in (of_ann, of_none)


@requirement("tsp:owner:stored", "tsp:owner:operators")
def test_a_retry_keeps_the_owner_also_after_a_restart() -> None:
    life = LocalTitanic(MemoryFolder(), attempts_max=1, attempt_timeout_s=1.0)
    life.serves = False
    ticket = life.submit(b"hi", owner=b"ann")
    life.feed([Outcome(life.submits[-1].token, RemoteFailure("boom"))])
    again = restarted(life, 1, attempts_max=1)
    assert again.ask(RETRY, ticket, owner=b"ops") == [b"200"]
    third = restarted(again, 2)
    [row] = [json.loads(line) for line in third.ask(LIST)[1].splitlines()]
    assert (row["owner"], row["state"]) == ("ann", "answered")
    assert third.ask(REPLY, ticket, owner=b"ann") == [b"200", b"re:hi"]
    assert third.ask(REPLY, ticket, owner=b"ops")[0].startswith(b"400")
    third.close()


@requirement("tsp:owner:stored")
def test_a_log_of_an_older_version_has_requests_without_owners() -> None:
    """Golden bytes of version 1: a request, and its reply."""
    uuid = bytes(15) + b"\x01"
    old = [
        bytes.fromhex(f"01010000{uuid.hex()}0700000000000000 01 04 01000000 6b 6563686f 02000000")
        + b"hi",
        bytes.fromhex(f"02010000{uuid.hex()}0800000000000000 01000000 01000000 02000000") + b"ho",
    ]
    folder = MemoryFolder()
    store = open_memory(SMALL, folder=folder)
    store._log.commit(old)
    store.close()
    life = LocalTitanic(folder)
    ticket = b"%032X" % 1
    assert life.ask(REPLY, ticket) == [b"200", b"ho"]
    assert life.ask(REPLY, ticket, owner=b"ann") == [b"200", b"ho"]
    life.close()


@requirement("tsp:owner:stored")
@constant_replaced
def test_a_log_with_owners_is_refused_by_a_version_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = MemoryFolder()
    life = LocalTitanic(folder)
    life.submit(b"hi", owner=b"ann")
    life.close()
    monkeypatch.setattr(records, "VERSIONS", (records.VERSION,))
    with pytest.raises(LogMismatch, match="version 2 is not supported; use a newer requite"):
        LocalTitanic(folder)


# --- replicas -------------------------------------------------------------------------------------
@requirement("tsp:owner:ticket")
def test_closing_a_request_that_its_owner_has_just_closed_tells_a_stranger_nothing() -> None:
    """The answer to the owner waits for the replica; a stranger's does not, as for any ticket."""
    primary, replica = pair(Replicate.SYNC)
    ticket = primary.submit(b"hi", owner=b"ann")
    primary.replica = None
    assert primary.begin(CLOSE, ticket, owner=b"ann") not in primary.answers
    assert primary.begin(CLOSE, ticket, owner=b"ann") not in primary.answers  # closed already
    assert primary.ask(CLOSE, ticket, owner=b"eve") == [b"200"]
    assert primary.ask(CLOSE, UNKNOWN, owner=b"eve") == [b"200"]
    for life in (primary, replica):
        life.close()


@requirement("tsp:owner:ticket")
def test_a_replica_serves_replies_to_their_owners_only() -> None:
    primary, replica = pair()
    ticket = primary.submit(b"hi", owner=b"ann")
    primary.wait(1.0)
    assert replica.ask(REPLY, ticket, owner=b"eve") == replica.ask(REPLY, UNKNOWN, owner=b"eve")
    assert replica.ask(REPLY, ticket, owner=b"ann") == [b"200", b"re:hi"]
    assert replica.ask(CLOSE, ticket, owner=b"eve") == replica.ask(CLOSE, UNKNOWN, owner=b"eve")
    for life in (primary, replica):
        life.close()


# --- keys of closed requests ----------------------------------------------------------------------
@constant_replaced
def test_an_owner_with_many_closed_keys_pushes_out_only_its_own_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_keys, "CLOSED_KEYS_MAX", 10)
    folder = MemoryFolder()
    life = LocalTitanic(folder, key_window_s=1000.0)
    tickets = {}
    for owner, key in [(b"shop", b"0"), *((b"eve", b"%d" % n) for n in range(100))]:
        tickets[owner, key] = ticket = life.submit(b"hi", key=key, owner=owner)
        assert life.ask(CLOSE, ticket, owner=owner) == [b"200"]
        life.wait(1.0)
    life.compact()
    assert len(life.store._index.items) < 50  # records of forgotten keys are gone
    for _ in range(2):
        life.close()
        life = LocalTitanic(folder, now=life.now, seed=1, key_window_s=1000.0)
        assert life.engine.snapshot().keys == 10
        for owner, key in ((b"shop", b"0"), (b"eve", b"99")):
            assert life.submit(b"hi", key=key, owner=owner) == tickets[owner, key]
        life.compact()
