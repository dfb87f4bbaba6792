"""A running streaming audit: passes alerts to a function, and writes them to a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.streaming.listener import StreamingQueryListener

from requite.spark import schemas
from requite.spark.failures import as_sentences
from requite.spark.watch.alerts import alerts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

Alert: TypeAlias = Mapping[str, Any]

TABLE: Final = "alerts"
_STOP_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0


class Watching:
    """A query that raises alerts for a stream of events, until it is stopped.

    Every `every_s` seconds a batch runs, and `on_alerts` is called with its alerts, if any: rows of
    `schemas.ALERTS` with instants in UTC, in another thread. After a restart from the `checkpoint`
    it may be called with the alerts of the last batch again. With `to`, alerts are written to the
    table `alerts` in that folder, each batch once. `on_batch` is called after each batch with the
    number of rows that it read, in another thread.
    """

    def __init__(
        self,
        events: DataFrame,
        on_alerts: Callable[[Sequence[Alert]], None],
        *,
        checkpoint: Path,
        to: Path | None = None,
        every_s: float = 1.0,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self._on_alerts = on_alerts
        self._to = to
        self._between_batches = Event()
        self._streams = events.sparkSession.streams
        self._listener = None if on_batch is None else _Listener(on_batch)
        if self._listener is not None:
            self._streams.addListener(self._listener)
        writer = alerts(events).writeStream.outputMode("append").foreachBatch(self._take)
        self.query: StreamingQuery = (
            writer.option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:
        found = batch.toArrow()  # once: every action on the batch recomputes it
        if found.num_rows:
            if self._to is not None:
                table = batch.sparkSession.createDataFrame(found, schemas.ALERTS)
                table.coalesce(1).write.mode("overwrite").parquet(self._place(self._to, number))
            self._on_alerts(found.to_pylist())
        self._between_batches.set()

    def _place(self, to: Path, number: int) -> str:
        """Return the folder of a batch; a repeated batch overwrites it."""
        return str(to / TABLE / f"batch={number}")

    def wait(self, until: Event, timeout_s: float = inf) -> None:
        """Wait for an event or the time-out.

        Raises the exception that ended the query, if any; a known one as an error of requite.
        """
        end = monotonic() + timeout_s
        while self.query.isActive and (left := end - monotonic()) > 0:
            if until.wait(min(_LOOK_EVERY_S, left)):
                return
        error = self.query.exception()
        if error is not None:
            with as_sentences():
                raise error

    def stop(self) -> None:
        """Stop between two batches.

        Spark interrupts its thread to stop a query. During a call to Python, the interrupt causes a
        stack overflow in `StreamExecution.isInterruptionException`, so wait for the end of a batch.
        """
        self._between_batches.clear()
        if self.query.isActive:
            self._between_batches.wait(_STOP_S)
        self.query.stop()
        if self._listener is not None:
            self._streams.removeListener(self._listener)


class _Listener(StreamingQueryListener):
    """Reports the rows of each batch of the query."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self._on_batch = on_batch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report a batch."""
        self._on_batch(event.progress.numInputRows)

    def onQueryIdle(self, event: object) -> None:
        """Do nothing: no batch has run."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: `wait` raises the exception."""
