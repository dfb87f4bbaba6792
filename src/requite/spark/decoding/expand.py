"""Builds the columns of events from rows of a journal.

`requite.journal.meaning` defines the meaning of one event; this module applies it to whole columns.
Each function returns *makers*: a function or a constant per column name. Columns without a maker
are null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from requite.chronicle import NO_OUTCOME, Kind
from requite.journal import blocks, meaning
from requite.journal.meaning import Step
from requite.spark.decoding.columns import Array, Constant, Numbers, booleans, plain, texts
from requite.spark.decoding.rows import INT32, INT64, STRING, Rows

Maker: TypeAlias = Constant | Callable[[], Array | Constant]
Makers: TypeAlias = Mapping[str, Maker]

_BYTE_VALUES: Final = range(256)
_KINDS: Final = texts([meaning.kind_name(number) for number in _BYTE_VALUES])
_UNKNOWN_KINDS: Final = texts(
    [
        None if number in meaning.KIND_NAMES else meaning.unknown_kind(number)
        for number in _BYTE_VALUES
    ]
)
_OUTCOMES: Final = texts([meaning.outcome_name(number) for number in _BYTE_VALUES])


def _table(kinds: Collection[int]) -> Numbers:
    return np.array([number in kinds for number in _BYTE_VALUES])


_KNOWN: Final = _table(meaning.KIND_NAMES)
_HAS_DEADLINE: Final = _table(meaning.DEADLINE_KINDS)
_HAS_GAP: Final = _table(meaning.GAP_KINDS)
_HAS_STAFF: Final = _table(meaning.STAFF_KINDS)
_HAS_SIZE: Final = _table(meaning.SIZE_KINDS)
_DROPPED: Final = _table({Kind.DROPPED})


def common(rows: Rows) -> Makers:
    """Return the makers of the columns that all events of these rows share."""
    place = rows.place
    return {
        "schema_version": Constant(blocks.SCHEMA_VERSION, INT32),  # others are flawed
        "log": Constant(place.log, STRING),
        "segment": Constant(place.segment, INT64),
        "role": Constant(place.role_name, STRING),
        "broker": Constant(place.broker, STRING),
        "request_id": lambda: rows.request_id,
        "client": lambda: rows.client,
        "service": lambda: rows.service,
    }


def happened(rows: Rows, step: Step) -> Numbers:
    """Return the rows for which a step took place: QUEUED only if the request waited."""
    if step.kind is not Kind.QUEUED:
        return np.ones(rows.count, dtype=bool)
    return rows.column("second_at") > rows.column("first_at")


def spans(rows: Rows, step: Step) -> Makers:
    """Return the makers of one step's events of spans."""
    at = rows.instants(step.at)
    outcome = None if step.outcome is None else step.outcome.name
    makers: dict[str, Maker] = {
        **common(rows),
        "seq": lambda: rows.seq(step.number),
        "byte_offset": lambda: rows.byte_offset(step.cell),
        "ts": lambda: at.ts,
        "date": lambda: at.date,
        "kind": Constant(meaning.kind_name(step.kind), STRING),
        "attempt": Constant(step.attempt, INT32),
        "outcome": Constant(outcome, STRING),
    }
    if step.size:
        makers["bytes"] = lambda: plain(rows.column(step.size).astype(np.int64), INT64)
    if step.has_worker:
        makers["worker"] = lambda: rows.worker
    if step.has_deadline:
        makers["deadline"] = lambda: rows.instants("deadline").ts
    if at.valid is not None:
        no_string = pa.nulls(rows.count, STRING)
        makers |= _flaws(rows, ~at.valid, no_string, no_string)
    return makers


def event_rows(rows: Rows) -> Makers:
    """Return the makers of events that are not part of spans."""
    at = rows.instants("at")
    kinds = rows.column("kind")

    def whole(column: str, table: Numbers) -> Array:
        cells = np.minimum(rows.column(column), meaning.INT_MAX)
        return plain(cells.astype(np.int32), INT32, table[kinds])

    makers: dict[str, Maker] = {
        **common(rows),
        "seq": rows.seq,
        "byte_offset": lambda: rows.byte_offset("at"),
        "ts": lambda: at.ts,
        "date": lambda: at.date,
        "kind": lambda: _KINDS.take(plain(kinds, pa.uint8())),
        "worker": lambda: rows.worker,
        "attempt": lambda: _attempts(rows.column("attempt")),
        "outcome": lambda: _outcomes(rows.column("outcome")),
        "error_class": lambda: rows.strings.texts(rows.column("error")),
        "bytes": lambda: plain(rows.column("size").astype(np.int64), INT64, _HAS_SIZE[kinds]),
        "reason": lambda: rows.strings.texts(rows.column("reason")),
        "deadline": lambda: rows.instants("value").only(_HAS_DEADLINE[kinds]),
        "gap_s": lambda: _finite(rows.column("value"), _HAS_GAP[kinds]),
        "busy": lambda: whole("busy", _HAS_STAFF),
        "capacity": lambda: whole("capacity", _HAS_STAFF),
        "dropped": lambda: _finite(rows.column("value"), _DROPPED[kinds]).cast(INT64, safe=False),
    }
    flawed = ~_KNOWN[kinds] if at.valid is None else ~(_KNOWN[kinds] & at.valid)
    if flawed.any():
        unknown = _UNKNOWN_KINDS.take(plain(kinds, pa.uint8()))
        reasons = rows.strings.texts(rows.column("reason"))
        if isinstance(reasons, Constant):
            reasons = reasons.of(rows.count)
        makers |= _flaws(rows, flawed, unknown, reasons)
    return makers


def _flaws(rows: Rows, flawed: Numbers, flaws: Array, reasons: Array) -> Makers:
    """Return the makers of `reason` and `raw` for flawed rows.

    A null flaw means an instant out of range. Rows without a flaw keep their reasons.
    """
    why = flaws.fill_null(meaning.INSTANT_OUT_OF_RANGE)
    return {
        "reason": lambda: pc.if_else(booleans(flawed), why, reasons),
        "raw": lambda: rows.raw(flawed),
    }


def _attempts(cells: Numbers) -> Array:
    return plain(cells.astype(np.int32), INT32, cells != 0)


def _outcomes(cells: Numbers) -> Array | Constant:
    if (cells == NO_OUTCOME).all():
        return Constant(None, STRING)
    return _OUTCOMES.take(plain(cells, pa.uint8()))


def _finite(cells: Numbers, chosen: Numbers) -> Array:
    return plain(np.where(chosen, cells, 0.0), pa.float64(), chosen & np.isfinite(cells))
