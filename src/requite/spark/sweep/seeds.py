"""Runs seeds inside a Python worker of Spark: the executor's part of a sweep.

Each seed runs in a child process of the worker (`requite.sim.kernel.sandbox`), so a seed that hangs
or crashes its process gives a row like any other. The child serves further tasks. It is started
once per Python worker, and restarted after a seed that hung or crashed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from requite.sim.kernel.sandbox import Crashed, Hung, Returned, Sandbox
from requite.sim.kernel.sandboxed import Limits
from requite.sim.run import Options, Result, replay_command
from requite.spark import schemas

if TYPE_CHECKING:
    import pyarrow as pa

Run: TypeAlias = Callable[[int, str, Options], Result]

RESULTS: Final = f"""
    {schemas.SIM_RUNS}, violations array<struct<invariant: string, detail: string>>, replay string
"""


class Outcome(StrEnum):
    """How the run of a seed ended: the column `status`."""

    OK = "OK"
    VIOLATED = "VIOLATED"
    HUNG = "HUNG"
    CRASHED = "CRASHED"


# Of this Python worker, by digest of the work and its limits; at most one at a time.
_sandboxes: dict[bytes, Sandbox] = {}


def run_batches(
    work: bytes, limits: Limits, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the rows `seed`, `scenario`; yield `RESULTS`. `work` is a pickled `(Run, Options)`."""
    import pyarrow as pa

    sandbox = _sandbox(work, limits)
    schema = arrow_schema()
    for batch in batches:
        for row in batch.to_pylist():
            record = _record(sandbox, row["seed"], row["scenario"])
            yield pa.RecordBatch.from_pylist([record], schema)


def _sandbox(work: bytes, limits: Limits) -> Sandbox:
    key = sha256(work + repr(limits).encode()).digest()
    if key not in _sandboxes:
        for old in _sandboxes.values():
            old.close()
        _sandboxes.clear()
        _sandboxes[key] = Sandbox(pickle.dumps(Simulation(work)), limits)
    return _sandboxes[key]


class Simulation:
    """Runs a seed in the child process; returns its number of events and the violations."""

    def __init__(self, work: bytes) -> None:
        self._work = work
        self._run: Run | None = None
        self._options = Options()

    def __call__(self, seed: int, scenario: str) -> tuple[int, list[tuple[str, str]]]:
        if self._run is None:
            self._run, self._options = pickle.loads(self._work)
        result = self._run(seed, scenario, self._options)
        found = [(v.invariant, f"at {v.at_s:.4f} s: {v.text}") for v in result.violations]
        return result.events, found


def _record(sandbox: Sandbox, seed: int, scenario: str) -> dict[str, Any]:
    outcome = sandbox.run(seed, scenario)
    record: dict[str, Any] = {"seed": seed, "scenario": scenario, "violations": []}
    record["replay"] = replay_command(seed, scenario)
    record["elapsed_ms"] = round(outcome.elapsed_s * 1e3, 3)
    match outcome:
        case Returned((steps, violations), _):
            found = [{"invariant": name, "detail": detail} for name, detail in violations]
            status = Outcome.VIOLATED if found else Outcome.OK
            return record | {"status": status, "steps": steps, "violations": found}
        case Hung(error, _):
            return record | {"status": Outcome.HUNG, "error": error}
        case Crashed(error, _):
            return record | {"status": Outcome.CRASHED, "error": error}
    raise AssertionError(outcome)


def arrow_schema() -> pa.Schema:
    """Return the Arrow schema of `RESULTS`."""
    import pyarrow as pa

    violation = pa.struct([("invariant", pa.string()), ("detail", pa.string())])
    return pa.schema(
        [
            ("seed", pa.int64()),
            ("scenario", pa.string()),
            ("status", pa.string()),
            ("steps", pa.int64()),
            ("elapsed_ms", pa.float64()),
            ("error", pa.string()),
            ("violations", pa.list_(violation)),
            ("replay", pa.string()),
        ]
    )
