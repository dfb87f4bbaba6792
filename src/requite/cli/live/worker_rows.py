"""The table of the workers of a service, from the answers of `mmi.workers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan
from typing import Any, Final, NamedTuple

from requite.cli.live import formats
from requite.cli.live.columns import Cell, Column, Tone, count_cell, figure_cell


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


def rows_in(
    answer: Iterable[Mapping[str, Any]], before: Iterable[WorkerRow], interval_s: float
) -> list[WorkerRow]:
    """Return the workers of an answer. Raises `ValueError` if it does not have them."""
    earlier = {row.address: row.served for row in before}
    try:
        return [_row(facts, earlier, interval_s) for facts in answer]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it lacks {error}") from error


def _row(facts: Mapping[str, Any], earlier: Mapping[str, int], interval_s: float) -> WorkerRow:
    address, holding, served = str(facts["worker"]), int(facts["holding"]), int(facts["served"])
    return WorkerRow(
        instance=str(facts["instance"]),
        principal=str(facts["principal"]),
        address=address,
        dialect=str(facts["dialect"]),
        state="draining" if facts["draining"] else "busy" if holding else "idle",
        holding=holding,
        capacity=int(facts["capacity"]),
        served=served,
        served_per_s=(served - earlier.get(address, 0)) / interval_s if earlier else nan,
        heartbeat_s=int(facts["heartbeat_ms"]) / 1000,
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
