"""`Event`: one thing that happened, as the pipeline's tables and the command show it."""

from __future__ import annotations

import builtins
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    """One event. The fields are the columns of `requite.spark.schemas.SOURCE`, in order.

    What does not apply is None. `raw` is None but for what does not decode: then `reason` says why,
    and `kind` is None, or `unknown:N`. `segment` and `byte_offset` say where the event is in its
    `log`, and tell it from every other one; `seq` gives the order in which it was written.
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
        """Return what applies, for JSON: times in ISO 8601, `raw` in hexadecimal."""
        return {
            name: _plain(value)
            for name, value in zip(self._fields, self, strict=True)
            if value is not None
        }


def from_us(wall_us: int | None) -> datetime | None:
    """Return the time of an instant in µs since 1970, in UTC."""
    return None if wall_us is None else _EPOCH + timedelta(microseconds=wall_us)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, builtins.bytes) else value
