"""Sweeps on Spark: one row per seed, even if it hangs or crashes, and tables of the results."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.sim import mdp_broker_mutants, troubled
from tests.support.builds import pure_only

import requite.spark.sweep.runs
from requite.cli.app import run as run_command
from requite.cli.exit_codes import ExitCode
from requite.errors import ConfigurationError
from requite.sim import Options
from requite.sim import run as run_seed
from requite.sim.kernel.sandboxed import Limits
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.scenarios import SCENARIOS
from requite.spark import schemas
from requite.spark.sweep.runs import find_scenarios, plan, sim_runs, sim_violations, simulate, sweep

pytestmark = pytest.mark.timeout(180)  # the first test also waits for the start of Spark

inherits = pure_only("broken engines inherit from engines")
BROKEN = Options(parts=(MajordomoParts(broker=mdp_broker_mutants.HandsOutTwice),))


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Send these modules to Python workers by value, because workers cannot import the tests."""
    for module in (mdp_broker_mutants, troubled):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (mdp_broker_mutants, troubled):
        cloudpickle.unregister_pickle_by_value(module)


def names_and_types(frame: DataFrame) -> list[tuple[str, str]]:
    return [(column.name, column.dataType.simpleString()) for column in frame.schema]


def test_a_plan_alternates_scenarios(spark: SparkSession) -> None:
    rows = plan(spark, 7, 20, ["calm", "drain", "fair"]).orderBy("seed").collect()
    assert [row.seed for row in rows] == list(range(7, 27))
    assert [row.scenario for row in rows[:4]] == ["calm", "drain", "fair", "calm"]


def test_the_tables_have_the_declared_columns(spark: SparkSession) -> None:
    results = simulate(plan(spark, 1, 1, ["calm"]))
    for table, ddl in (
        (sim_runs(results), schemas.SIM_RUNS),
        (sim_violations(results), schemas.SIM_VIOLATIONS),
    ):
        declared = [(c.name, c.dataType.simpleString()) for c in StructType.fromDDL(ddl)]
        assert names_and_types(table) == declared


def test_results_match_those_of_the_simulator(spark: SparkSession) -> None:
    rows = simulate(plan(spark, 1, 6, ["calm", "swarm"])).orderBy("seed").collect()
    assert {row.status for row in rows} == {"OK"}
    expected = [run_seed(seed, ["calm", "swarm"][(seed - 1) % 2]).events for seed in range(1, 7)]
    assert [row.steps for row in rows] == expected
    assert all(row.elapsed_ms > 0 and row.error is None for row in rows)


@pytest.mark.slow
def test_seeds_that_hang_or_crash_are_rows(spark: SparkSession) -> None:
    # A good run took more than 3 s while five lanes of tests shared two cores.
    limits = Limits(run_s=10.0)
    results = simulate(plan(spark, 1, 9, ["calm"]), limits=limits, run=troubled.run).collect()
    rows = {row.seed: row for row in results}
    bad = {seed: row.status for seed, row in rows.items() if row.status != "OK"}
    assert bad == {
        troubled.HANGS: "HUNG",
        troubled.EXITS: "CRASHED",
        troubled.KILLED: "CRASHED",
        troubled.RAISES: "CRASHED",
        troubled.COLLECTS: "CRASHED",
    }
    assert "wait_for_ever" in rows[troubled.HANGS].error
    assert "exit code 9" in rows[troubled.EXITS].error
    assert "SIGSEGV" in rows[troubled.KILLED].error
    assert "this seed has no world" in rows[troubled.RAISES].error
    assert all(row.steps > 0 for seed, row in rows.items() if seed not in bad)


@inherits
def test_every_violation_has_the_command_that_repeats_it(spark: SparkSession) -> None:
    results = simulate(plan(spark, 2, 2, ["calm"]), options=BROKEN)
    found = sim_violations(results).collect()
    expected = [v for seed in (2, 3) for v in run_seed(seed, "calm", BROKEN).violations]
    details = {(row.invariant, row.detail) for row in found}
    assert details == {(v.invariant, f"at {v.at_s:.4f} s: {v.text}") for v in expected}
    assert {row.status for row in found} == {"VIOLATED"}
    for replay in {row.replay for row in found}:
        assert run_command(shlex.split(replay.removeprefix("requite "))) == ExitCode.OK


def test_a_sweep_appends_to_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "sweeps"
    waves: list[int] = []
    first = sweep(
        spark, first_seed=1, seeds=3, scenarios=["calm"], to=folder,
        on_wave=lambda rows: waves.append(len(rows)),
    )  # fmt: skip
    assert first.is_clean
    assert sum(waves) == first.runs == 3
    second = sweep(spark, first_seed=7, seeds=2, scenarios=["calm"], to=folder, options=BROKEN)
    assert not second.is_clean
    runs = spark.read.parquet(str(folder / "sim_runs"))
    violations = spark.read.parquet(str(folder / "sim_violations"))
    assert sorted(row.seed for row in runs.collect()) == [1, 2, 3, 7, 8]
    assert violations.count() == second.violations > 0
    assert {row.seed for row in violations.collect()} <= {7, 8}


def test_scenarios_alternate_across_waves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.spark.sweep.runs._FIRST_WAVE", 5)
    rows: list[Any] = []
    total = sweep(
        spark, first_seed=10, seeds=13, scenarios=["calm", "drain", "fair"], on_wave=rows.extend
    )
    assert total.outcomes == {"OK": 13}
    turns = ["calm", "drain", "fair"]
    expected = [(10 + i, turns[i % 3]) for i in range(13)]
    assert sorted((row.seed, row.scenario) for row in rows) == expected


def test_results_before_an_interruption_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("requite.spark.sweep.runs._FIRST_WAVE", 4)

    def interrupt(rows: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(spark, first_seed=1, seeds=500, scenarios=["calm"], to=tmp_path, on_wave=interrupt)
    assert spark.read.parquet(str(tmp_path / "sim_runs")).count() == 4


def test_a_folder_with_other_files_is_refused_and_not_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(ConfigurationError, match="thesis"):
        sweep(spark, first_seed=1, seeds=1, scenarios=["calm"], to=tmp_path)
    with pytest.raises(ConfigurationError, match="is a file"):
        sweep(spark, first_seed=1, seeds=1, scenarios=["calm"], to=tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the session of the tests."""
    monkeypatch.setattr("requite.spark.session.local_session", lambda *args, **given: spark)


@pytest.mark.usefixtures("one_session")
def test_the_command_prints_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--seeds", "16", "--first-seed", "5", "--scenario", "all", "--to", str(tmp_path)]
    code = run_command(["spark", "sweep", *words, "--json"])
    out = capsys.readouterr().out
    assert code == ExitCode.OK, out
    figures = json.loads(out.splitlines()[-1])
    assert figures | {"seconds": 0} == {
        "seeds": 16, "ok": 16, "violated": 0, "hung": 0, "crashed": 0, "violations": 0,
        "seconds": 0,
    }  # fmt: skip
    assert figures["seconds"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sim_runs", "sim_violations"]


@inherits
@pytest.mark.usefixtures("one_session")
def test_the_command_prints_violations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **given: Any) -> Any:
        return sweep(*args, **given, options=BROKEN)

    monkeypatch.setattr(requite.spark.sweep.runs, "sweep", broken)
    code = run_command(
        ["spark", "sweep", "--seeds", "1", "--first-seed", "2", "--scenario", "calm"]
    )
    out = capsys.readouterr().out
    assert code == ExitCode.FAILED
    assert "seed 2 of calm: VIOLATED" in out
    assert "  I6 at " in out
    assert "replay: requite sim --seed 2 --scenario calm" in out


@pytest.mark.parametrize(
    "words",
    [["--scenario", "nope"], ["--seeds", "0"], ["--first-seed", "-1"], ["--seed-timeout", "0"]],
)
def test_invalid_arguments_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["spark", "sweep", *words]) == ExitCode.USAGE
    assert words[0] == "--scenario" or words[0] in capsys.readouterr().err


def test_all_selects_all_scenarios() -> None:
    assert find_scenarios(["all"]) == find_scenarios(["calm", "all"]) == list(SCENARIOS)
    assert find_scenarios(["fair", "calm"]) == ["fair", "calm"]
