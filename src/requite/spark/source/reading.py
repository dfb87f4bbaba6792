"""Reads parts of segments to Arrow batches, in a task."""

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


class Scan(NamedTuple):
    """The columns and rows to read."""

    columns: tuple[str, ...]
    selection: Selection


def read_ranges(ranges: Sequence[Range], scan: Scan) -> Iterator[Batch]:
    """Yield the rows of ranges, including damage.

    Raises `ConfigurationError` if this machine cannot see the journal's folder.
    """
    for each in ranges:
        yield from _read(each, scan)


def _read(part: Range, scan: Scan) -> Iterator[Batch]:
    log = part.log
    place = SegmentSource(log.log, log.role, log.name, part.segment)
    decoder = Decoder(place, scan.columns, scan.selection.wants_kind)
    if part.missed:
        yield from decoder.skip(Unread(0, b"", part.missed))
    if part.size:
        yield from _decode_existing(part, decoder, scan.selection)
    yield from decoder.finish()


def _decode_existing(part: Range, decoder: Decoder, selection: Selection) -> Iterator[Batch]:
    try:
        yield from _decode(part, decoder, selection)
    except LogGone:
        _check_visible(part)
        missed = f"removed before it was read (bytes {part.start} to {part.stop} of the segment)"
        yield from decoder.skip(Unread(part.start, b"", missed))


def _decode(part: Range, decoder: Decoder, selection: Selection) -> Iterator[Batch]:
    # From the beginning of the segment, since earlier blocks define its strings.
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
    """Raise `ConfigurationError` if the log's folder is missing: it is not visible here."""
    if not is_store(part.log.place) and not Path(part.log.place).is_dir():
        raise ConfigurationError(
            f"{part.log.place} existed when the read was planned, and is missing here: either"
            " the log was deleted in the meantime, or this machine does not share the"
            " journal's folder"
        ) from None
