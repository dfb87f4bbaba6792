"""Builds events of example journals as DataFrames.

    builder = EventBuilder()
    broker, worker = builder.broker(), builder.worker()
    broker.add(0.0, "accepted", 1, deadline=5.0)
    broker.add(0.2, "dispatched", 1, worker=worker.name, attempt=1)
    broker.add(0.5, "answered", 1, worker=worker.name, attempt=1, outcome="OK")
    events = builder.frame(spark)

Instants are seconds after `NOON`. Calls are numbers, of client `c1` unless the id comes from
`call_id`. `builder.call(...)` adds all events of a call without incidents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from requite.spark import schemas

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)

Event = dict[str, Any]


def instant(seconds: float) -> datetime:
    """Return the instant that is `seconds` after `NOON`."""
    return NOON + timedelta(microseconds=round(seconds * 1e6))


def instance(name: str) -> str:
    """Return the name of a process as the journal has it: eight bytes in hexadecimal."""
    return name.encode()[:8].ljust(8, b"\0").hex()


def rows_table(rows: list[dict[str, Any]], schema: str) -> pa.Table:
    """Return rows as a table of a declared schema; missing columns are null."""
    arrow = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")
    columns = [
        pa.array([row.get(column.name) for row in rows], type=column.type) for column in arrow
    ]
    return pa.Table.from_arrays(columns, schema=arrow)


def rows_frame(spark: SparkSession, rows: list[dict[str, Any]], schema: str) -> DataFrame:
    """Return rows as a DataFrame of a declared schema; missing columns are null."""
    return spark.createDataFrame(rows_table(rows, schema), schema=StructType.fromDDL(schema))


def write_rows(folder: Path, rows: list[dict[str, Any]], schema: str) -> None:
    """Add a Parquet file to a folder, without a job of Spark.

    The file appears as a whole, so a stream never reads a part of it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "_draft"
    pq.write_table(rows_table(rows, schema), draft)
    draft.rename(folder / f"part-{uuid4()}.parquet")


@dataclass
class Log:
    """A log of the journal: the events of a process, in order."""

    role: str
    name: str
    events: list[Event]
    segment: int = 0
    count: int = 0

    @property
    def log(self) -> str:
        return f"{self.role}-{self.name}"

    def add(self, at: float, kind: str, call: int | str | None = None, **columns: Any) -> Event:
        """Add an event. `deadline` is in seconds after `NOON`; other columns as in the schema."""
        ts = instant(at)
        request_id = call_id(call) if isinstance(call, int) else call
        event: Event = {
            "schema_version": schemas.SCHEMA_VERSION,
            "log": self.log,
            "segment": self.segment,
            "byte_offset": 64 + 8 * self.count,
            "seq": self.count,
            "ts": ts,
            "kind": kind,
            "request_id": request_id,
            "service": "echo",
            "client": request_id[:16] if request_id else None,
            "broker": self.name if self.role == "broker" else None,
            "worker": self.name if self.role == "worker" else None,
            "date": ts.date(),
            "role": self.role,
        }
        deadline = columns.pop("deadline", None)
        event |= columns | {"deadline": None if deadline is None else instant(deadline)}
        self.count += 1
        self.events.append(event)
        return event


def call_id(number: int, client: str = "c1") -> str:
    """Return the request id of a client's call."""
    return f"{instance(client)}{number:016x}"


@dataclass
class EventBuilder:
    """Builds the events of a journal of several logs."""

    events: list[Event] = field(default_factory=list)

    def broker(self, name: str = "b1") -> Log:
        """Start the log of a broker."""
        return self._log("broker", name)

    def client(self, name: str = "c1") -> Log:
        """Start the log of a client."""
        return self._log("client", name)

    def worker(self, name: str = "w1") -> Log:
        """Start the log of a worker."""
        return self._log("worker", name)

    def manager(self, name: str = "m1") -> Log:
        """Start the log of a pool's manager."""
        return self._log("manager", name)

    def _log(self, role: str, name: str) -> Log:
        return Log(role, instance(name), self.events)

    def call(
        self,
        number: int | str,
        at: float,
        *,
        broker: Log | None = None,
        client: Log | None = None,
        worker: Log | None = None,
        queued_s: float = 0.0,
        took_s: float = 0.01,
        timeout_s: float = 5.0,
        outcome: str = "OK",
        at_worker: str | None = None,
        **columns: Any,
    ) -> None:
        """Add the events of a call without incidents to the given logs."""
        start, end = at + queued_s, at + queued_s + took_s
        name = worker.name if worker is not None else at_worker or instance("w1")
        given: dict[str, Any] = {"attempt": 1, "worker": name, **columns}
        if client is not None:
            client.add(at, "accepted", number, deadline=at + timeout_s, **columns)
            client.add(at, "sent", number, attempt=1, **columns)
        if broker is not None:
            broker.add(at, "accepted", number, deadline=at + timeout_s, bytes=10, **columns)
            if queued_s:
                broker.add(at, "queued", number, **columns)
            broker.add(start, "dispatched", number, **given)
        if worker is not None:
            worker.add(start, "delivered", number, **given)
            worker.add(start, "started", number, **given)
            worker.add(end, "finished", number, outcome=outcome, **given)
        if broker is not None:
            broker.add(end, "answered", number, outcome=outcome, bytes=12, **given)
        if client is not None:
            client.add(end, "answered", number, attempt=1, outcome=outcome, **columns)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return all events, with the columns of `bronze_events`."""
        return rows_frame(spark, self.events, schemas.BRONZE_EVENTS)

    def source_frame(self, spark: SparkSession, damaged: list[Event] | None = None) -> DataFrame:
        """Return all events and the `damaged` rows, with the columns of `format("requite")`."""
        return rows_frame(spark, [*self.events, *(damaged or [])], schemas.SOURCE)

    def write(self, folder: Path) -> None:
        """Move all events into a folder of Parquet files, with the columns of `frame`."""
        write_rows(folder, self.events, schemas.BRONZE_EVENTS)
        self.events.clear()

    def write_source(self, folder: Path, damaged: list[Event] | None = None) -> None:
        """Move all events into a folder of Parquet files, with the columns of `source_frame`."""
        write_rows(folder, [*self.events, *(damaged or [])], schemas.SOURCE)
        self.events.clear()


def damaged_row(log: Log, offset: int, reason: str = "crc", **columns: Any) -> Event:
    """Return an undecodable row of the source."""
    place = {"log": log.log, "segment": log.segment, "byte_offset": offset, "role": log.role}
    return {**place, "raw": b"\xff" * 8, "reason": reason, **columns}


def collect(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as dicts; instants are aware, in UTC."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


def schema_names(schema: str) -> list[str]:
    """Return the names of the columns of a declared schema, in order."""
    return [column.split()[0] for column in schema.split(",")]
