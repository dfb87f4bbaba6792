"""`format("requite")` as a sink: the rows of a DataFrame, or of each micro-batch, become requests.

    orders.writeStream.format("requite").option("url", "mdp://broker:5555/ship")
        .option("body", "order").option("key", "order_id").option("repliesTo", "shipped")
        .option("checkpointLocation", "ckpt").start()

| option | |
|---|---|
| `url`, `service`, `body`, `key`, `keyByPosition`, `timeout`, `window`, `job`, `prefix`, `idempotent`, `giveUp`, `inFlightMax` and `rate` with `taskSlots`, `retryOn` (names with commas between), `retryAttempts`, `messageSizeMax` | as for `requite.spark.call`; `body` and `key` name columns |
| `repliesTo` | a folder to which rows and replies are written as Parquet (`requite.spark.sink.replies`) |
| `onError` | for rows without a reply: `fail` ends the write with an error once all rows have been tried; `keep` writes the row to `repliesTo` only; `ignore` |

The default of `onError` is `keep` with `repliesTo`, and `fail` without: only `ignore` drops
failures silently.

Requests of a stream get their ids from the query (the same after a restart from its checkpoint) and
the row's key. A micro-batch that Spark runs again sends the same ids; with `repliesTo`, a
micro-batch with committed replies sends nothing.
"""  # noqa: E501 - a table

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from requite.errors import ConfigurationError, RequiteError
from requite.spark.bulk.ids import job_id
from requite.spark.bulk.plan import Plan
from requite.spark.bulk.task import call_batches
from requite.spark.sink.options import Options, read_plan
from requite.spark.sink.replies import Part, Replies

_FAIL, _KEEP, _IGNORE = "fail", "keep", "ignore"
_QUERY: Final = "sql.streaming.queryId"  # local properties of tasks, set by Spark
_MICRO_BATCH: Final = "streaming.sql.batchId"


class RowsFailed(RequiteError):
    """Rows of a write ended without a reply; all rows were tried."""


@dataclass
class Written(WriterCommitMessage):
    """A task's report to the driver. `write` names its write or micro-batch."""

    write: str
    rows: int = 0
    failed: int = 0
    first_error: str = ""
    part: Part | None = None


@dataclass(frozen=True)
class Sink:
    """A write: `run` in each task, `commit` or `abort` on the driver."""

    plan: Plan
    replies: Replies | None
    on_error: str

    def run(self, batches: Iterator[pa.RecordBatch], write: str) -> Written:
        """Send each row as a request, and stage the outcomes. Runs in a task."""
        written = Written(write)
        if self.replies is not None and self.replies.has(write):
            for _ in batches:  # it is already committed: nothing is sent again
                pass
            return written
        answered = self._counted(call_batches(batches, self.plan), written)
        if self.replies is not None:
            written.part = self.replies.stage(answered, write)
        else:
            for _ in answered:
                pass
        return written

    def _counted(
        self, batches: Iterator[pa.RecordBatch], written: Written
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:  # a waiting task yields empty batches
                continue
            status = batch.column(self.plan.kept + 1).to_pylist()
            failed = [row for row, one in enumerate(status) if one != "OK"]
            if failed and not written.first_error:
                error = batch.column(self.plan.kept + 5)[failed[0]].as_py()
                written.first_error = f"{status[failed[0]]}: {error}"
            written.rows += len(status)
            written.failed += len(failed)
            yield batch

    def commit(self, messages: list[Written | None]) -> None:
        """Publish the staged files. Runs on the driver when all tasks have succeeded.

        Raises `RowsFailed` if rows have no reply and `onError` is `fail`; nothing is published
        then.
        """
        written = [message for message in messages if message is not None]
        failed = sum(message.failed for message in written)
        if failed and self.on_error == _FAIL:
            self.abort(messages)
            first = next(message.first_error for message in written if message.first_error)
            rows = sum(message.rows for message in written)
            raise RowsFailed(
                f"{failed} of {rows} rows have no reply; the first ended with {first}; to"
                " store such rows, set repliesTo; to ignore them, set onError=ignore"
            )
        if self.replies is not None and written:
            self.replies.publish(written[0].write, [one.part for one in written if one.part])

    def abort(self, messages: list[Written | None]) -> None:
        """Remove the staged files. Failed tasks have no message."""
        for write in {message.write for message in messages if message is not None}:
            if self.replies is not None:
                self.replies.discard(write)


# --- Spark's interface ----------------------------------------------------------------------------
class RequestWriter(DataSourceArrowWriter):
    """Writer of one `DataFrame.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._write = str(uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `Sink.run`."""
        return self._sink.run(iterator, self._write)

    def commit(self, messages: list[Any]) -> None:
        """See `Sink.commit`."""
        self._sink.commit(messages)

    def abort(self, messages: list[Any]) -> None:
        """See `Sink.abort`."""
        self._sink.abort([Written(self._write)])


class RequestStreamWriter(DataSourceStreamArrowWriter):
    """Writer of the micro-batches of one query."""

    def __init__(self, sink: Sink, job: str | None) -> None:
        self._sink = sink
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `Sink.run`; query and micro-batch are in the task's properties."""
        query, batch = _property(_QUERY), _property(_MICRO_BATCH)
        plan = replace(self._sink.plan, job=job_id(self._job or query), scope=batch)
        return replace(self._sink, plan=plan).run(iterator, f"{query}-{batch}")

    def commit(self, messages: list[Any], batchId: int) -> None:
        """See `Sink.commit`."""
        self._sink.commit(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """See `Sink.abort`."""
        self._sink.abort(messages)


def _property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if not value:
        raise RequiteError(f"this is not a task of a streaming query: its properties lack {name}")
    return str(value)


def arrow_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> RequestWriter:
    """Return the writer for `DataFrame.write`. Raises `ConfigurationError`, on the driver."""
    return RequestWriter(_sink(Options(options), schema, overwrite))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> RequestStreamWriter:
    """Return the writer for `DataFrame.writeStream`. Raises `ConfigurationError`."""
    read = Options(options)
    return RequestStreamWriter(_sink(read, schema, overwrite), read.text("job"))


def _sink(options: Options, schema: StructType, overwrite: bool) -> Sink:
    if overwrite:
        raise ConfigurationError("sent requests cannot be overwritten: use mode('append')")
    replies_to = options.text("repliesTo")
    on_error = options.choice("onError", (_FAIL, _KEEP, _IGNORE), _KEEP if replies_to else _FAIL)
    if on_error == _KEEP and not replies_to:
        raise ConfigurationError("onError=keep requires a folder for the rows: set repliesTo")
    plan = read_plan(options, schema)
    options.end()
    replies = Replies(replies_to) if replies_to else None
    if replies is not None:
        replies.check()
    return Sink(plan, replies, on_error)
