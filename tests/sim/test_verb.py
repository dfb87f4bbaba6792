"""`requite sim`: its output and exit codes."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import pytest
from tests.cli.command import COMMAND
from tests.sim import mdp_peer_mutants

from requite.cli.app import run as run_command
from requite.cli.exit_codes import ExitCode
from requite.sim import draw
from requite.sim import play as sim_play
from requite.sim import run as sim_run
from requite.sim.kernel.checkers.calls import EndsOnce
from requite.sim.kernel.knobs import Printed
from requite.sim.kernel.plan import write
from requite.sim.majordomo.parties import MajordomoParts
from requite.sim.run import Options, knobs_of


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


def test_coverage_lists_states_and_events_per_fault(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seeds", "4", "--seed", "1", "--scenario", "crash-workers", "--jobs", "2"]
    assert run_command(["sim", *arguments, "--coverage", "--json"]) == ExitCode.OK
    *lines, last = capsys.readouterr().out.splitlines()
    met = json.loads(last)["coverage"]
    assert {"crash-worker", "none", "healed"} <= {each["fault"] for each in met}
    assert {
        "process": "worker",
        "state": "restarted",
        "event": "READY",
        "fault": "crash-worker",
    } in [{key: each[key] for key in each if key != "count"} for each in met]
    assert all(each["count"] > 0 for each in met)
    assert any(line.startswith("crash-worker ") for line in lines)


def test_coverage_does_not_change_a_run() -> None:
    plain, covered = (sim_run(3, "swarm", Options(coverage=each)) for each in (False, True))
    assert covered.coverage
    assert not plain.coverage
    assert plain.digest == covered.digest
    assert not covered.entries


def test_output_does_not_depend_on_the_number_of_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for jobs in ("1", "2"):
        run_command(["sim", "--seeds", "6", "--seed", "1", "--jobs", jobs, "--json"])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_one_seed_prints_every_knob_and_its_transcript(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["sim", "--seed", "4", "--scenario", "calm", "--transcript"])
    out = capsys.readouterr().out
    assert code == ExitCode.OK
    assert "seed 4 of calm" in out
    for knob in ("calls", "interval_s", "network", "faults", "worker", "client"):
        assert f"\n  {knob} " in out
    assert "client-1 → broker" in out


def test_violations_are_printed_with_a_replay_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(parts=(MajordomoParts(client=mdp_peer_mutants.AnswersTwice),))

    def broken(seed: int, scenario: str, _options: Any = None) -> Any:
        return sim_run(seed, scenario, options)

    monkeypatch.setattr("requite.sim.run", broken)
    code = run_command(["sim", "--seeds", "2", "--seed", "1", "--scenario", "calm", "--jobs", "1"])
    out = capsys.readouterr().out
    assert code == ExitCode.FAILED
    assert "I1 at " in out
    assert "cannot be shrunk: when it was run again, it did not violate the invariant" in out
    replay = next(line for line in out.splitlines() if line.startswith("replay: "))
    command = shlex.split(replay.removeprefix("replay: requite "))
    assert run_command(command) == ExitCode.OK  # the replay runs intact engines
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


def test_violations_of_a_plan_are_printed_with_a_replay_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "the plan.toml"
    file.write_text(write(draw(1, "calm")), "utf-8")
    options = Options(parts=(MajordomoParts(client=mdp_peer_mutants.AnswersTwice),))
    monkeypatch.setattr("requite.sim.play", lambda plan, _options: sim_play(plan, options))
    assert run_command(["sim", "--plan", str(file)]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "I1 at " in out
    assert f"replay: requite sim --plan '{file}'" in out.splitlines()


@pytest.fixture
def broken_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run seeds and plans with a client that delivers each reply twice."""
    parts = MajordomoParts(client=mdp_peer_mutants.AnswersTwice)

    def with_parts(options: Options | None) -> Options:
        return replace(options or Options(), parts=(parts,))

    module = import_module("requite.sim.run")  # `requite.sim` has a function of that name
    monkeypatch.setattr(module, "play", lambda p, o=None: sim_play(p, with_parts(o)))
    monkeypatch.setattr("requite.sim.play", lambda p, o=None: sim_play(p, with_parts(o)))


@pytest.mark.usefixtures("broken_client")
@pytest.mark.parametrize("words", [["--seed", "1"], ["--seed", "1", "--seeds", "4", "--jobs", "1"]])
def test_the_smallest_plan_of_a_violation_is_written_and_shown(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["sim", *words, "--scenario", "calm"]
    assert run_command(command) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["calm-1-I1.toml"]  # one per invariant
    assert "0 faults and 0 calls now" in out  # a probe after the faults violates I1
    assert "├─" in out
    assert "REQUEST" in out
    assert max(map(len, out.splitlines())) < 500
    assert "replay: requite sim --plan calm-1-I1.toml" in out
    assert run_command(["sim", "--plan", "calm-1-I1.toml"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "I1 at " in out
    assert "shrunk" not in out  # a plan is shrunk only on request


def test_a_checker_that_raises_is_reported_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("what the checker looked for")

    monkeypatch.setattr(EndsOnce, "finished", fail, raising=False)
    command = ["sim", "--seeds", "2", "--seed", "1", "--scenario", "calm", "--jobs", "1"]
    assert run_command([*command, "--no-shrink"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    for seed in (1, 2):
        assert f"replay: requite sim --seed {seed} --scenario calm" in out
    assert "LookupError: what the checker looked for" in out


@pytest.mark.usefixtures("broken_client")
def test_a_shrunk_plan_that_cannot_be_written_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calm-1-I1.toml").mkdir()
    command = ["sim", "--seeds", "2", "--seed", "1", "--scenario", "calm", "--jobs", "1"]
    assert run_command(command) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "calm-1-I1.toml cannot be written" in out
    assert 'scenario = "calm"' in out
    assert "seed 2 of calm" in out


def test_knobs_of_pools_are_printed() -> None:
    knobs = knobs_of(7, "pool-swarm")
    assert isinstance(knobs, Printed)
    printed = {line.split()[0] for line in knobs.lines()}
    assert {"managers", "unbind_delay_s", "delivery_limit", "faults"} <= printed


@pytest.mark.usefixtures("broken_client")
def test_given_knobs_are_part_of_the_replay_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["sim", "--seed", "1", "--scenario", "calm", "--no-shrink", "--knob", "calls=3"]
    assert run_command([*command, "--knob", "services=['a b']"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "\n  calls              3\n" in out
    replay = next(line for line in out.splitlines() if line.startswith("replay: "))
    words = shlex.split(replay.removeprefix("replay: requite "))
    assert words[-4:] == ["--knob", "calls=3", "--knob", "services=['a b']"]


@pytest.mark.parametrize(
    ("knob", "why"),
    [
        ("calls", "has no value"),
        ("nope=1", "there is no knob 'nope'"),
        ("calls=many", "has the wrong type"),
        ("calls=-1", "out of range"),
        ("calls=2000000", "at most 100,000 calls"),
        ("follow_p=1.5", "out of range; it is 0 to 1"),
        ("follow_p=nan", "out of range"),
        ("faulty_s=inf", "out of range"),
        ("faults_per_s=1e9", "more than 100,000 faults"),
        ("faults=['earthquake']", "there is no 'earthquake'"),
        ("weights=[1]", "seed 1 of freezes cannot be drawn with other knobs (weights)"),
        (f"calls={'9' * 5000}", "has the wrong type"),
    ],
)
def test_an_invalid_knob_is_rejected(
    knob: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sim", "--seed", "1", "--scenario", "freezes", "--knob", knob]
    assert run_command(command) == ExitCode.USAGE
    assert why in capsys.readouterr().err


def test_a_file_without_a_plan_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.toml"
    for content in ("hello", 'scenario = "calm"'):
        file.write_text(content, "utf-8")
        assert run_command(["sim", "--plan", str(file)]) == ExitCode.USAGE
        assert f"{file} is not a plan: " in capsys.readouterr().err
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
        ["--seeds", "1000001"],
        ["--transcript", "--seeds", "2"],
        ["--seed", "-1"],
        ["--write-plan", "x.toml"],
        ["--plan", "x.toml", "--seed", "1"],
        ["--plan", "x.toml", "--knob", "calls=1"],
        ["--plan", "x.toml", "--scenario", "calm"],
    ],
)
def test_invalid_arguments_are_rejected(words: list[str]) -> None:
    assert run_command(["sim", *words]) == ExitCode.USAGE


def test_the_processes_of_a_killed_sweep_end() -> None:
    words = ["sim", "--seeds", "5000", "--scenario", "calm", "--jobs", "2"]
    with Popen([*COMMAND, *words], stdout=PIPE, stderr=DEVNULL) as sweep:
        children = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children")
        while sweep.poll() is None and len(children.read_text().split()) < 2:
            time.sleep(0.01)
        sweep.kill()
        assert sweep.stdout is not None
        sweep.stdout.read()  # ends when no process has it open
