"""Read a part of a segment to Arrow batches: what a task does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from requite.errors import ConfigurationError, LogGone
from requite.spark.decoding.decoder import Batch, Decoder, Unread
from requite.spark.decoding.rows import SegmentSource
from requite.spark.source.ranges import Range
from requite.spark.source.selection import Selection
from requite.storage import Damage, LogReader
from requite.storage.layout import RECORD_HEADER_SIZE
from requite.storage.place import is_store


class Wish(NamedTuple):
    """Which columns are wanted, and of which rows."""

    columns: tuple[str, ...]
    selection: Selection


def read_ranges(ranges: Sequence[Range], wish: Wish) -> Iterator[Batch]:
    """Yield the rows of ranges, damage included. Raises `ConfigurationError` for a hidden log."""
    for each in ranges:
        yield from _read(each, wish)


def _read(part: Range, wish: Wish) -> Iterator[Batch]:
    log = part.log
    place = SegmentSource(log.log, log.role, log.name, part.segment)
    decoder = Decoder(place, wish.columns, wish.selection.wants_kind)
    if part.missed:
        yield from decoder.skip(Unread(0, b"", part.missed))
    if part.size:
        yield from _decode_what_is_there(part, decoder, wish.selection)
    yield from decoder.finish()


def _decode_what_is_there(part: Range, decoder: Decoder, selection: Selection) -> Iterator[Batch]:
    try:
        yield from _decode(part, decoder, selection)
    except LogGone:
        _check_visible(part)
        missed = f"removed before it was read (bytes {part.start} to {part.stop} of the segment)"
        yield from decoder.skip(Unread(part.start, b"", missed))


def _decode(part: Range, decoder: Decoder, selection: Selection) -> Iterator[Batch]:
    # From the beginning of the segment on, for that is where its strings are.
    for item in LogReader(part.log.place).read(part.segment, 0, part.end):
        if item.offset >= part.stop and not part.is_last:
            return
        is_ours = item.offset >= part.start
        if isinstance(item, Damage):
            if is_ours:
                yield from decoder.skip(Unread(item.offset, item.raw, item.reason))
        elif is_ours and selection.may_have(item.payload):
            yield from decoder.feed(item.payload, item.offset + RECORD_HEADER_SIZE)
        else:
            decoder.define(item.payload)


def _check_visible(part: Range) -> None:
    """Retention removes segments; a folder that is not there at all was never to be seen here."""
    if not is_store(part.log.place) and not Path(part.log.place).is_dir():
        raise ConfigurationError(
            f"{part.log.place} was there when the read was planned, and is not here: either the "
            "log has been deleted meanwhile, or this machine does not see the folder of the journal"
        ) from None
