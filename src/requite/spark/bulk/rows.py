"""Arrow batches in and out of a bulk call: rows become requests, outcomes become columns.

A row that cannot be sent keeps its place and gets the status `BadRow` with the reason. Bad data
never ends a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from requite.framing import BODY_FRAMES_MAX
from requite.spark.bulk.ids import id_text, position_names, repetitions, request_ids
from requite.spark.bulk.messages import BYTES, Messages, bodies_of
from requite.spark.bulk.outcome import Outcome
from requite.spark.bulk.plan import Plan
from requite.spark.bulk.pump import Window

BAD_ROW: Final = "BadRow"
# Reply bytes per outgoing batch; a binary column of Arrow holds at most 2 GiB.
_REPLY_BYTES_MAX: Final = 64 << 20
_TYPES: Final = {
    "string": pa.string(), "int": pa.int32(), "double": pa.float64(), "boolean": pa.bool_(),
}  # fmt: skip


class Batch:
    """One Arrow batch of a task: its requests and their outcomes.

    `first_row` is the number of the task's rows before this batch.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        plan: Plan,
        partition: int,
        first_row: int,
        messages: Messages = BYTES,
    ) -> None:
        self._batch = batch
        self._plan = plan
        self._messages = messages
        self._bodies, self._faults = messages.encode(batch.column(plan.body))
        self._sizes = list(map(_size, self._bodies))
        self._ids = request_ids(plan.job, self._names(partition, first_row))
        self._twins = repetitions(self._ids)
        self._wanted_again = set(self._twins.values())
        self._outcomes: list[Outcome | None] = list(map(self._fault, range(batch.num_rows)))

    def _names(self, partition: int, first_row: int) -> list[bytes | None]:
        if self._plan.key is None:
            count = self._batch.num_rows
            return list(position_names(self._plan.scope, partition, first_row, count))
        return _texts(self._batch.column(self._plan.key))

    # --- in ---------------------------------------------------------------------------------------
    def windows(self) -> Iterator[tuple[int, int, Window]]:
        """Cut the batch into windows; yield start row, end row (exclusive) and the window."""
        count, step = self._batch.num_rows, self._plan.window
        for start in range(0, count, step):
            stop = min(start + step, count)
            rows = [
                row
                for row in range(start, stop)
                if self._outcomes[row] is None and row not in self._twins
            ]
            window = Window(rows, self._bodies, self._ids, self._sizes, self._outcomes)
            yield start, stop, window

    def _fault(self, row: int) -> Outcome | None:
        """Return the outcome of a row that cannot be sent; None if it can."""
        body = self._bodies[row]
        if not self._ids[row]:
            return _bad("the key is null")
        if row in self._faults:
            return _bad(self._faults[row])
        if body is None:
            return _bad("the body is null")
        limit = self._plan.connection.message_size_max
        if self._sizes[row] > limit:
            return _bad(f"the body has {self._sizes[row]} bytes; message_size_max is {limit}")
        if isinstance(body, list) and (fault := _fault_of_frames(body)):
            return fault
        return self._messages.refusal

    # --- out --------------------------------------------------------------------------------------
    def finished(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a finished window with their outcome columns."""
        outcomes = [self._outcome(row) for row in range(start, stop)]
        keys = [id_text(one) if one else None for one in self._ids[start:stop]]
        self._forget(start, stop)
        for begin, end in _cuts(outcomes):
            kept = self._batch.slice(start + begin, end - begin)
            decoded = self._messages.decode(outcomes[begin:end])
            yield self._joined(kept, decoded, keys[begin:end])

    def nothing(self) -> pa.RecordBatch:
        """Return an empty batch with the columns of `finished`."""
        return self._joined(self._batch.slice(0, 0), [], [])

    def _outcome(self, row: int) -> Outcome:
        if (own := self._outcomes[row]) is not None:
            return own
        first = self._twins[row]
        if self._bodies[row] != self._bodies[first]:
            return _bad("another row has the same key, and a different body")
        outcome = self._outcomes[first]
        assert outcome is not None, "the first of equal rows comes first"
        return outcome

    def _forget(self, start: int, stop: int) -> None:
        """Release the outcomes of yielded rows, except those that later rows repeat."""
        for row in range(start, stop):
            if row not in self._wanted_again:
                self._outcomes[row] = None

    def _joined(
        self, kept: pa.RecordBatch, outcomes: list[Outcome], keys: list[str | None]
    ) -> pa.RecordBatch:
        columns_of = zip(*outcomes, strict=True) if outcomes else ([] for _ in Outcome._fields)
        replies, status, attempts, elapsed_s, may_have_executed, errors, data = columns_of
        plan, elapsed_ms = self._plan, [seconds * 1e3 for seconds in elapsed_s]
        values = (replies, status, attempts, elapsed_ms, may_have_executed, errors, keys, data)
        _, *others = plan.columns.values()
        types = [self._messages.reply_type, *map(_TYPES.__getitem__, others)]
        added = [pa.array(column, kind) for column, kind in zip(values, types, strict=False)]
        columns = kept.columns[: plan.kept] + added
        return pa.RecordBatch.from_arrays(columns, kept.schema.names[: plan.kept] + plan.names)


def _cuts(outcomes: list[Outcome]) -> Iterator[tuple[int, int]]:
    """Split rows so that the replies of each part fit into one column."""
    begin = size = 0
    for row, outcome in enumerate(outcomes):
        size += len(outcome.reply or b"")
        if size > _REPLY_BYTES_MAX and row > begin:
            yield begin, row
            begin, size = row, len(outcome.reply or b"")
    if begin < len(outcomes):
        yield begin, len(outcomes)


# --- columns of requests --------------------------------------------------------------------------
def _texts(column: pa.Array) -> list[bytes | None]:
    """Return keys as bytes; integers in decimal."""
    if pa.types.is_integer(column.type):
        column = pc.cast(column, pa.string())
    texts: list[bytes | None] = bodies_of(column)
    return texts


def _size(body: Any) -> int:
    if isinstance(body, list):
        return sum(len(frame) for frame in body if frame is not None)
    return 0 if body is None else len(body)


def _fault_of_frames(frames: list[bytes | None]) -> Outcome | None:
    if len(frames) > BODY_FRAMES_MAX:
        return _bad(f"the body has {len(frames)} frames; the maximum is {BODY_FRAMES_MAX}")
    if any(frame is None for frame in frames):
        return _bad("a frame of the body is null")
    return None


def _bad(reason: str) -> Outcome:
    return Outcome(None, BAD_ROW, 0, 0.0, False, reason)
