"""The end of the last segment of a log to which nothing will be added.

The lock of an original log shows whether it has a writer. A copy has no lock: its original may
grow, and be copied again. So the end of a copy is final when its last file has not been written for
`SETTLED_AFTER_S`, or when the copy records that its original has ended (`requite.storage.shipped`).

A writer that closes its log seals it. A killed writer leaves zeros up to the allocated size,
possibly after the beginning of an incomplete write: such a segment is *torn*. Any other segment
without END is *cut*: it may have lost acknowledged records.
"""

from __future__ import annotations

from typing import Final

from requite.storage.files import ReadableFile
from requite.storage.layout import ALIGNMENT, RECORD_HEADER_SIZE
from requite.storage.records import RAW_SIZE_MAX, Damage
from requite.storage.walk import OpenSegment, data_chunks

SETTLED_AFTER_S: Final = 900.0
TORN: Final = "the last write is not complete: the writer was killed, or the machine stopped"
CUT: Final = "the segment is cut off at its end"
LOST: Final = "records that were copied earlier are missing"


def rest_of(segment: OpenSegment, offset: int) -> Damage | None:
    """Return the damage after the last record, which ends at `offset`, of a segment without END.

    None: the writer was killed between two writes. The damage has at least the size of the missing
    END, so a reader always has something to return there.
    """
    torn, size = tail_size(segment.file, offset), segment.file.size()
    is_cut = size < max(_set_aside(segment), offset + RECORD_HEADER_SIZE)
    if not (torn or is_cut):
        return None
    length = max(torn + -torn % ALIGNMENT, RECORD_HEADER_SIZE)
    raw = segment.file.read(min(length, RAW_SIZE_MAX), offset)
    return Damage(segment.number, offset, length, CUT if is_cut else TORN, raw)


def reason_of_rest(segment: OpenSegment, end: int) -> str:
    """Return why there are no records up to `end`, an end that was reported for the segment."""
    return CUT if segment.file.size() < max(_set_aside(segment), end) else TORN


def is_blank(segment: OpenSegment, offset: int) -> bool:
    """Whether no write has begun at `offset`; sufficient if the bytes after it were checked."""
    return not segment.file.read(RECORD_HEADER_SIZE, offset).strip(b"\0")


def tail_size(file: ReadableFile, offset: int) -> int:
    """Return the distance from `offset` to the end of the last byte that is not zero."""
    size = 0
    for base, data in data_chunks(file, offset, file.size()):
        written = len(data.rstrip(b"\0"))
        if written:
            size = base + written - offset
    return size


def _set_aside(segment: OpenSegment) -> int:
    return 0 if segment.header is None else segment.header.set_aside
