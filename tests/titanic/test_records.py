"""The records of Titanic's log: byte layout, round trips and rejection of malformed ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import RemoteViolation
from requite.protocols.titanic import records, replication
from requite.protocols.titanic.records import Answered, Closed, StoreRole, Submitted, Tried

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "titanic-log.md"
UUID = bytes(range(16))
TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b701")

uuids = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**64 - 1)
smalls = st.integers(0, 2**32 - 1)
keys = st.binary(max_size=255)
bodies = st.lists(st.binary(max_size=100), max_size=5)
texts = st.text(max_size=50)


@pytest.mark.parametrize(
    ("example", "owner", "trace"), [(0, b"", b""), (1, b"ann", b""), (2, b"ann", TRACE)]
)
def test_the_examples_in_the_documentation(example: int, owner: bytes, trace: bytes) -> None:
    dumps = re.findall(r"(?:^    [0-9A-F]{4}  [0-9A-F ]+\n)+", PAGE.read_text("utf-8"), re.M)
    lines = re.findall(r"^    [0-9A-F]{4}  ([0-9A-F ]+)$", dumps[example], re.M)
    data = bytes.fromhex("".join(lines))
    at_us = 1_700_000_000_000_000
    assert records.encode_submitted(UUID, at_us, b"echo", b"k", [b"hi"], owner, trace) == data
    assert records.decode(data) == Submitted(UUID, at_us, b"echo", b"k", [b"hi"], owner, trace)


def test_the_example_of_a_negative_reply() -> None:
    dump = PAGE.read_text("utf-8").split("The negative reply `no`")[1].split("## Expiry")[0]
    data = bytes.fromhex("".join(re.findall(r"^    [0-9A-F]{4}  ([0-9A-F ]+)$", dump, re.M)))
    at_us = 1_700_000_000_000_000
    assert records.encode_answered(UUID, at_us, 2, [b"no"], is_negative=True) == data
    assert records.decode(data) == Answered(UUID, at_us, 2, [b"no"], b"", is_negative=True)


@given(uuids, numbers, smalls, st.binary(), st.binary(max_size=255))
def test_negative_replies(uuid: bytes, at: int, attempts: int, reason: bytes, owner: bytes) -> None:
    encoded = records.encode_answered(uuid, at, attempts, [reason], owner, is_negative=True)
    assert records.decode(encoded) == Answered(uuid, at, attempts, [reason], owner, True)
    assert records.body_size(memoryview(encoded)) == len(reason)


@pytest.mark.parametrize("kind", sorted({*records.KINDS} - {records.ANSWERED}))
def test_no_other_record_is_of_a_negative_reply(kind: int) -> None:
    encoded = records.encode_answered(UUID, 7, 1, [b"no"], is_negative=True)
    with pytest.raises(RemoteViolation, match=f"kind {kind}, version 4 is not supported"):
        records.decode(bytes((kind,)) + encoded[1:])
    with pytest.raises(RemoteViolation):
        records.outline(bytes((records.SUBMITTED,)) + encoded[1:])


@given(st.binary(max_size=255), bodies)
def test_a_submission_with_a_trace(owner: bytes, frames: list[bytes]) -> None:
    encoded = records.encode_submitted(UUID, 1, b"echo", b"k", frames, owner, TRACE)
    assert records.decode(encoded) == Submitted(UUID, 1, b"echo", b"k", frames, owner, TRACE)
    size = sum(map(len, frames))
    assert records.body_size(memoryview(encoded)) == size
    outline = records.Outline(UUID, 1, b"echo", b"k", size, owner, TRACE)
    assert records.outline(memoryview(encoded)) == outline


def test_a_bad_trace_is_refused() -> None:
    encoded = records.encode_submitted(UUID, 1, b"echo", b"", [b"hi"], b"", TRACE)
    bad = [
        encoded[: records.HEAD.size + 1 + 20],  # ends within it
        encoded[: records.HEAD.size + 1] + bytes(16) + encoded[records.HEAD.size + 17 :],
        bytes((records.ANSWERED,)) + encoded[1:],  # of a kind that has none
    ]
    for payload in bad:
        with pytest.raises(RemoteViolation):
            records.decode(payload)
    for payload in bad[:2]:
        with pytest.raises(RemoteViolation):
            records.outline(payload)


def test_the_other_kinds_of_records() -> None:
    uuid, time = UUID.hex(), "0700000000000000"
    cases = {
        f"02010000{uuid}{time} 03000000 02000000 01000000 61 00000000": (
            records.encode_answered(UUID, 7, 3, [b"a", b""])
        ),
        f"03010100{uuid}{time} 09000000 6e6f": records.encode_tried(UUID, 7, 9, True, "no"),
        f"04010000{uuid}{time} 0800000000000000 6b": records.encode_closed(UUID, 7, b"k", 8),
        f"05010500{'00' * 16}{time} {'ff' * 16} 0a00000000000000 0200000000000000": (
            records.encode_role(StoreRole(7, True, b"\xff" * 16, 10, 2, partial=True))
        ),
    }
    for expected, encoded in cases.items():
        assert encoded == bytes.fromhex(expected)


@given(uuids, numbers, st.binary(min_size=1, max_size=255), keys, bodies)
def test_submitted(uuid: bytes, at: int, service: bytes, key: bytes, frames: list[bytes]) -> None:
    encoded = records.encode_submitted(uuid, at, service, key, frames)
    assert records.decode(encoded) == Submitted(uuid, at, service, key, frames)
    assert records.decode(memoryview(encoded), bodies=False)[:4] == (uuid, at, service, key)
    assert records.body_size(encoded) == sum(map(len, frames))
    outline = records.Outline(uuid, at, service, key, sum(map(len, frames)))
    assert records.outline(memoryview(encoded)) == outline


@given(uuids, numbers, smalls, bodies)
def test_answered(uuid: bytes, at: int, attempts: int, frames: list[bytes]) -> None:
    encoded = records.encode_answered(uuid, at, attempts, frames)
    assert records.decode(encoded) == Answered(uuid, at, attempts, frames)
    assert records.body_size(memoryview(encoded)) == sum(map(len, frames))


@given(uuids, numbers, smalls, st.booleans(), texts)
def test_tried(uuid: bytes, at: int, attempts: int, poisoned: bool, reason: str) -> None:
    encoded = records.encode_tried(uuid, at, attempts, poisoned, reason)
    assert records.decode(encoded) == Tried(uuid, at, attempts, poisoned, reason)


@given(uuids, numbers, keys, numbers, st.booleans())
def test_closed(uuid: bytes, at: int, key: bytes, number: int, flag: bool) -> None:
    encoded = records.encode_closed(uuid, at, key, number, expired=flag)
    assert records.decode(encoded) == Closed(uuid, at, key, number, flag)


@given(
    st.builds(
        StoreRole, numbers, st.booleans(), uuids, numbers, numbers, st.booleans(), st.booleans()
    )
)
def test_roles(role: StoreRole) -> None:
    assert records.decode(records.encode_role(role)) == role


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        records.decode(data)
    except RemoteViolation:
        return
    assert data[1] in records.VERSIONS


@given(st.integers(0, 2), st.data())
def test_truncated_records_are_refused(kind: int, data: st.DataObject) -> None:
    whole = [
        records.encode_submitted(UUID, 1, b"echo", b"key", [b"body", b"more"]),
        records.encode_answered(UUID, 1, 1, [b"body"]),
        records.encode_role(StoreRole(1, True, UUID, 1)),
    ][kind]
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RemoteViolation):
        records.decode(whole[:size])


# --- replication ----------------------------------------------------------------------------------
@given(uuids, numbers, numbers, bodies, st.booleans(), st.booleans(), numbers)
def test_batches(
    log_id: bytes, one: int, two: int, frames: list[bytes], begin: bool, head: bool, epoch: int
) -> None:
    batch = replication.Batch(log_id, min(one, two), max(one, two), frames, begin, head, epoch)
    encoded = replication.encode_batch(batch)
    assert replication.decode_batch(encoded) == batch
    assert replication.unpack(replication.pack(batch)) == encoded
    of_the_next = replication.decode_batch(replication.of_epoch(encoded, 7))
    assert of_the_next == batch._replace(epoch=7)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [bytes(44)],
        [b"\x02" + bytes(43)],
        [b"\x01" + bytes(19) + b"\x01" + bytes(23)],
        [b"\x01" + bytes(44)],
    ],
)
def test_malformed_batches_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(RemoteViolation):
        replication.decode_batch(frames)


def test_positions() -> None:
    frames = [b"200", replication.encode_position(UUID, 5)]
    assert replication.decode_position(frames) == (UUID, 5)
    for wrong in ([b"200"], [b"200", b""], [b"200", bytes(25)]):
        with pytest.raises(RemoteViolation):
            replication.decode_position(wrong)
