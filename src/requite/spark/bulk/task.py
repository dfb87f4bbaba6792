"""Runs one task of a bulk call: reads batches, sends requests, yields batches with replies.

While one window is in flight, the task reads and queues the next one and yields the one before, so
reading, calling and writing overlap. Rows keep their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from requite.shell import clock
from requite.spark.bulk.client import Shared, process_clients
from requite.spark.bulk.consumer import BEAT_S, Consumer, this_consumer
from requite.spark.bulk.messages import BYTES, Messages
from requite.spark.bulk.outcome import Outcome
from requite.spark.bulk.plan import STATUS, Plan
from requite.spark.bulk.progress import Tally
from requite.spark.bulk.pump import Pump, Window
from requite.spark.bulk.rows import Batch
from requite.spark.bulk.service_state import Job

if TYPE_CHECKING:
    from requite.spark.typed.contract import Contract

_AHEAD: Final = 2  # windows read before waiting for the oldest


class Task(NamedTuple):
    """The identity of a Spark task. `stage` None: outside of Spark, no state is shared."""

    stage: int | None = None
    partition: int = 0
    attempt: int = 0


def this_task() -> Task:
    """Return the Spark task that this process runs."""
    from pyspark import TaskContext  # pyspark-client, on drivers, lacks it

    context = TaskContext.get()
    if context is None:
        return Task()
    return Task(context.stageId(), context.partitionId(), context.attemptNumber())


def call_batches(
    batches: Iterable[pa.RecordBatch], plan: Plan, task: Task | None = None
) -> Iterator[pa.RecordBatch]:
    """Send each row as a request; yield the rows with the added columns.

    Before the first row for a typed service, its description is read and compared.
    """
    task = task or this_task()
    with process_clients().use(plan.connection) as shared:
        service_state = shared.service_states.of(Job(plan.job, task.stage), plan.rate, clock.now())
        consumer = this_consumer()
        messages: Messages = BYTES
        if plan.contract is not None:
            batches = iter(batches)
            if (first := next(batches, None)) is None:
                return
            check = service_state.check = service_state.check or _start_check(shared, plan)
            plan, messages = _agreed(plan, plan.contract)
            empty = Batch(first.slice(0, 0), plan, 0, 0, messages).nothing()
            yield from _until(check, empty, consumer)
            plan, messages = _agreed(plan, check.result())
            batches = chain([first], batches)
        pump = Pump(shared.loop, shared.client, plan, service_state)
        answered = _through(_windows(batches, plan, task.partition, messages), pump, consumer)
        try:
            yield from answered if plan.report_to is None else _with_progress(answered, plan, task)
        finally:
            pump.stop()


def _start_check(shared: Shared, plan: Plan) -> Future[Contract | Outcome]:
    from requite.spark.bulk.typed_messages import checked

    return asyncio.run_coroutine_threadsafe(checked(shared.client, plan), shared.loop)


def _agreed(plan: Plan, found: Contract | Outcome) -> tuple[Plan, Messages]:
    """Return plan and messages for the service as it is now."""
    from requite.spark.bulk.typed_messages import TypedMessages

    assert plan.contract is not None
    if isinstance(found, Outcome):
        return plan, TypedMessages(plan.contract, refusal=found)
    return replace(plan, contract=found), TypedMessages(found)


def _until(
    check: Future[Contract | Outcome], empty: pa.RecordBatch, consumer: Consumer
) -> Iterator[pa.RecordBatch]:
    """Yield empty batches until the check of a typed service is done."""
    while not check.done():
        wait([check], BEAT_S)
        yield empty
        consumer.beat(clock.now())


def _with_progress(
    answered: Iterator[pa.RecordBatch], plan: Plan, task: Task
) -> Iterator[pa.RecordBatch]:
    """Yield batches, and report the number of rows by status to the driver."""
    assert plan.report_to is not None
    tally = Tally(plan.report_to, task.stage or 0, task.partition, task.attempt)
    for batch in answered:
        counts = pc.value_counts(batch.column(plan.kept + STATUS)).to_pylist()
        tally.add({count["values"]: count["counts"] for count in counts}, clock.now())
        yield batch
    tally.end()


_Cut = tuple[Batch, int, int, Window]


def _windows(
    batches: Iterable[pa.RecordBatch], plan: Plan, partition: int, messages: Messages
) -> Iterator[_Cut]:
    first_row = 0
    for arrow in batches:
        batch = Batch(arrow, plan, partition, first_row, messages)
        first_row += arrow.num_rows
        for start, stop, window in batch.windows():
            yield batch, start, stop, window


def _through(windows: Iterable[_Cut], pump: Pump, consumer: Consumer) -> Iterator[pa.RecordBatch]:
    in_flight: deque[_Cut] = deque()
    for cut in windows:
        pump.offer(cut[-1])
        in_flight.append(cut)
        while len(in_flight) > _AHEAD:
            yield from _await(in_flight.popleft(), consumer)
    while in_flight:
        yield from _await(in_flight.popleft(), consumer)


def _await(cut: _Cut, consumer: Consumer) -> Iterator[pa.RecordBatch]:
    """Yield empty batches until a window is done, then its rows."""
    batch, start, stop, window = cut
    while not _is_done(window):
        yield batch.nothing()
        consumer.beat(clock.now())
    for part in batch.finished(start, stop):
        yield part
        consumer.beat(clock.now())


def _is_done(window: Window) -> bool:
    """Wait up to `BEAT_S` for a window. Raises the window's exception."""
    try:
        window.done.result(BEAT_S)
    except TimeoutError:
        if window.done.done():
            raise
        return False
    return True
