"""What a task of a bulk call does: batches in, requests out, batches with replies out again.

While the requests of one window are out, the next one is read and queued, and the one before is
given on, so neither Spark nor the service waits for the other longer than it has to. Rows leave in
the order in which they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from requite.shell import clock
from requite.spark.bulk.client import process_clients
from requite.spark.bulk.plan import Plan
from requite.spark.bulk.pump import Pump, Window
from requite.spark.bulk.rows import Batch
from requite.spark.bulk.standing import Job

_AHEAD: Final = 2  # windows that are read before the oldest one is waited for


class Task(NamedTuple):
    """A task of Spark's, or what stands for one. `stage` None: it shares nothing with others."""

    stage: int | None = None
    partition: int = 0


def this_task() -> Task:
    """Return the task that this process has from Spark."""
    from pyspark import TaskContext  # executors have it; drivers with pyspark-client do not

    context = TaskContext.get()
    return Task() if context is None else Task(context.stageId(), context.partitionId())


def call_batches(
    batches: Iterable[pa.RecordBatch], plan: Plan, task: Task | None = None
) -> Iterator[pa.RecordBatch]:
    """Make a request of each row; yield the rows with the columns of `plan.COLUMNS`."""
    task = task or this_task()
    with process_clients().use(plan.connection) as shared:
        standing = shared.standings.of(Job(plan.job, task.stage), plan.rate, clock.now())
        pump = Pump(shared.loop, shared.client, plan, standing)
        try:
            yield from _through(_windows(batches, plan, task.partition), pump)
        finally:
            pump.stop()


_Cut = tuple[Batch, int, int, Window]


def _windows(batches: Iterable[pa.RecordBatch], plan: Plan, partition: int) -> Iterator[_Cut]:
    first_row = 0
    for arrow in batches:
        batch = Batch(arrow, plan, partition, first_row)
        first_row += arrow.num_rows
        for start, stop, window in batch.windows():
            yield batch, start, stop, window


def _through(windows: Iterable[_Cut], pump: Pump) -> Iterator[pa.RecordBatch]:
    under_way: deque[_Cut] = deque()
    for cut in windows:
        pump.offer(cut[-1])
        under_way.append(cut)
        while len(under_way) > _AHEAD:
            yield from _await(under_way.popleft())
    while under_way:
        yield from _await(under_way.popleft())


def _await(cut: _Cut) -> Iterator[pa.RecordBatch]:
    batch, start, stop, window = cut
    window.done.result()
    yield from batch.finished(start, stop)
