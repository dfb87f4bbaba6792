"""Simulation sweeps: many seeds of the simulator in parallel, with violations as tables.

`simulate` is a function from DataFrame to DataFrame: a plan of seeds in, one row per seed out,
including seeds that hang or crash (`requite.spark.sweep.seeds`). `sweep` runs a plan in waves,
which gives progress, and preserves the results of earlier waves after an interruption.

Seeds alternate between the scenarios, as in `requite sim --scenario all`: the runs are the same,
and the same command repeats one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from requite.errors import ConfigurationError
from requite.sim.kernel.sandboxed import Limits
from requite.sim.run import Options
from requite.sim.run import run as run_seed
from requite.sim.scenarios import SCENARIOS, find
from requite.spark.sweep.seeds import RESULTS, Outcome, Run, run_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

ALL: Final = "all"

RUNS_TABLE: Final = "sim_runs"
VIOLATIONS_TABLE: Final = "sim_violations"

# A run takes about 0.1 s, a task about 0.02 s in addition to its runs.
_RUNS_PER_TASK: Final = 8
_FIRST_WAVE: Final = 32
_WAVE_MAX: Final = 1 << 16
_WAVE_S: Final = 4.0
_GROWTH_MAX: Final = 4
# A wave ends with its slowest seed; meanwhile the next wave uses the other cores.
_WAVES_AT_ONCE: Final = 2
_ROWS_PER_FILE: Final = 5000


# --- tables ---------------------------------------------------------------------------------------
def plan(spark: SparkSession, first_seed: int, seeds: int, scenarios: Sequence[str]) -> DataFrame:
    """Return the seeds to run: columns `seed` and `scenario`, a partition per task.

    Seed `first_seed + i` has the scenario number `i % len(scenarios)`.
    """
    from pyspark.sql import functions as F

    names = F.array(*(F.lit(name) for name in scenarios))
    partitions = -(-seeds // _RUNS_PER_TASK)
    numbers = spark.range(first_seed, first_seed + seeds, 1, partitions)
    turn = (F.col("id") - first_seed) % len(scenarios) + 1
    scenario = F.element_at(names, turn.cast("int"))
    return numbers.select(F.col("id").alias("seed"), scenario.alias("scenario"))


def simulate(
    plan: DataFrame,
    *,
    limits: Limits = Limits(),  # noqa: B008 - a tuple
    options: Options | None = None,
    run: Run = run_seed,
) -> DataFrame:
    """Run every row of `plan`, lazily: the columns of `sim_runs` and the array `violations`.

    Each action runs the seeds again, so write or collect the result first. `run` and `options` are
    pickled with cloudpickle, by reference if possible.
    """
    from pyspark import cloudpickle

    work: bytes = cloudpickle.dumps((run, options or Options()))  # type: ignore[no-untyped-call]

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_batches(work, limits, batches)

    return plan.select("seed", "scenario").mapInArrow(partition, RESULTS)


def sim_runs(results: DataFrame) -> DataFrame:
    """Return the table `sim_runs`: one row per seed."""
    return results.drop("violations", "replay")


def sim_violations(results: DataFrame) -> DataFrame:
    """Return the table `sim_violations`: one row per violation, with the command that repeats it.

    A seed that hung or crashed has a row too, without `invariant` and `detail`.
    """
    from pyspark.sql import functions as F

    runs = [name for name in results.columns if name not in ("violations", "replay")]
    found = F.explode_outer("violations").alias("found")
    bad = results.where(F.col("status") != Outcome.OK).select(*runs, "replay", found)
    return bad.select(*runs, "found.invariant", "found.detail", "replay")


def find_scenarios(names: Sequence[str]) -> list[str]:
    """Return the named scenarios, or all scenarios for `all`.

    Raises `ConfigurationError` for an unknown scenario.
    """
    return list(SCENARIOS) if ALL in names else [find(name).name for name in names]


# --- waves ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class Total:
    """Total of all runs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    violations: int = 0
    seconds: float = 0.0

    @property
    def runs(self) -> int:
        """Number of seeds that were run."""
        return self.outcomes.total()

    @property
    def is_clean(self) -> bool:
        """Whether every run ended without a violation."""
        return self.runs == self.outcomes[Outcome.OK]

    def add(self, rows: Sequence[Row]) -> None:
        """Count the rows of a wave."""
        self.outcomes.update(row.status for row in rows)
        self.violations += sum(len(row.violations) for row in rows)

    def record(self) -> dict[str, float]:
        """Return the figures as a JSON-ready dict."""
        ends = {outcome.lower(): self.outcomes[outcome] for outcome in Outcome}
        seconds = round(self.seconds, 3)
        return {"seeds": self.runs, **ends, "violations": self.violations, "seconds": seconds}


def sweep(
    spark: SparkSession,
    *,
    first_seed: int,
    seeds: int,
    scenarios: Sequence[str],
    to: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008 - a tuple
    options: Options | None = None,
    run: Run = run_seed,
    on_wave: Callable[[Sequence[Row]], None] = lambda rows: None,
) -> Total:
    """Run `seeds` seeds, and append them to the tables `sim_runs` and `sim_violations` under `to`.

    `on_wave` receives the results of each wave when it ends: rows of `seeds.RESULTS`. Results are
    also written when the sweep is interrupted. Raises `ConfigurationError` for an unknown scenario
    (`find_scenarios`), and for a folder `to` with other contents.
    """
    scenarios = find_scenarios(scenarios)
    tables = None if to is None else _Tables(spark, to)
    total = Total()
    start = monotonic()

    def wave(first: int, count: int) -> list[Row]:
        # The alternation of scenarios continues across waves.
        turned = [
            scenarios[(first - first_seed + i) % len(scenarios)] for i in range(len(scenarios))
        ]
        work = plan(spark, first, count, turned)
        return simulate(work, limits=limits, options=options, run=run).collect()

    try:
        for rows in _in_waves(spark, wave, first_seed, seeds):
            total.add(rows)
            if tables is not None:
                tables.add(rows)
            on_wave(rows)
    finally:
        if tables is not None:
            tables.write()
    total.seconds = monotonic() - start
    return total


def _in_waves(
    spark: SparkSession, wave: Callable[[int, int], list[Row]], first: int, seeds: int
) -> Iterator[list[Row]]:
    """Run waves of some seconds each, two at a time; yield their results."""
    size, left = _FIRST_WAVE, range(first, first + seeds)
    running: dict[Future[list[Row]], float] = {}
    with ThreadPoolExecutor(_WAVES_AT_ONCE) as pool:
        try:
            while left or running:
                while left and len(running) < _WAVES_AT_ONCE:
                    part, left = left[:size], left[size:]
                    running[pool.submit(wave, part.start, len(part))] = monotonic()
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    elapsed_s = monotonic() - running.pop(future)
                    rows = future.result()
                    size = _next_size(len(rows), elapsed_s)
                    yield rows
        except BaseException:
            spark.interruptAll()  # otherwise the pool waits for the running waves
            raise


def _next_size(size: int, elapsed_s: float) -> int:
    """Return the number of runs for a wave of `_WAVE_S`, extrapolated from the last one."""
    growth = min(_GROWTH_MAX, _WAVE_S / max(elapsed_s, 0.01))
    return max(_RUNS_PER_TASK, min(_WAVE_MAX, int(size * growth)))


class _Tables:
    """The two tables in a folder; rows are buffered for files of `_ROWS_PER_FILE` rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        _check(folder)
        self._spark = spark
        self._folder = folder
        self._rows: list[Row] = []
        self._is_written = False

    def add(self, rows: Sequence[Row]) -> None:
        self._rows += rows
        if len(self._rows) >= _ROWS_PER_FILE:
            self.write()

    def write(self) -> None:
        if not self._rows and self._is_written:
            return
        results = self._spark.createDataFrame(self._rows, RESULTS).coalesce(1)
        for name, table in ((RUNS_TABLE, sim_runs), (VIOLATIONS_TABLE, sim_violations)):
            table(results).write.mode("append").parquet(str(self._folder / name))
        self._rows = []
        self._is_written = True


def _check(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"cannot write the tables: {folder} is a file; pass a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if strange := sorted(names - {RUNS_TABLE, VIOLATIONS_TABLE}):
        raise ConfigurationError(
            f"{folder} contains other files than the tables of a sweep, such as {strange[0]};"
            " pass a new folder"
        )
