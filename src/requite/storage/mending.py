"""Repair records with one flipped bit.

If a single bit has changed, exactly one flip makes the checksum match again. Records of up to
`MEND_SIZE_MAX` bytes are repaired by trying each bit, which takes at most a tenth of a second.

Other damage is taken for a flipped bit once in 100,000 cases: a record of that size has 32,768
bits, and its checksum 32 (the check of its head has 16 more).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

from requite.storage.layout import (
    HEAD_SIZE,
    MARKER,
    PAYLOAD_SIZE_MAX,
    RECORD,
    RECORD_HEADER_SIZE,
    record_size,
)
from requite.storage.records import RAW_SIZE_MAX

MEND_SIZE_MAX: Final = RAW_SIZE_MAX

Mended = tuple[int, int, bytes, int]
"""A record: kind, number, payload, and its size in bytes."""


def mend_all(raw: bytes, seed: int) -> list[Mended]:
    """Return the original records of these bytes, in order, up to the first irreparable one.

    Intact records may be among them. Their checksums start from `seed`.
    """
    found: list[Mended] = []
    at = 0
    while at < len(raw):
        mended = mend(raw[at : at + MEND_SIZE_MAX], seed)
        if mended is None:
            break
        found.append(mended)
        at += mended[3]
    return found


def mend(raw: bytes, seed: int) -> Mended | None:
    """Return the record that begins here, with at most one flipped bit repaired; else None.

    `raw` may have more bytes after the record.
    """
    if len(raw) < RECORD_HEADER_SIZE:
        return None
    whole = bytearray(raw)
    head = _head(whole, seed)
    if head is not None:
        return _with_head(whole, *head)
    for _ in _flips(whole, 0, RECORD_HEADER_SIZE):
        head = _head(whole, seed)
        if head is not None and _checksum(whole, *head) == 0:
            return _found(whole, head[0])
    return None


def _head(raw: bytearray, seed: int) -> tuple[int, int] | None:
    """Return the size of a record whose head matches its check, and the head's checksum."""
    marker, length, _number, _kind, check, _checksum = RECORD.unpack_from(raw)
    if marker != MARKER or length > PAYLOAD_SIZE_MAX or record_size(length) > len(raw):
        return None
    head = crc32(raw[:HEAD_SIZE], seed)
    return (record_size(length), head) if head & 0xFFFF == check else None


def _with_head(raw: bytearray, size: int, head: int) -> Mended | None:
    """Return the record after an intact head."""
    difference = _checksum(raw, size, head)
    if difference.bit_count() <= 1:  # no flip, or one in the checksum itself
        return _found(raw, size)
    for _ in _flips(raw, RECORD_HEADER_SIZE, size):
        if _checksum(raw, size, head) == 0:
            return _found(raw, size)
    return None


def _checksum(raw: bytearray, size: int, head: int) -> int:
    """Return the bits in which the stored checksum differs from the computed one."""
    stored: int = RECORD.unpack_from(raw)[5]
    return crc32(memoryview(raw)[RECORD_HEADER_SIZE:size], head) ^ stored


def _flips(raw: bytearray, begin: int, end: int) -> Iterator[None]:
    """Flip one bit after the other; each is restored before the next."""
    for at in range(begin, end):
        for bit in range(8):
            raw[at] ^= 1 << bit
            yield
            raw[at] ^= 1 << bit


def _found(raw: bytearray, size: int) -> Mended:
    _marker, length, number, kind, _check, _checksum = RECORD.unpack_from(raw)
    return kind, number, bytes(raw[RECORD_HEADER_SIZE : RECORD_HEADER_SIZE + length]), size
