"""The bytes of a log: segment headers and records (docs/protocols/log-format.md).

A segment is a 64-byte header followed by records: a 24-byte header, the payload, and zeros up to
the next multiple of 8. All integers are little-endian.

All checksums of a segment start from the *seed*, the checksum of its header. The header has 16
random bytes, so a payload cannot be chosen such that its bytes pass for a record: a reader that
searches the next record after damage is not misled by the bytes that it skips.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

MAGIC: Final = b"RQTLOG01"
VERSION: Final = 1
HEADER_SIZE: Final = 64
RECORD_HEADER_SIZE: Final = 24
PAYLOAD_SIZE_MAX: Final = 16 * 1024 * 1024
ALIGNMENT: Final = 8
MARKER: Final = b"\xf5RQ\xb1"  # begins every record; neither text nor a small number contains it
SUFFIX: Final = ".seg"

DATA: Final = 0
END: Final = 1  # the last record of a sealed segment; its number is that of the next record
RECORD: Final = struct.Struct("<4sIQHHI")  # marker, length, number, kind, check, checksum
HEAD_SIZE: Final = 18  # what `check` covers: all before it

_SEGMENT: Final = struct.Struct("<8sHHIQq16s4sQ")
_CHECKSUM: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sIQH")  # marker, length, number, kind
_CHECKS: Final = struct.Struct("<HI")  # check of the head, checksum of head and payload
_PADDING: Final = tuple(bytes(-size % ALIGNMENT) for size in range(ALIGNMENT))


class SegmentHeader(NamedTuple):
    """The header of a segment. `created_us`: microseconds of wall time since 1970.

    `set_aside`: the size of its file in bytes until it is sealed; 0 if unknown.
    """

    first_record: int
    created_us: int
    log_id: bytes
    purpose: bytes
    set_aside: int = 0


def segment_name(first_record: int) -> str:
    return f"{first_record:020}{SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of the first record; None for a file that is no segment."""
    digits = name.removesuffix(SUFFIX)
    if not (name.endswith(SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if number < 1 << 64 else None


def record_size(payload_size: int) -> int:
    """Return the size of a record in bytes."""
    return RECORD_HEADER_SIZE + payload_size + -payload_size % ALIGNMENT


def encode_header(header: SegmentHeader) -> bytes:
    fields = _SEGMENT.pack(
        MAGIC,
        VERSION,
        HEADER_SIZE,
        0,
        header.first_record,
        header.created_us,
        header.log_id,
        header.purpose,
        header.set_aside,
    )
    return fields + _CHECKSUM.pack(crc32(fields))


def decode_header(data: bytes) -> SegmentHeader:
    """Decode a header without validation: see `header_fault`."""
    *_, first_record, created_us, log_id, purpose, set_aside = _SEGMENT.unpack_from(data)
    return SegmentHeader(first_record, created_us, log_id, purpose, set_aside)


def header_fault(data: bytes, number: int) -> str:
    """Return why `data` is not the header of segment `number`; "" if it is."""
    if len(data) < HEADER_SIZE:
        return "the segment is cut off within its header"
    if crc32(data[:-4]) != _CHECKSUM.unpack_from(data, HEADER_SIZE - 4)[0]:
        return "the checksum of the segment's header does not match"
    if not data.startswith(MAGIC):
        return "not a segment of a log"
    if decode_header(data).first_record != number:
        return "the segment's header names another first record than its file name"
    return ""


def header_version(data: bytes) -> int:
    return int.from_bytes(data[8:10], "little")


def header_seeds(data: bytes) -> tuple[int, ...]:
    """Return the possible seeds of the checksums; the second one is for a damaged header."""
    stored, computed = _CHECKSUM.unpack_from(data, HEADER_SIZE - 4)[0], crc32(data[:-4])
    return (stored,) if stored == computed else (stored, computed)


def encode_records(
    payloads: Iterable[bytes], number: int, offset: int, seed: int
) -> tuple[bytes, list[int]]:
    """Encode consecutive records, the first with `number`; return the bytes and the offsets.

    One function without calls: this is most of the cost of a record, about a microsecond.
    """
    pieces: list[bytes] = []
    offsets: list[int] = []
    pack_head, pack_checks, padding_of, add = _HEAD.pack, _CHECKS.pack, _PADDING, pieces.append
    for at, payload in enumerate(payloads, number):
        size = len(payload)
        head = pack_head(MARKER, size, at, DATA)
        check = crc32(head, seed)
        checksum = crc32(payload, check)
        offsets.append(offset)
        if size % ALIGNMENT:
            padding = padding_of[size % ALIGNMENT]
            add(head + pack_checks(check & 0xFFFF, crc32(padding, checksum)))
            add(payload)
            add(padding)
            offset += RECORD_HEADER_SIZE + size + len(padding)
        else:
            add(head + pack_checks(check & 0xFFFF, checksum))
            add(payload)
            offset += RECORD_HEADER_SIZE + size
    return b"".join(pieces), offsets


def encode_end(number: int, seed: int) -> bytes:
    """Encode the record that seals a segment; `number` is that of the next record."""
    head = _HEAD.pack(MARKER, 0, number, END)
    check = crc32(head, seed)
    return head + _CHECKS.pack(check & 0xFFFF, check)
