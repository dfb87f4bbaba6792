"""What comes out of a log: records, and the places where something else than records was found."""

from __future__ import annotations

from typing import Final, NamedTuple

from requite.storage.layout import record_size

RAW_SIZE_MAX: Final = 4096


class Position(NamedTuple):
    """Where a record is: its segment (named by its first record), its offset there, its number."""

    segment: int
    offset: int
    number: int


class Record(NamedTuple):
    """One record. The payload begins `RECORD_HEADER_SIZE` bytes behind `offset`."""

    segment: int
    offset: int
    number: int
    payload: memoryview

    @property
    def position(self) -> Position:
        return Position(self.segment, self.offset, self.number)

    @property
    def end(self) -> int:
        """The offset at which the next record begins."""
        return self.offset + record_size(len(self.payload))


class Damage(NamedTuple):
    """Bytes that are no records, though records are there or are due.

    `raw` holds the first 4 KiB of them. `size` is 0 where bytes are missing altogether.
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
    """A segment as a reader finds it.

    `written_bytes`: up to here there are records (and damage); a later read may start there.
    `next_number`: the number of the record that comes next. `sealed`: nothing will be added.
    `place` is where it is: a path, or a URL. `log_id` and `purpose` are empty where the header is
    damaged and no other segment tells them.
    `torn`: what is wrong with the end of a log whose writer is gone without having closed it; that
    takes the last `torn_bytes` of those written.
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
    """What opening a log found in its last segment: a tail that was cut off, and damage.

    `torn_at` is where the tail began: what was being written when the writer died.
    """

    cut_bytes: int = 0
    torn_at: Position | None = None
    damaged: tuple[Damage, ...] = ()

    def add_to(self, error: Exception) -> None:
        """Have an error tell what was cut off, too: when it is opened again, the log cannot."""
        if self.cut_bytes:
            cut = f"{self.cut_bytes} bytes at the end of the log were torn, and are cut off"
            error.args = (f"{error} (before that: {cut})",)
