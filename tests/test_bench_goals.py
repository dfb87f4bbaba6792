"""The builds, goals and quietness of the benchmarks; and short runs, which require no figure."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from bench import builds, goals
from bench.__main__ import main as bench_main
from bench.builds import KINDS, PURE, THIS
from bench.cells import Cell
from bench.contenders import contenders
from bench.goals import GOALS, Goal
from bench.quiet import ATTEMPTS, NotQuiet, Quiet, Used, _own_ticks, used
from bench.results import Results
from bench.runner import Settings, run_all
from bench.sp.__main__ import main as sp_main
from bench.sp.cells import SECTIONS

import requite

CELL: Final = Cell("end-to-end", 64, 4, 11)
GOAL: Final = Goal("part", "what", "mine", ("a", "b"), "cell", "rate", "at least", 2.0, 1.5)


# --- builds ---------------------------------------------------------------------------------------
def test_the_pure_build_has_its_own_names() -> None:
    names = [each.name for each in contenders(KINDS) if each.kind == "end-to-end"]
    assert names[:2] == ["requite", "requite, pure"]
    assert "nats-py, pure" not in names


def test_lines_of_sp_that_are_all_requite_are_measured_in_each_build() -> None:
    names = [line.name for line in SECTIONS[0].in_builds(KINDS)]
    assert names[:3] == ["AsyncClient, Worker", "AsyncClient, Worker, pure", "nng in C"]
    assert "AsyncClient, nng in C, pure" not in names


def test_an_environment_with_the_same_build_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{THIS.kind} build, too"):
        builds._beside(sys.executable)


def test_a_python_without_requite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="has no requite"):
        builds._beside(str(tmp_path / "python"))


def test_the_page_does_not_name_the_other_environment() -> None:
    words = builds.shown("bench.sp", ["--beside", "/some/where/python", "--rounds", "1"])
    assert words == "python -m bench.sp --beside PYTHON --rounds 1"


# --- goals ----------------------------------------------------------------------------------------
def rates(rounds: Mapping[str, Mapping[int, float]]) -> goals.Figures:
    return lambda _cell, name, _figure: rounds.get(name, {})


def test_each_round_is_compared_with_the_better_baseline() -> None:
    figures = rates({"mine": {0: 40.0, 1: 40.0}, "a": {0: 10.0, 1: 20.0}, "b": {0: 20.0, 1: 5.0}})
    assert GOAL.ratio(figures, "compiled") == 2.0
    assert GOAL.ratio(figures, PURE) is None


def test_a_row_has_both_builds_and_both_verdicts() -> None:
    figures = rates({"mine": {0: 25.0}, "mine, pure": {0: 14.0}, "a": {0: 10.0}})
    words = "at least 2 (1.5) x a or b"
    assert GOAL.row(figures) == ["what: cell", words, "2.50x (1.40x)", "reached (missed)"]


def test_a_cost_must_be_at_most_the_goal() -> None:
    goal = Goal("part", "what", "mine", ("a",), "cell", "cpu", "at most", 0.5)
    row = goal.row(rates({"mine": {0: 4.0}, "mine, pure": {0: 9.0}, "a": {0: 10.0}}))
    assert row[2:] == ["0.40x (0.90x)", "reached"]


def test_goals_that_were_not_measured_keep_their_rows(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    first, second = ([goal.title, goal.words, "1.00x", "missed"] for goal in GOALS[:2])
    goals.write(page, [first])
    goals.write(page, [second, [GOALS[0].title, GOALS[0].words, goals.NOT_MEASURED, "-"]])
    lines = page.read_text().splitlines()
    assert lines.count("| " + " | ".join(first) + " |") == 1
    assert lines.count("| " + " | ".join(second) + " |") == 1
    assert sum(goals.NOT_MEASURED in line for line in lines) == len(GOALS) - 2


def test_goals_name_contenders_of_a_benchmark() -> None:
    names = {each.name for each in contenders(KINDS)}
    names |= {line.name for section in SECTIONS for line in section.lines}
    for goal in GOALS:
        if goal.part in ("broker", "native", "end-to-end", "sp"):
            assert {goal.contender, *goal.against} <= names, goal


# --- quietness ------------------------------------------------------------------------------------
class Machine:
    """A machine whose other load, in cores, is scripted: one value per second."""

    def __init__(self, *loads: float) -> None:
        self._loads = loads
        self.now_s = 0.0

    def quiet(self, *, is_busy: bool = False) -> Quiet:
        return Quiet(is_busy, read=self._read, wait=self._wait, clock=lambda: self.now_s)

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def _wait(self, seconds: float) -> None:
        self.now_s += seconds

    def _read(self) -> Used:
        whole = int(self.now_s)
        loads = [*self._loads, *[self._loads[-1]] * (whole + 1)]
        spent_s = sum(loads[:whole]) + (self.now_s - whole) * loads[whole]
        return Used(spent_s, 0.0)


def work_for(machine: Machine, seconds: float, taken: list[float]) -> Callable[[], float]:
    def work() -> float:
        machine.work(seconds)
        taken.append(machine.now_s)
        return machine.now_s

    return work


def test_a_round_is_taken_when_the_machine_is_quiet() -> None:
    machine, taken = Machine(0.05), list[float]()
    quiet = machine.quiet()
    assert quiet.take(work_for(machine, 5, taken)) == taken[0]
    assert quiet.words() == (
        "Other load before each round: median 5%, at most 5% of a core; 0 rounds were dropped and"
        " repeated."
    )


def test_a_round_beside_other_load_is_dropped_and_repeated() -> None:
    machine, taken = Machine(0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0), list[float]()
    quiet = machine.quiet()
    assert quiet.take(work_for(machine, 3, taken)) == taken[1]
    assert quiet.dropped == 1
    assert "1 round was dropped" in quiet.words()


def test_a_busy_machine_is_not_measured() -> None:
    machine, taken = Machine(0.5), list[float]()
    with pytest.raises(NotQuiet, match=r"busy with other work in .* --busy measures regardless"):
        machine.quiet().take(work_for(machine, 1, taken))
    assert not taken
    assert machine.now_s > ATTEMPTS


def test_a_busy_machine_may_be_permitted_and_is_reported() -> None:
    machine, taken = Machine(0.5), list[float]()
    quiet = machine.quiet(is_busy=True)
    quiet.take(work_for(machine, 1, taken))
    assert len(taken) == 1
    assert quiet.words().startswith("**A trial on a busy machine** (`--busy`): other load")
    assert "50%" in quiet.words()


def test_time_that_a_hypervisor_took_during_the_round_counts() -> None:
    stolen_s = iter([0.0, 0.0, 0.0, 5.0])  # before, and around the round: 5 s of 10
    clock = iter([0.0, 0.3, 0.3, 10.3])

    def read() -> Used:
        return Used(0.0, next(stolen_s))

    quiet = Quiet(False, read=read, wait=lambda _s: None, clock=lambda: next(clock))
    with pytest.raises(StopIteration):  # the second attempt begins
        quiet.take(lambda: None)
    assert quiet.dropped == 1


def test_processes_of_the_benchmark_are_not_other_load() -> None:
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        before = _own_ticks()
        child.stdout.readline()
        ran_ticks = _own_ticks() - before
        child.communicate(b"\n")
    assert ran_ticks >= 30  # hundredths of a second of the child
    assert _own_ticks() - before >= ran_ticks  # also after its end
    assert used().others_s >= 0


# --- short runs -----------------------------------------------------------------------------------
@pytest.mark.e2e
@pytest.mark.slow
def test_both_builds_take_part_in_a_round() -> None:
    other = THIS._replace(kind="pure" if THIS.kind == "compiled" else "compiled")
    nats = [each for each in contenders([]) if each.name == "nats-py"]
    if lack := nats[0].lack():
        pytest.skip(lack)
    several = [each for each in contenders([THIS, other]) if each.kind == CELL.kind]
    chosen = [each for each in several if each.name.startswith("requite") or each in nats]
    results = Results()
    for run in run_all([CELL], chosen, Settings(1, 0.1, 10, 0.1, 16), Quiet(is_busy=True)):
        assert not run.failure
        results.add(run)
    [measured, *others] = results.goals("end-to-end")
    assert measured[2].count("x") == 2  # the ratio of each build
    assert all(row[2] == goals.NOT_MEASURED for row in others)


@pytest.mark.e2e
@pytest.mark.slow
def test_a_section_of_the_page_says_how_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    turn = ["--runs", "1", "--seconds", "0.1", "--requests", "10", "--warm-up", "0.1", "--busy"]
    what = ["--kind", "journal", "--cell", "64x4x11", "--json", str(tmp_path / "runs.json")]
    monkeypatch.setattr(sys, "argv", ["bench", *what, *turn, "--docs", str(page)])
    assert bench_main() == 0
    text = page.read_text()
    assert f"requite {requite.__version__} ({requite.__build__})" in text
    assert "**A trial on a busy machine**" in text
    assert "| 64 | 4 | 11 B |" in text
    assert "<!-- bench goals:begin" in text


@pytest.mark.e2e
@pytest.mark.slow
def test_sp_is_measured_and_its_goals_are_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    turn = ["--rounds", "1", "--seconds", "0.1", "--requests", "10", "--warm-up", "0.1", "--busy"]
    what = ["--section", "1", "--size", "11", "--line", "AsyncClient, Worker"]
    files = ["--json", str(tmp_path / "runs.json"), "--docs", str(page)]
    assert sp_main([*what, *turn, *files]) == 0
    [run] = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert run["line"] == THIS.name("AsyncClient, Worker")
    assert "at least 4.5 (3.3) x nng in C" in page.read_text()
