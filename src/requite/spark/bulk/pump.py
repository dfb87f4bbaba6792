"""Sends the requests of one task within a window, and gives every row an outcome.

The pump runs on the event loop. The task's thread hands over windows of rows and waits for each:
one call and one future per window cross between the threads.

    waiting ──► out ──► settled: the row has its outcome
                 ▲ │
                 │ ▼  a status that is retried
               pausing

A service that is down costs one timeout. When a request ends unanswered and the service answered
nothing else while it was in flight, the pump sends no new rows. The requests in flight decide: if
one is answered, sending resumes. If none is, and one of them provably did not run, or there were
many of them, the rest of the job is not sent (`ServiceState.down_error`).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from concurrent.futures import Future
from typing import Final

from requite.client import AsyncClient
from requite.client.call_arguments import CallBody
from requite.errors import CallError, CallTimeout, NoService, TransportError
from requite.request import Reply
from requite.shell import clock
from requite.spark.bulk.outcome import Outcome
from requite.spark.bulk.plan import Plan
from requite.spark.bulk.service_state import ServiceState
from requite.spark.typed.refused import data_of, status_of

# Bytes in flight; far less than what a connection buffers before it is closed
# (`LinkLimits.output_size_max`). A larger body is sent alone.
_BYTES_MAX: Final = 16 << 20
# This many unanswered requests in a row mean that the service is down, even if all may have run.
_UNPROVEN_MIN: Final = 32
_UNANSWERED: Final = (CallTimeout, NoService, TransportError)


class Window:
    """The rows of a batch that are sent together; `done` when each has its outcome.

    `rows` are the row numbers to send. The four lists are the batch's, one item per row of it.
    """

    __slots__ = ("bodies", "done", "ids", "left", "outcomes", "rows", "sizes")

    def __init__(
        self,
        rows: list[int],
        bodies: list[CallBody],
        ids: list[bytes],
        sizes: list[int],
        outcomes: list[Outcome | None],
    ) -> None:
        self.rows = rows
        self.bodies = bodies
        self.ids = ids
        self.sizes = sizes
        self.outcomes = outcomes
        self.left = len(rows)
        self.done: Future[None] = Future()
        if not rows:
            self.done.set_result(None)


class Row:
    """A row being sent, which receives the outcomes of its calls for its pump (a `Taker`).

    `requests` counts the requests sent for the row; `attempts`, `may_have_run` and `error` sum up
    their outcomes.
    """

    __slots__ = (
        "attempts", "began_at", "error", "may_have_run", "number", "pump", "requests", "sent_at",
        "size", "window",
    )  # fmt: skip

    def __init__(self, pump: Pump, window: Window, number: int) -> None:
        self.pump = pump
        self.window = window
        self.number = number
        self.size = window.sizes[number]
        self.requests = 0
        self.attempts = 0
        self.may_have_run = False
        self.began_at = self.sent_at = 0.0
        self.error: CallError | None = None

    def done(self) -> bool:
        """Whether the present call has ended or was cancelled."""
        return self not in self.pump.out

    def set_result(self, reply: Reply) -> None:
        """Take the reply."""
        self.pump.answered(self, reply)

    def set_exception(self, error: CallError) -> None:
        """Take the error."""
        self.pump.failed(self, error)

    def failure(self, now: float, why: str | None = None) -> Outcome:
        """Return the outcome of a row without a reply."""
        assert self.error is not None
        return Outcome(
            None,
            status_of(self.error),
            self.attempts,
            now - self.began_at,
            self.may_have_run,
            why or str(self.error),
            data_of(self.error),
        )


class Pump:
    """Keeps up to `plan.window` requests of a task in flight, across windows and batches."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: AsyncClient,
        plan: Plan,
        service_state: ServiceState,
    ) -> None:
        self._loop = loop
        self._client = client
        self._plan = plan
        self._service_state = service_state
        self._timeout_s = plan.patience_s
        self._waiting: deque[Row] = deque()
        self._to_retry: deque[Row] = deque()  # rows whose retry pause is over
        self._pausing: dict[Row, asyncio.TimerHandle] = {}
        self.out: set[Row] = set()
        self._bytes_out = 0
        self._suspicion: CallError | None = None  # why no new rows are sent for now
        self._rate_timer: asyncio.TimerHandle | None = None  # when the rate allows the next one
        self._is_proven = False  # that the service was down
        self._filling = False
        self._stopped = False

    # --- for the task's thread --------------------------------------------------------------------
    def offer(self, window: Window) -> None:
        """Queue rows; they are sent as the window permits."""
        if window.rows:
            self._loop.call_soon_threadsafe(self._take, window)

    def stop(self) -> None:
        """Send nothing more, and cancel the requests in flight: the task has ended."""
        self._loop.call_soon_threadsafe(self._cancel)

    # --- on the loop ------------------------------------------------------------------------------
    def _take(self, window: Window) -> None:
        if not self._stopped:
            self._waiting.extend(Row(self, window, number) for number in window.rows)
            self._fill()

    def _cancel(self) -> None:
        self._stopped = True
        self._waiting.clear()
        self._to_retry.clear()
        for timer in self._pausing.values():
            timer.cancel()
        self._pausing.clear()
        if self._rate_timer is not None:
            self._rate_timer.cancel()
        out, self.out = self.out, set()  # so that their outcomes are ignored
        for row in out:
            self._client.cancel_for(row)

    def _fill(self) -> None:
        """Send rows as far as window, bytes and rate permit."""
        if self._service_state.down_error is not None:
            self._refuse(self._service_state.down_error)
            return
        out, limit, bucket = self.out, self._plan.window, self._service_state.bucket
        while len(out) < limit:
            rows = self._to_retry or self._waiting
            if not rows or (rows is self._waiting and self._suspicion is not None):
                return
            if out and self._bytes_out + rows[0].size > _BYTES_MAX:
                return
            if bucket is not None and (wait_s := bucket.take(clock.now())):
                self._fill_in(wait_s)
                return
            self._send(rows.popleft())

    def _fill_up(self) -> None:
        """Fill the window once per turn of the loop, however many requests ended in it."""
        self._filling = False
        self._fill()

    def _fill_in(self, wait_s: float) -> None:
        if self._rate_timer is None:
            self._rate_timer = self._loop.call_later(wait_s, self._fill_now)

    def _fill_now(self) -> None:
        self._rate_timer = None
        self._fill()

    def _send(self, row: Row) -> None:
        window, number = row.window, row.number
        row.sent_at = clock.now()
        if not row.requests:
            row.began_at = row.sent_at
        row.requests += 1
        self._bytes_out += row.size
        self.out.add(row)
        try:
            self._client.start_for(
                row,
                window.bodies[number],
                timeout=self._timeout_s,
                idempotent=self._plan.idempotent,
                idempotency_key=window.ids[number],
            )
        except Exception as error:  # a defect; the settings were checked before
            self._end(row)
            if not window.done.done():
                window.done.set_exception(error)

    # --- outcomes from the client -----------------------------------------------------------------
    def answered(self, row: Row, reply: Reply) -> None:
        """Take the reply to a row's request."""
        now = self._end(row)
        self._record_answer(now)
        attempts = row.attempts + reply.attempts
        self._settle(row, Outcome(reply.body, "OK", attempts, now - row.began_at, True, None))

    def failed(self, row: Row, error: CallError) -> None:
        """Take the error of a row's request."""
        now = self._end(row)
        if self._plan.contract is not None:
            error = self._plan.contract.error_of(error)
        row.error = error
        row.attempts += error.attempts
        row.may_have_run |= error.may_have_executed
        self._judge(row, error, now)
        if self._may_repeat(row, error):
            pause_s = self._plan.connection.retry.delay_s(row.requests, random.random)
            self._pausing[row] = self._loop.call_later(pause_s, self._end_pause, row)
        else:
            self._settle(row, row.failure(now))
        self._maybe_lose()

    def _end(self, row: Row) -> float:
        self.out.discard(row)
        self._bytes_out -= row.size
        if not self._filling:
            self._filling = True
            self._loop.call_soon(self._fill_up)
        return clock.now()

    def _settle(self, row: Row, outcome: Outcome) -> None:
        window = row.window
        window.outcomes[row.number] = outcome
        window.left -= 1
        if not window.left and not window.done.done():
            window.done.set_result(None)

    # --- retries ----------------------------------------------------------------------------------
    def _may_repeat(self, row: Row, error: CallError) -> bool:
        """Whether a row is retried: never one that may have run and is not idempotent."""
        plan = self._plan
        return (
            status_of(error) in plan.retry_on
            and row.requests < plan.connection.retry.attempts
            and (plan.idempotent or not row.may_have_run)
        )

    def _end_pause(self, row: Row) -> None:
        del self._pausing[row]
        self._to_retry.append(row)
        self._fill()

    # --- a service that is down -------------------------------------------------------------------
    def _record_answer(self, now: float) -> None:
        self._service_state.record_answer(now)
        self._suspicion = None
        self._is_proven = False

    def _judge(self, row: Row, error: CallError, now: float) -> None:
        """Decide whether an error is an answer of the service or a sign that it is down.

        A request that provably did not run proves that the service is down. One that may have run
        may hang in its handler, which says nothing about other rows.
        """
        if not isinstance(error, _UNANSWERED):
            self._record_answer(now)
        elif self._plan.give_up and self._service_state.answered_at <= row.sent_at:
            self._service_state.unanswered += 1
            self._suspicion = error
            self._is_proven |= not error.may_have_executed

    def _maybe_lose(self) -> None:
        if self._suspicion is None or self.out or self._pausing or self._to_retry:
            return
        if self._is_proven or self._service_state.unanswered >= max(
            self._plan.window, _UNPROVEN_MIN
        ):
            self._service_state.down_error = self._suspicion
        self._suspicion = None

    def _refuse(self, error: CallError) -> None:
        """End rows without sending them: each would only wait for its timeout."""
        while self._to_retry:
            row = self._to_retry.popleft()
            self._settle(row, row.failure(clock.now()))
        n = self._service_state.unanswered
        why = f"not sent: the {n} requests before it had no reply; the last error: {error}"
        outcome = Outcome(None, type(error).__name__, 0, 0.0, False, why)
        while self._waiting:
            self._settle(self._waiting.popleft(), outcome)
