"""The table of the workers of a service, from the answers of `mmi.workers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan
from typing import Final, NamedTuple

from requite.cli.live.columns import Cell, Column, Tone, count_cell, figure_cell
from requite.metrics import formats
from requite.protocols.majordomo.answers import (
    ADDRESS_LENGTH_MAX,
    Facts,
    count_of,
    facts_in,
    flag_of,
    rows_of,
    text_of,
)


class WorkerRow(NamedTuple):
    """A worker. `instance` is its name in journals, `address` what `requite admin kick` takes.
    `served_per_s` is NaN in the first answer."""

    instance: str
    principal: str
    address: str
    dialect: str
    state: str
    holding: int
    capacity: int
    served: int
    served_per_s: float
    heartbeat_s: float


def rows_in(answer: object, before: Iterable[WorkerRow], interval_s: float) -> list[WorkerRow]:
    """Return the workers of an answer. Raises `ValueError` if it does not have them, or has fields
    of other types or beyond their limits."""
    earlier = {row.address: row.served for row in before}
    rows = rows_of(answer, "the answer")
    return [_row(facts_in(row, "a worker"), earlier, interval_s) for row in rows]


def _row(facts: Facts, earlier: Mapping[str, int], interval_s: float) -> WorkerRow:
    address = text_of(facts, "worker", ADDRESS_LENGTH_MAX)
    holding, served = count_of(facts, "holding"), count_of(facts, "served")
    is_draining = flag_of(facts, "draining")
    return WorkerRow(
        instance=text_of(facts, "instance"),
        principal=text_of(facts, "principal"),
        address=address,
        dialect=text_of(facts, "dialect"),
        state="draining" if is_draining else "busy" if holding else "idle",
        holding=holding,
        capacity=count_of(facts, "capacity"),
        served=served,
        served_per_s=(served - earlier.get(address, 0)) / interval_s if earlier else nan,
        heartbeat_s=count_of(facts, "heartbeat_ms") / 1000,
    )


_TONES: Final = {"draining": Tone.WARNING, "busy": Tone.PLAIN, "idle": Tone.QUIET}


def _state_cell(row: WorkerRow) -> Cell:
    return Cell(row.state, _TONES[row.state])


WORKERS: Final[tuple[Column[WorkerRow], ...]] = (
    Column("WORKER", 0, 0, lambda row: row.instance, lambda row: Cell(row.instance), is_text=True),
    Column(
        "PRINCIPAL", 14, 5, lambda row: row.principal, lambda row: Cell(row.principal), is_text=True
    ),
    Column("STATE", 8, 1, lambda row: row.state, _state_cell, is_text=True),
    Column("HOLDS", 6, 2, lambda row: row.holding, lambda row: count_cell(row.holding)),
    Column("CAPACITY", 8, 6, lambda row: row.capacity, lambda row: count_cell(row.capacity)),
    Column("SERVED", 9, 3, lambda row: row.served, lambda row: count_cell(row.served)),
    Column(
        "SERVED/S",
        8,
        4,
        lambda row: row.served_per_s,
        lambda row: figure_cell(row.served_per_s, formats.rate),
    ),
    Column(
        "BEAT",
        6,
        7,
        lambda row: row.heartbeat_s,
        lambda row: figure_cell(row.heartbeat_s, formats.duration),
    ),
    Column("MDP", 3, 8, lambda row: row.dialect, lambda row: Cell(row.dialect), is_text=True),
    Column("ADDRESS", 40, 9, lambda row: row.address, lambda row: Cell(row.address), is_text=True),
)
BY_NAME: Final = 0
"""The column by which workers are sorted at first."""
