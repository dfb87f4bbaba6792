"""How the last segment of a log ends when nothing will be added to it.

The original of a log tells by its lock whether it is being written. A copy cannot tell: what it was
made of may grow, and the copy be made anew. So the end of a copy is settled when its last file has
not been written for `SETTLED_AFTER_S`; or when it says itself that its original has ended
(`requite.storage.shipped`).

A writer that closes its log seals it. One that is killed leaves zeros up to the size that was set
aside, at times behind the beginning of what it was writing: that is *torn*. Whatever else has no
END has been *cut*: records may have been there that were acknowledged.
"""

from __future__ import annotations

from typing import Final

from requite.storage.files import ReadableFile
from requite.storage.layout import ALIGNMENT, RECORD_HEADER_SIZE
from requite.storage.records import RAW_SIZE_MAX, Damage
from requite.storage.scan import OpenSegment, data_chunks

SETTLED_AFTER_S: Final = 900.0
TORN: Final = "the last write is not complete: the writer was killed, or the machine stopped"
CUT: Final = "the segment is cut off at its end"
LOST: Final = "records that were copied are not there"


def rest_of(segment: OpenSegment, offset: int) -> Damage | None:
    """What is wrong behind the last record of a segment without END; that ends at `offset`.

    None is what a killed writer leaves between two writes. The damage takes at least the place of
    the missing END, so there always is something to be read there.
    """
    torn, size = tail_size(segment.file, offset), segment.file.size()
    is_cut = size < max(_set_aside(segment), offset + RECORD_HEADER_SIZE)
    if not (torn or is_cut):
        return None
    length = max(torn + -torn % ALIGNMENT, RECORD_HEADER_SIZE)
    raw = segment.file.read(min(length, RAW_SIZE_MAX), offset)
    return Damage(segment.number, offset, length, CUT if is_cut else TORN, raw)


def reason_of_rest(segment: OpenSegment, end: int) -> str:
    """Why there are no records up to `end`, where somebody has seen the rest of a segment end."""
    return CUT if segment.file.size() < max(_set_aside(segment), end) else TORN


def is_blank(segment: OpenSegment, offset: int) -> bool:
    """Whether nothing has been begun at `offset`: enough while what is behind it has been seen."""
    return not segment.file.read(RECORD_HEADER_SIZE, offset).strip(b"\0")


def tail_size(file: ReadableFile, offset: int) -> int:
    """How far behind `offset` there is anything but zeros."""
    size = 0
    for base, data in data_chunks(file, offset, file.size()):
        written = len(data.rstrip(b"\0"))
        if written:
            size = base + written - offset
    return size


def _set_aside(segment: OpenSegment) -> int:
    return 0 if segment.header is None else segment.header.set_aside
