"""The streaming audit: an alert within seconds of a missed deadline, while the journal is written.

    events = spark.readStream.format("requite").load("journal")
    alerts(events).writeStream...

Each request is a case (`case.py`), kept in Spark's state store from its acceptance until
some time after its end. Timers are of processing time: of a request that got lost no further event
comes, and event time stands still where events do. So clocks matter: the driver's is compared with
the deadlines that brokers and clients wrote, and what it is ahead or behind, alerts are early or
late. A false alert is taken back by ENDED_LATE.

An old journal is read at once, or, with `maxBytesPerTrigger`, bit by bit: then everything in it is
overdue, and what ended in a later bit is alerted first and taken back then. For verdicts on
the past there is the audit (`requite.spark.audit`).
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
from requite.spark.vocabulary import BROKER, CLIENT
from requite.spark.watch.case import KINDS, Alert, Case, Patience, Told, instant

_INSTANTS: Final = ("ts", "deadline")


def alerts(events: DataFrame, patience: Patience = Patience()) -> DataFrame:  # noqa: B008
    """Return the alerts for a stream of events (`schemas.BRONZE_EVENTS`): `schemas.ALERTS`.

    Needs RocksDB for the state store, as `requite.spark.session.configure` sets it, and a trigger
    with an interval: a batch comes in each, with or without events. (With `availableNow` it would
    not end before the last timer.) Output mode `append`.
    """
    told = events.where(
        F.col("request_id").isNotNull()
        & F.col("role").isin(BROKER, CLIENT)
        & F.col("kind").isin(*KINDS)
    ).select(
        "request_id",
        "service",
        *(F.unix_micros(name).alias(name) for name in _INSTANTS),
        *(name for name in Told._fields if name not in _INSTANTS),
    )
    return told.groupBy("request_id").transformWithState(
        RequestWatch(patience), schemas.ALERTS, "Append", "ProcessingTime"
    )


class RequestWatch(StatefulProcessor):
    """Keeps a case per request: takes in its events, and looks at it when its time has come."""

    def __init__(self, patience: Patience = Patience()) -> None:  # noqa: B008 - frozen
        self._patience = patience

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the case as text."""
        self._handle = handle
        self._state = handle.getValueState("case", "case string")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: TimerValues,
    ) -> Iterator[Row]:
        """Take in events of one request; alerts are raised by timers alone."""
        case = self._load()
        armed = case.wake_at
        for row in rows:
            case.add(_told(row), row.service)
        case.heard(_now(timerValues), self._patience)
        if case.wake_at:
            self._keep(case, armed)
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
        """Look at a request: raise an alert, or forget it."""
        case = self._load()
        if expiredTimerInfo.getExpiryTimeInMs() != case.wake_at:
            return
        now = _now(timerValues)
        alert = case.check(now, self._patience)
        if case.wake_at:
            self._keep(case)
        else:
            self._state.clear()
        if alert is not None:
            yield _row(key[0], alert, case, now, self._patience)

    def _load(self) -> Case:
        value = self._state.get()
        return Case() if value is None else Case.parse(value[0])

    def _keep(self, case: Case, armed: int = 0) -> None:
        """Keep a case, and one timer for it; `armed` is the one that it has.

        Each of these calls is an exchange with the JVM: together they are most of what a request
        costs here, about a millisecond of processor time.
        """
        self._state.update((case.text(),))
        if case.wake_at != armed:
            if armed:
                self._handle.deleteTimer(armed)
            self._handle.registerTimer(case.wake_at)


def _told(row: Row) -> Told:
    return Told(*(row[name] for name in Told._fields))


def _now(times: TimerValues) -> int:
    """Return the time of the batch, in microseconds."""
    return times.getCurrentProcessingTimeInMs() * 1000


def _row(request_id: str, alert: Alert, case: Case, now: int, patience: Patience) -> Row:
    due = case.deadline(patience)
    return Row(
        request_id=request_id,
        service=case.service,
        kind=alert.value,
        deadline=None if due is None else instant(due),
        noticed_at=instant(now),
        evidence=case.evidence(),
    )
