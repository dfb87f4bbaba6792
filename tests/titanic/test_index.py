"""The index of live records: batches, and what it holds per request."""

from __future__ import annotations

from random import Random

import pytest

from requite.protocols.titanic.records import (
    StoreRole,
    encode_answered,
    encode_closed,
    encode_role,
    encode_submitted,
    encode_tried,
)
from requite.storage import Position
from requite.storage.layout import record_size
from requite.titanic.index import Index, RecordLocation

_KEPT_US = 1000


def _record(random: Random) -> bytes:
    uuid = bytes(15) + bytes((random.randrange(12),))
    key = random.choice([b"", b"key"])
    return random.choice(
        [
            encode_submitted(uuid, 1, b"echo", key, [bytes(random.randrange(50))]),
            encode_submitted(uuid, 1, b"echo", key, [bytes(random.randrange(50))], b"ann"),
            encode_answered(uuid, 2, 1, [bytes(random.randrange(50))]),
            encode_tried(uuid, 2, 1, False, "no"),
            encode_closed(uuid, 3, key, _KEPT_US),
            encode_role(StoreRole(4, True, bytes(16), 5)),
        ]
    )


def _positions(payloads: list[bytes], random: Random) -> list[Position]:
    """Place records one after the other, in segments of about ten."""
    positions, segment, offset = list[Position](), 0, 64
    for number, payload in enumerate(payloads):
        if not random.randrange(10):
            segment, offset = number, 64
        positions.append(Position(segment, offset, number))
        offset += record_size(len(payload))
    return positions


def _content(index: Index) -> object:
    located = sorted((*one.position, one.size) for one in index.locations())
    return located, index.live, index.unanswered


@pytest.mark.parametrize("seed", range(30))
def test_a_batch_is_indexed_like_its_records_one_by_one(seed: int) -> None:
    random = Random(seed)
    payloads = [_record(random) for _ in range(100)]
    positions = _positions(payloads, random)
    one_by_one, batched = Index(), Index()
    at = 0
    while at < len(payloads):
        end = at + random.randrange(1, 20)
        found = batched.add_all(payloads[at:end], positions[at:end])
        assert [location.position for location in found] == positions[at:end]
        for payload, position in zip(payloads[at:end], positions[at:end], strict=True):
            one_by_one.add(payload, position)
        at = end
    assert _content(batched) == _content(one_by_one)
    for segment in sorted(batched.live):
        batched.removed(segment)
        one_by_one.removed(segment)
    assert batched.items.keys() == one_by_one.items.keys()


def test_the_live_bytes_are_those_of_the_live_records() -> None:
    random = Random(1)
    payloads = [_record(random) for _ in range(200)]
    index = Index()
    index.add_all(payloads, _positions(payloads, random))
    sizes = dict.fromkeys(index.live, 0)
    for location in index.locations():
        sizes[location.segment] += location.size
    assert index.live == sizes


def test_a_waiting_request_has_one_object_in_the_index() -> None:
    index = Index()
    uuids = [bytes(15) + bytes((n,)) for n in range(3)]
    payloads = [encode_submitted(uuid, 1, b"echo", b"", [b"hi"]) for uuid in uuids]
    positions = [Position(0, 64 + 100 * n, n) for n in range(3)]
    locations = index.add_all(payloads, positions)
    assert list(index.items.values()) == locations
    moved = Position(7, 64, 7)
    index.moved(uuids[0], locations[0], moved)
    assert index.is_needed(payloads[0][0], uuids[0], 7, 64) is locations[0]
    assert index.is_needed(payloads[1][0], uuids[1], 0, 164) is locations[1]
    assert index.is_needed(payloads[1][0], uuids[1], 0, 64) is None
    index.add(encode_closed(uuids[1], 3, b"", 0), Position(7, 200, 8))
    assert index.is_closed(uuids[1])
    assert not index.is_closed(uuids[0])
    assert index.unanswered == 2
    assert isinstance(index.items[uuids[2]], RecordLocation)
