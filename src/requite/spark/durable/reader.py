"""The table of requests that Titanic stores: one row per request, with bodies if selected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from requite.errors import LogGone, RemoteViolation, StorageError
from requite.protocols.titanic.records import Answered, Submitted, decode
from requite.spark.durable.survey import RecordLocation, StoredRequest, survey
from requite.spark.source.options import ReadOptions
from requite.storage import LogReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BATCH_ROWS: Final = 4096
BATCH_BYTES: Final = 16 << 20
_ROW_BYTES: Final = 200  # size of a request without bodies, to divide requests among tasks
_BODIES: Final = frozenset({"body", "reply"})


@dataclass
class TitanicShare(InputPartition):
    """The requests that one task reads."""

    requests: tuple[StoredRequest, ...]


class TitanicReader(DataSourceReader):
    """Reads the log without bodies on the driver; tasks read the bodies. Pickled in between."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Divide the requests that are stored now. Raises `ConfigurationError`."""
        requests = survey(Path(self._options.path))
        limit = self._options.partition_bytes
        weight = self._weight if _BODIES & {*self._columns} else lambda _kept: _ROW_BYTES
        return [TitanicShare(tuple(part)) for part in _parts(requests, weight, limit)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the rows of a share; none for the partition that Spark adds to an empty list."""
        requests = partition.requests if isinstance(partition, TitanicShare) else ()
        bodies = _Bodies(Path(self._options.path))
        for part in _parts(requests, self._weight, BATCH_BYTES, BATCH_ROWS):
            yield _batch(part, self._columns, self._options.types, bodies)

    @staticmethod
    def _weight(stored: StoredRequest) -> int:
        return _ROW_BYTES + stored.size


class _Bodies:
    """Reads bodies from the log. If Titanic has moved one, reads the whole log again, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader = LogReader(folder)
        self._moved: dict[bytes, StoredRequest] | None = None

    def of(self, stored: StoredRequest, *, is_reply: bool) -> tuple[bytes | None, str]:
        """Return a body and ""; or None and why it cannot be read ("": the request has none)."""
        place = stored.reply if is_reply else stored.request
        if place is None:
            return None, ""
        try:
            return self._read(place), ""
        except LogGone:
            return self._read_moved(stored.uuid, is_reply=is_reply)
        except (StorageError, RemoteViolation) as error:
            return None, str(error)

    def _read(self, place: RecordLocation) -> bytes:
        entry = decode(self._reader.read_at(place.position))
        return b"".join(entry.frames) if isinstance(entry, Submitted | Answered) else b""

    def _read_moved(self, uuid: bytes, *, is_reply: bool) -> tuple[bytes | None, str]:
        if self._moved is None:
            self._moved = {stored.uuid: stored for stored in survey(self._folder)}
        now = self._moved.get(uuid)
        place = None if now is None else now.reply if is_reply else now.request
        if place is None:
            return None, "the request was closed before it was read"
        try:
            return self._read(place), ""
        except (StorageError, RemoteViolation) as error:
            return None, str(error)


def _parts(
    requests: Sequence[StoredRequest], weight: Any, limit: int, rows_max: int = 1 << 62
) -> Iterator[list[StoredRequest]]:
    """Cut requests into parts of about `limit` bytes and at most `rows_max` rows."""
    part: list[StoredRequest] = []
    size = 0
    for stored in requests:
        part.append(stored)
        size += weight(stored)
        if size >= limit or len(part) >= rows_max:
            yield part
            part, size = [], 0
    if part:
        yield part


def _batch(
    requests: Sequence[StoredRequest],
    columns: Sequence[str],
    types: dict[str, Any],
    bodies: _Bodies,
) -> RecordBatch:
    import pyarrow as pa

    rows = [_row(stored, columns, bodies) for stored in requests]
    arrays = [pa.array([row[name] for row in rows], types[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _row(stored: StoredRequest, columns: Sequence[str], bodies: _Bodies) -> dict[str, Any]:
    row: dict[str, Any] = {
        "uuid": stored.uuid.hex() or None,
        "service": stored.service,
        "state": stored.state,
        "attempts": stored.attempts if stored.uuid else None,
        "submitted_at": stored.submitted_us,
        "answered_at": stored.answered_us,
        "size": None if stored.request is None else stored.request.size,
        "reply_size": None if stored.reply is None else stored.reply.size,
        "reason": stored.reason,
    }
    for name, is_reply in (("body", False), ("reply", True)):
        if name in columns:
            row[name], missing = bodies.of(stored, is_reply=is_reply)
            if missing:
                row["reason"] = f"{name}: {missing}"
    return row
