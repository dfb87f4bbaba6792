"""What happened to requests, as rows: engines append them, a journal takes them away.

An engine that is given a `Chronicle` writes down what becomes of each request. The uneventful ones,
nearly all, cost it one tuple each, when they end: a *span*, which holds the three instants of a
life without incidents. Whatever differs from that is told by *event rows*, one per event.

    broker   accepted    dispatched   answered      (and queued, if not dispatched at once)
    client   accepted    sent         answered
    worker   delivered   started      finished

A span is written at its end, so a process that is killed would take the beginnings of all that
was under way with it. Therefore engines look at their tables every `SWEEP_EVERY_S`, and write down
the beginning of what has been under way since the last look.

There is no I/O in here: who keeps a journal takes the rows (`requite.journal`), in a thread of its
own. Under load the engine's thread first *presses* them into columns, `PRESS_ROWS` at a time: rows
that wait until another core reads them cost more there than they do here (2 us of processor time
per request against 0.8, in a broker with 64 requests in flight).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from math import inf
from typing import Any, Final, NamedTuple, Protocol, TypeVar

SWEEP_EVERY_S: Final = 0.1
ROWS_MAX: Final = 1 << 20  # what may wait for the journal; 70 MB pressed, 300 MB if not
PRESS_ROWS: Final = 512
CALL_ID_SIZE: Final = 16
NO_CALL: Final = bytes(CALL_ID_SIZE)
ORIGIN_SIZE: Final = 8  # the first half of a call id, and the name of a broker, client or worker
NO_INSTANCE: Final = bytes(ORIGIN_SIZE)
# This bit of the first byte is set in the call ids that brokers make up, and in no other.
MADE_UP: Final = 0x80

NOT_IDEMPOTENT: Final = "not idempotent"
"""The `reason` of an ACCEPTED: the request must not run twice (I11). It is never part of a span,
which has no room to say so."""


class WriterRole(IntEnum):
    """Who tells what happened; it decides what the instants of a span mean."""

    BROKER = 1
    CLIENT = 2
    WORKER = 3
    DEVICE = 4
    MANAGER = 5  # of a pool


class Kind(IntEnum):
    """What happened. Numbers are on disk (docs/protocols/log-format.md): never reuse one."""

    ACCEPTED = 1  # broker, client: from here on it has to end exactly once
    QUEUED = 2
    DISPATCHED = 3  # broker: given to `worker`, for the `attempt`-th time
    PARTIAL = 4
    ANSWERED = 5  # broker, client: ended, with `outcome`
    EXPIRED = 6  # ended: its deadline passed
    CANCELLED = 7  # ended: its caller gave it up, or left
    REDELIVERED = 8  # broker: taken back from `worker`, and queued again
    REFUSED = 9  # broker: never accepted
    WORKER_JOINED = 10
    WORKER_LOST = 11
    WORKER_DRAINED = 12
    HEARTBEAT = 13  # broker: how long `worker` has been silent (`value`, seconds), busy, capacity
    DROPPED = 14  # the journal lost `value` rows
    SENT = 15  # client: a try has left
    DELIVERED = 16  # worker: it has come
    STARTED = 17  # worker: its handler runs
    FINISHED = 18  # worker: its handler has ended, with `outcome`
    ABANDONED = 19  # worker: nobody waits for it any more
    OPENED = 20  # the journal begins
    CLOSED = 21  # the journal ends in good order
    REQUIRED = 22  # manager: a key is to have a group
    RELEASED = 23  # manager: nobody has asked for it for so long that it gets no more requests


Row = TypeVar("Row")

ENDS: Final = frozenset({Kind.ANSWERED, Kind.EXPIRED, Kind.CANCELLED})

NO_OUTCOME: Final = 255


class Span(NamedTuple):
    """A request whose life had no incidents. Instants are on the clock of the engine.

    `call_id` names the request everywhere: 8 bytes for its client, then a number. `worker` is empty
    in the client's own rows. Sizes are bytes of all body frames.
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
    """One event. What does not apply is left at its default.

    `value`: ACCEPTED: the deadline (an instant, `inf`: none); HEARTBEAT: seconds of silence;
    WORKER_LOST: likewise; DROPPED: the number of rows. `busy` and `capacity` belong to a worker.
    `outcome` is a `Status`; `error` the class of the error that a caller gets.
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
    """Spans that have been made smaller."""

    @property
    def rows(self) -> int:
        """How many."""


class Chronicle:
    """Rows that wait to be taken. Bind `spans.append` and `event_rows.append` once.

    `press` makes spans smaller; None: they stay as they are. `lock` keeps two threads from taking
    rows at the same time; appending needs none.
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
        """Make the spans smaller; for the engine, when there are `PRESS_ROWS` of them."""
        if self._press is None:
            return
        with self._lock:
            if spans := _take(self.spans):
                self.pressed.append(self._press(spans))

    @property
    def waiting(self) -> int:
        """How many rows wait to be taken."""
        pressed = sum(each.rows for each in list(self.pressed))
        return pressed + len(self.spans) + len(self.event_rows)

    def trim(self) -> None:
        """Forget everything when nobody has taken rows for too long; count what was lost."""
        if self.waiting > ROWS_MAX:
            pressed, spans, event_rows = self.take()
            self.dropped += len(spans) + len(event_rows) + sum(each.rows for each in pressed)

    def take(self) -> tuple[list[Pressed], list[SpanRow], list[EventRow]]:
        """Take what is there now, oldest first: pressed spans, others, event rows."""
        with self._lock:
            return _take(self.pressed), _take(self.spans), _take(self.event_rows)


def _take(rows: list[Row]) -> list[Row]:
    """Cut off what is there: each step is one operation, so a row appended meanwhile stays."""
    count = len(rows)
    taken = rows[:count]
    del rows[:count]
    return taken
