"""UUIDs generated in batches."""

from itertools import islice
from uuid import RFC_4122, UUID

from requite.titanic.uuids import uuids


def test_uuids_are_version_4_and_unique():
    found = [UUID(bytes=each) for each in islice(uuids(), 1000)]
    assert {each.version for each in found} == {4}
    assert {each.variant for each in found} == {RFC_4122}
    assert len(set(found)) == 1000


def test_every_other_bit_is_random():
    seen = [int.from_bytes(each, "big") for each in islice(uuids(), 1000)]
    ones = seen[0]
    zeros = ~seen[0]
    for each in seen:
        ones |= each
        zeros |= ~each
    assert bin(ones & zeros & (1 << 128) - 1).count("1") == 122
