"""`Event`: one event, as in the pipeline's tables and the command's output."""

from __future__ import annotations

import builtins
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    """One event. The fields are the columns of `requite.spark.schemas.SOURCE`, in order.

    Fields that do not apply are None. `raw` holds bytes that do not decode: then `reason` says why,
    and `kind` is None or `unknown:N`. `segment` and `byte_offset` locate the event in its `log` and
    identify it; `seq` gives the order of writing.
    """

    schema_version: int | None
    log: str
    segment: int
    byte_offset: int
    seq: int | None = None
    ts: datetime | None = None
    kind: str | None = None
    request_id: str | None = None
    service: str | None = None
    client: str | None = None
    broker: str | None = None
    worker: str | None = None
    attempt: int | None = None
    outcome: str | None = None
    error_class: str | None = None
    bytes: int | None = None
    date: date | None = None
    role: str | None = None
    deadline: datetime | None = None
    reason: str | None = None
    gap_s: float | None = None
    busy: int | None = None
    capacity: int | None = None
    dropped: int | None = None
    raw: builtins.bytes | None = None

    def record(self) -> dict[str, Any]:
        """Return the fields that are not None, for JSON: times in ISO 8601, `raw` in hex."""
        return {
            name: _plain(value)
            for name, value in zip(self._fields, self, strict=True)
            if value is not None
        }


def from_us(wall_us: int | None) -> datetime | None:
    """Convert µs since 1970 to a UTC time."""
    return None if wall_us is None else _EPOCH + timedelta(microseconds=wall_us)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, builtins.bytes) else value
