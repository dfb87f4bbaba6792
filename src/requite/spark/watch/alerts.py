"""The streaming audit: an alert within seconds of a missed deadline, while the journal is written.

    events = spark.readStream.format("requite").load("journal")
    alerts(events).writeStream...

The state of a request (`watched_request.py`) is in Spark's state store from its acceptance until
some time after its end. Timers use processing time: a lost request has no further events, and event
time does not advance without events. So clocks matter: the driver's clock is compared with the
deadlines of brokers and clients, and alerts are early or late by the difference. ENDED_LATE revokes
a false alert.

An old journal is read at once or, with `maxBytesPerTrigger`, in parts: then everything in it is
overdue, and a request that ended in a later part raises an alert that is revoked then. For verdicts
on the past, use the audit (`requite.spark.audit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from requite.spark import schemas
from requite.spark.watch.watched_request import (
    KINDS,
    Alert,
    Patience,
    WatchedEvent,
    WatchedRequest,
    instant,
)
from requite.story.vocabulary import BROKER, CLIENT

_INSTANTS: Final = ("ts", "deadline")


def alerts(events: DataFrame, patience: Patience = Patience()) -> DataFrame:  # noqa: B008
    """Return the alerts for a stream of events (`schemas.BRONZE_EVENTS`): `schemas.ALERTS`.

    Needs RocksDB as the state store, as set by `requite.spark.session.configure`, and a trigger
    with an interval, which runs batches even without events. (With `availableNow` the query would
    not end before the last timer.) Output mode `append`.
    """
    handled = events.where(
        F.col("request_id").isNotNull()
        & F.col("role").isin(BROKER, CLIENT)
        & F.col("kind").isin(*KINDS)
    ).select(
        "request_id",
        "service",
        *(F.unix_micros(name).alias(name) for name in _INSTANTS),
        *(name for name in WatchedEvent._fields if name not in _INSTANTS),
    )
    return handled.groupBy("request_id").transformWithState(
        RequestWatch(patience), schemas.ALERTS, "Append", "ProcessingTime"
    )


class RequestWatch(StatefulProcessor):
    """Keeps the state of each request: adds its events, and checks it when its timer expires."""

    def __init__(self, patience: Patience = Patience()) -> None:  # noqa: B008 - frozen
        self._patience = patience

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the request as text."""
        self._handle = handle
        self._state = handle.getValueState("case", "case string")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: TimerValues,
    ) -> Iterator[Row]:
        """Add events of one request; only timers raise alerts."""
        request = self._load()
        armed = request.wake_at
        for row in rows:
            request.add(_event_of(row), row.service)
        request.update(_now(timerValues), self._patience)
        if request.wake_at:
            self._store(request, armed)
        elif armed:
            self._handle.deleteTimer(armed)
            self._state.clear()
        return iter(())

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Row]:
        """Check a request: raise an alert, or forget it."""
        request = self._load()
        if expiredTimerInfo.getExpiryTimeInMs() != request.wake_at:
            return
        now = _now(timerValues)
        alert = request.check(now, self._patience)
        if request.wake_at:
            self._store(request)
        else:
            self._state.clear()
        if alert is not None:
            yield _row(key[0], alert, request, now, self._patience)

    def _load(self) -> WatchedRequest:
        value = self._state.get()
        return WatchedRequest() if value is None else WatchedRequest.parse(value[0])

    def _store(self, request: WatchedRequest, armed: int = 0) -> None:
        """Store a request and its timer; `armed` is its present timer.

        Each of these calls is a round trip to the JVM: together they are most of the cost of a
        request, about a millisecond of processor time.
        """
        self._state.update((request.text(),))
        if request.wake_at != armed:
            if armed:
                self._handle.deleteTimer(armed)
            self._handle.registerTimer(request.wake_at)


def _event_of(row: Row) -> WatchedEvent:
    return WatchedEvent(*(row[name] for name in WatchedEvent._fields))


def _now(times: TimerValues) -> int:
    """Return the time of the batch, in microseconds."""
    return times.getCurrentProcessingTimeInMs() * 1000


def _row(
    request_id: str, alert: Alert, request: WatchedRequest, now: int, patience: Patience
) -> Row:
    due = request.deadline(patience)
    return Row(
        request_id=request_id,
        service=request.service,
        kind=alert.value,
        deadline=None if due is None else instant(due),
        noticed_at=instant(now),
        evidence=request.evidence(),
    )
