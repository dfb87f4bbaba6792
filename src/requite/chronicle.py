"""The history of requests as rows: engines append them, a journal takes them.

An engine with a `Chronicle` records every request. A request without incidents, the usual case,
costs one tuple when it ends: a *span* with three instants. Everything else is recorded as *event
rows*, one per event.

    broker   accepted    dispatched   answered      (and queued, if not dispatched at once)
    client   accepted    sent         answered
    worker   delivered   started      finished

A span is written when its request ends, so a killed process would lose all requests in flight.
Therefore engines sweep their tables every `SWEEP_EVERY_S` and record the beginning of each request
that has been in flight since the last sweep.

This module does no I/O: `requite.journal` takes the rows in a separate thread. Under load the
engine's thread first *presses* them into columns, `PRESS_ROWS` at a time: reading the rows on
another core costs more than pressing them here (2 us of processor time per request against 0.8, in
a broker with 64 requests in flight).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from math import inf
from typing import Any, Final, NamedTuple, Protocol, TypeVar

SWEEP_EVERY_S: Final = 0.1
ROWS_MAX: Final = 1 << 20  # rows that may wait for the journal; 70 MB pressed, 300 MB if not
PRESS_ROWS: Final = 512
CALL_ID_SIZE: Final = 16
NO_CALL: Final = bytes(CALL_ID_SIZE)
ORIGIN_SIZE: Final = 8  # the first half of a call id, and the name of a broker, client or worker
NO_INSTANCE: Final = bytes(ORIGIN_SIZE)
# This bit of the first byte is set only in call ids that brokers generate.
MADE_UP: Final = 0x80

NOT_IDEMPOTENT: Final = "not idempotent"
"""The `reason` of an ACCEPTED: the request must not run twice (I11). A span cannot express it."""


class WriterRole(IntEnum):
    """The role of the process that wrote a row; it determines what the instants of a span mean."""

    BROKER = 1
    CLIENT = 2
    WORKER = 3
    DEVICE = 4
    MANAGER = 5  # of a pool


class Kind(IntEnum):
    """The kind of an event. Numbers are on disk (docs/protocols/log-format.md): never reuse one."""

    ACCEPTED = 1  # broker, client: from now on the request must end exactly once
    QUEUED = 2
    DISPATCHED = 3  # broker: given to `worker`, for the `attempt`-th time
    PARTIAL = 4
    ANSWERED = 5  # broker, client: ended, with `outcome`
    EXPIRED = 6  # ended: its deadline passed
    CANCELLED = 7  # ended: its caller cancelled it or disconnected
    REDELIVERED = 8  # broker: taken back from `worker`, and queued again
    REFUSED = 9  # broker: never accepted
    WORKER_JOINED = 10
    WORKER_LOST = 11
    WORKER_DRAINED = 12
    HEARTBEAT = 13  # broker: how long `worker` has been silent (`value`, seconds), busy, capacity
    DROPPED = 14  # the journal lost `value` rows
    SENT = 15  # client: an attempt was sent
    DELIVERED = 16  # worker: the request arrived
    STARTED = 17  # worker: its handler runs
    FINISHED = 18  # worker: its handler has ended, with `outcome`
    ABANDONED = 19  # worker: no caller waits for the request any more
    OPENED = 20  # the journal was opened
    CLOSED = 21  # the journal was closed properly
    REQUIRED = 22  # manager: a key must have a group
    RELEASED = 23  # manager: an idle key's group gets no more requests
    ADMITTED = 24  # a principal may use a verb on a name, from now on
    DENIED = 25  # a principal may not
    RIGHTS = 26  # the rights of a principal have changed


Row = TypeVar("Row")

ENDS: Final = frozenset({Kind.ANSWERED, Kind.EXPIRED, Kind.CANCELLED})

NO_OUTCOME: Final = 255


class Span(NamedTuple):
    """A request without incidents. Instants are on the engine's clock.

    `call_id` identifies the request in all journals: 8 bytes for its client, then a number.
    `worker` is empty in the client's rows. Sizes are bytes of all body frames.
    """

    first_at: float
    second_at: float
    third_at: float
    deadline: float
    call_id: bytes
    service: bytes
    worker: bytes
    request_size: int
    reply_size: int


class EventRow(NamedTuple):
    """One event. Fields that do not apply have their defaults.

    `value`: ACCEPTED: the deadline (an instant, `inf`: none); HEARTBEAT: seconds of silence;
    WORKER_LOST: seconds of silence; DROPPED: the number of rows. `busy` and `capacity`: a worker's.
    `outcome` is a `Status`; `error` the class of the error that a caller gets. ADMITTED, DENIED and
    RIGHTS: `worker` is the principal, `error` the verb, `service` the name.
    """

    at: float
    kind: int
    call_id: bytes = NO_CALL
    service: bytes = b""
    worker: bytes = b""
    attempt: int = 0
    outcome: int = NO_OUTCOME
    error: str = ""
    reason: str = ""
    size: int = 0
    value: float = inf
    busy: int = 0
    capacity: int = 0


SpanRow = tuple[float, float, float, float, bytes, bytes, bytes, int, int]
"""The fields of `Span`, in order: engines append plain tuples, which cost half as much."""


class Pressed(Protocol):
    """Spans pressed into columns."""

    @property
    def rows(self) -> int:
        """The number of spans."""


class Chronicle:
    """Rows waiting for the journal. Bind `spans.append` and `event_rows.append` once.

    `press` turns spans into columns; None: spans stay rows. `lock` serialises threads that take
    rows; appending needs no lock.
    """

    __slots__ = ("_lock", "_press", "dropped", "event_rows", "pressed", "spans")

    def __init__(
        self,
        press: Callable[[list[SpanRow]], Pressed] | None = None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.spans: list[SpanRow] = []
        self.pressed: list[Pressed] = []
        self.event_rows: list[EventRow] = []
        self.dropped = 0
        self._press = press
        self._lock = nullcontext() if lock is None else lock

    def press(self) -> None:
        """Press the spans; engines call it when there are `PRESS_ROWS` of them."""
        if self._press is None:
            return
        with self._lock:
            if spans := _take(self.spans):
                self.pressed.append(self._press(spans))

    @property
    def waiting(self) -> int:
        """How many rows wait for the journal."""
        pressed = sum(each.rows for each in list(self.pressed))
        return pressed + len(self.spans) + len(self.event_rows)

    def trim(self) -> None:
        """Drop all rows if more than `ROWS_MAX` wait; count them in `dropped`."""
        if self.waiting > ROWS_MAX:
            pressed, spans, event_rows = self.take()
            self.dropped += len(spans) + len(event_rows) + sum(each.rows for each in pressed)

    def take(self) -> tuple[list[Pressed], list[SpanRow], list[EventRow]]:
        """Remove and return all rows, oldest first: pressed spans, other spans, event rows."""
        with self._lock:
            return _take(self.pressed), _take(self.spans), _take(self.event_rows)


def _take(rows: list[Row]) -> list[Row]:
    """Remove and return the rows; each step is atomic, so a row appended meanwhile stays."""
    count = len(rows)
    taken = rows[:count]
    del rows[:count]
    return taken
