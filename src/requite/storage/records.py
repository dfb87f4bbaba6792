"""The content of a log: records, and damage between them."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.errors import StorageError
from requite.storage.layout import record_size

RAW_SIZE_MAX: Final = 4096


class Position(NamedTuple):
    """The position of a record: segment (the number of its first record), offset and number."""

    segment: int
    offset: int
    number: int


class Record(NamedTuple):
    """A record. What is stored of it begins `RECORD_HEADER_SIZE` bytes after `offset`; it has
    `seal_size` bytes more than the payload, if it is encrypted."""

    segment: int
    offset: int
    number: int
    payload: memoryview
    seal_size: int = 0

    @property
    def position(self) -> Position:
        return Position(self.segment, self.offset, self.number)

    @property
    def end(self) -> int:
        """The offset at which the next record begins."""
        return self.offset + record_size(len(self.payload) + self.seal_size)


class Damage(NamedTuple):
    """Bytes that are no records, where records were or should be.

    `raw` has the first 4 KiB of them. `size` is 0 if the bytes are missing.
    """

    segment: int
    offset: int
    size: int
    reason: str
    raw: bytes

    @property
    def end(self) -> int:
        return self.offset + self.size


class SegmentInfo(NamedTuple):
    """A segment, for a reader.

    `written_bytes`: the size of the part with records and damage; a later read may start there.
    `next_number`: the number of the next record. `sealed`: nothing will be added. `place`: a path
    or a URL. `log_id` and `purpose` are empty if the header is damaged and no other segment has
    them. `torn`: the damage at the end of a log whose writer ended without closing it, in the last
    `torn_bytes` of the written ones.
    """

    place: str
    number: int
    written_bytes: int
    sealed: bool
    log_id: bytes
    purpose: bytes
    created_us: int
    next_number: int
    torn: str = ""
    torn_bytes: int = 0


class Recovery(NamedTuple):
    """The result of recovery in the last segment: a truncated tail, and damage.

    `torn_at`: the offset of the tail, which was being written when the writer died.
    """

    cut_bytes: int = 0
    torn_at: Position | None = None
    damaged: tuple[Damage, ...] = ()

    def add_to(self, error: StorageError) -> None:
        """Add the truncated tail to an error: the next opening will not find it."""
        if self.cut_bytes:
            error.cut_bytes = self.cut_bytes
            cut = f"{self.cut_bytes} bytes at the end of the log were torn, and are cut off"
            error.args = (f"{error} (before that: {cut})",)
