"""`requite sim`: what it prints, and how it ends."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.sim import mutants

from requite.cli.app import run as run_command
from requite.cli.exit_codes import ExitCode
from requite.sim import draw
from requite.sim import play as sim_play
from requite.sim import run as sim_run
from requite.sim.plan import write
from requite.sim.roles import Parts
from requite.sim.run import Options


def test_a_clean_run_ends_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["sim", "--seeds", "3", "--seed", "11", "--jobs", "1", "--json"])
    out = capsys.readouterr().out
    assert code == ExitCode.OK
    figures = json.loads(out.splitlines()[-1])
    assert set(figures) == {"seeds", "violations", "calls", "virtual_s"}
    assert figures["seeds"] == 3
    assert figures["violations"] == 0
    assert figures["calls"] > 100
    assert "3 seeds, from 11" in out


def test_jobs_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for jobs in ("1", "2"):
        run_command(["sim", "--seeds", "6", "--seed", "1", "--jobs", jobs, "--json"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_one_seed_prints_every_knob_and_its_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["sim", "--seed", "4", "--scenario", "calm", "--transcript"])
    out = capsys.readouterr().out
    assert code == ExitCode.OK
    assert "seed 4 of calm" in out
    for knob in ("calls", "interval_s", "network", "faults", "worker", "client"):
        assert f"\n  {knob} " in out
    assert "client-1 → broker" in out


def test_violations_are_printed_with_the_command_that_repeats_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(parts=Parts(client=mutants.AnswersTwice))

    def broken(seed: int, scenario: str, _options: Any = None) -> Any:
        return sim_run(seed, scenario, options)

    monkeypatch.setattr("requite.sim.run", broken)
    code = run_command(["sim", "--seeds", "2", "--seed", "1", "--scenario", "calm", "--jobs", "1"])
    out = capsys.readouterr().out
    assert code == ExitCode.FAILED
    assert "I1 at " in out
    replay = next(line for line in out.splitlines() if line.startswith("replay: "))
    command = shlex.split(replay.removeprefix("replay: requite "))
    assert run_command(command) == ExitCode.OK  # by engines that are whole
    assert "seed 1 of calm" in capsys.readouterr().out


def test_a_plan_is_written_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "calm.toml")
    seed = ["sim", "--seed", "4", "--scenario", "calm", "--transcript", "--json"]
    assert run_command([*seed, "--write-plan", file]) == ExitCode.OK
    drawn = capsys.readouterr().out.splitlines()
    assert run_command(["sim", "--plan", file, "--transcript", "--json"]) == ExitCode.OK
    played = capsys.readouterr().out.splitlines()
    assert played[0] == f"plan {file}: seed 4 of calm"
    assert played[1:] == drawn[1:]


def test_violations_of_a_plan_are_printed_with_the_command_that_repeats_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "the plan.toml"
    file.write_text(write(draw(1, "calm")), "utf-8")
    options = Options(parts=Parts(client=mutants.AnswersTwice))
    monkeypatch.setattr("requite.sim.play", lambda plan, _options: sim_play(plan, options))
    assert run_command(["sim", "--plan", str(file)]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "I1 at " in out
    assert f"replay: requite sim --plan '{file}'" in out.splitlines()


def test_a_file_that_is_no_plan_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.toml"
    for content in ("hello", 'scenario = "calm"'):
        file.write_text(content, "utf-8")
        assert run_command(["sim", "--plan", str(file)]) == ExitCode.USAGE
        assert f"{file} is no plan: " in capsys.readouterr().err
    assert run_command(["sim", "--plan", str(tmp_path / "none.toml")]) == ExitCode.USAGE
    assert "No such file" in capsys.readouterr().err


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sim", "--scenario", "list"]) == ExitCode.OK
    assert "partitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--scenario", "nope"],
        ["--seeds", "0"],
        ["--transcript", "--seeds", "2"],
        ["--seed", "-1"],
        ["--write-plan", "x.toml"],
        ["--plan", "x.toml", "--seed", "1"],
    ],
)
def test_what_cannot_work_is_refused(words: list[str]) -> None:
    assert run_command(["sim", *words]) == ExitCode.USAGE
