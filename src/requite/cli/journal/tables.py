"""The events of a journal as Arrow tables, for Parquet.

Uses the decoder of the Spark source, without Spark: requires pyarrow and numpy (extra `spark`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from requite.errors import LogGone
from requite.journal.folder import LogFolder, find_logs
from requite.spark.decoding.decoder import NAMES, Batch, Decoder, Unread, arrow_schema
from requite.spark.decoding.rows import SegmentSource
from requite.storage import Damage, LogReader
from requite.storage.layout import RECORD_HEADER_SIZE

# Rows per row group of the Parquet file; each row group has its own statistics.
ROWS_PER_TABLE: Final = 1 << 18


def schema() -> Any:
    """Return the columns of the tables."""
    return arrow_schema(NAMES)


def tables(directory: str) -> Iterator[Any]:
    """Yield the events of a journal, decodable or not. Raises `ConfigurationError`."""
    batches: list[Batch] = []
    for log in find_logs(directory):
        for batch in _batches(log):
            batches.append(batch)
            if sum(each.num_rows for each in batches) >= ROWS_PER_TABLE:
                yield pa.Table.from_batches(batches)
                batches = []
    if batches:
        yield pa.Table.from_batches(batches)


def flaws_of(table: Any) -> Counter[str]:
    """Count the rows that could not be decoded, by reason."""
    reasons = table.filter(table["raw"].is_valid())["reason"]
    return Counter(reason or "" for reason in reasons.to_pylist())


def _batches(log: LogFolder) -> Iterator[Batch]:
    reader = LogReader(log.place)
    for info in reader.segments():
        decoder = Decoder(SegmentSource(log.log, log.role, log.name, info.number), NAMES)
        try:
            for item in reader.read(info.number):
                if isinstance(item, Damage):
                    yield from decoder.skip(Unread(item.offset, item.raw, item.reason))
                else:
                    yield from decoder.feed(item.payload, item.offset + RECORD_HEADER_SIZE)
        except LogGone:  # deleted by retention in the meantime
            continue
        finally:
            yield from decoder.finish()
