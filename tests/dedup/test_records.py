"""The records of a log of replies, byte by byte (docs/protocols/dedup-log.md)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from requite.dedup.records import (
    KEY_SIZE_MAX,
    DedupRecord,
    Kind,
    Outcome,
    decode,
    decode_head,
    encode,
    encode_key,
    key_without_principal,
    principal_of,
)
from requite.errors import LogCorrupt, LogMismatch
from requite.request import Status

FRAMES = st.lists(st.binary(max_size=20), max_size=4).map(tuple)
OUTCOMES = st.builds(
    Outcome, st.sampled_from(Status), st.lists(FRAMES, max_size=4).map(tuple), FRAMES
)


@st.composite
def records(draw):
    kind = draw(st.sampled_from(Kind))
    return DedupRecord(
        kind,
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(st.binary(max_size=300)),
        draw(st.binary(min_size=16, max_size=16)),
        draw(OUTCOMES) if kind is Kind.ENDED else None,
    )


def test_begun_byte_by_byte():
    payload = encode(DedupRecord(Kind.BEGUN, 0x0102030405060708, b"key", b"D" * 16))
    assert payload == b"\x01\x01\x08\x07\x06\x05\x04\x03\x02\x01" + b"D" * 16 + b"\x03\x00key"


def test_ended_byte_by_byte():
    outcome = Outcome(Status.OK, ((b"p", b""),), (b"end",))
    payload = encode(DedupRecord(Kind.ENDED, 1, b"k", outcome=outcome))
    assert (
        payload
        == (
            b"\x01\x02\x01" + bytes(7) + bytes(16) + b"\x01\x00k"
            b"\x00"  # status OK
            b"\x02\x00\x00\x00"  # two replies: a partial and the final one
            b"\x02\x00\x00\x00\x01\x00\x00\x00p\x00\x00\x00\x00"
            b"\x01\x00\x00\x00\x03\x00\x00\x00end"
        )
    )


def test_keys_byte_by_byte():
    of_nobody = encode_key(b"pay", b"4711", is_call=False)
    assert of_nobody == b"k\x03\x00pay4711"
    assert encode_key(b"pay", b"4711", is_call=True) == b"c\x03\x00pay4711"
    of_ann = encode_key(b"pay", b"4711", b"ann", is_call=False)
    assert of_ann == b"K\x03ann\x03\x00pay4711"
    assert encode_key(b"pay", b"4711", b"ann", is_call=True) == b"C\x03ann\x03\x00pay4711"
    assert (principal_of(of_nobody), principal_of(of_ann)) == (b"", b"ann")
    assert (key_without_principal(of_nobody), key_without_principal(of_ann)) == (b"", of_nobody)
    assert encode(DedupRecord(Kind.BEGUN, 1, of_nobody))[0] == 1
    assert encode(DedupRecord(Kind.BEGUN, 1, of_ann))[0] == 2


NAMES = st.binary(max_size=300)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, st.booleans()), min_size=2, max_size=2, unique=True))
def test_keys_of_different_requests_differ(pair):
    (one, other), sizes = pair, [len(principal) for _, _, principal, _ in pair]
    assume(max(sizes) <= 255)
    keys = [
        encode_key(service, request, principal, is_call=is_call)
        for service, request, principal, is_call in (one, other)
    ]
    assert keys[0] != keys[1]
    assert [principal_of(key) for key in keys] == [one[2], other[2]]


@given(records())
def test_a_written_record_reads_back_equal(record):
    payload = encode(record)
    assert decode(payload) == record
    assert decode_head(payload) == record._replace(outcome=None)


@given(records(), st.data())
def test_a_record_cut_short_is_corrupt(record, data):
    payload = encode(record)
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(LogCorrupt):
        decode(payload[:cut])


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_refused(payload):
    try:
        record = decode(payload)
    except (LogCorrupt, LogMismatch):
        return
    assert encode(record) == payload


def test_a_newer_version_is_refused():
    with pytest.raises(LogMismatch, match="version 3"):
        decode(b"\x03" + encode(DedupRecord(Kind.BEGUN, 0, b"k"))[1:])


def test_the_longest_key_fits():
    key = bytes(KEY_SIZE_MAX)
    assert decode(encode(DedupRecord(Kind.DROPPED, 0, key))).key == key
