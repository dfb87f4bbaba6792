"""The lanes of `make unit`: concurrency, failures, time limits, and interrupts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import lanes
from tests.lanes import CHECKS, FOLDERS, LANES, ROOT, Lane
from tests.support.live import eventually

FAILS = "print('before'); print('FAILED tests/x.py::test_y - no'); print('= 1 failed ='); exit(1)"
PASSES = "print('= 1 passed =')"
WARNS = """
print("tests/x.py::test_y PASSED   [100%]")
print("=== warnings summary ===")
print("a warning")
print("= 1 passed =")
"""


def lane(name: str, program: str, *arguments: object) -> Lane:
    return Lane(name, (sys.executable, "-c", program, *map(str, arguments)))


def test_each_folder_has_one_lane_and_the_lane_rest_has_the_others() -> None:
    folders = [folder for each in FOLDERS.values() for folder in each]
    assert len(folders) == len(set(folders))
    assert all((ROOT / folder).is_dir() for folder in folders)
    (rest,) = (each for each in LANES if each.name == "rest")
    ignored = {x.removeprefix("--ignore=") for x in rest.command if x.startswith("--ignore=")}
    assert ignored == set(folders)
    assert "tests" in rest.command


def test_each_check_is_a_target_of_make() -> None:
    commands = {each.name: each.command for each in LANES}
    for name in CHECKS:
        steps = subprocess.check_output([*commands[name], "--dry-run"], cwd=ROOT, text=True)
        assert ".venv/bin/" in steps


def test_all_lanes_run_if_none_is_named() -> None:
    assert lanes.chosen([]) == list(LANES)
    assert [each.name for each in lanes.chosen(["sim", "compiled"])] == ["sim", "compiled"]


async def test_without_a_c_compiler_the_lane_of_the_compiled_core_says_so_in_its_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert await lanes.run(lanes.chosen(["compiled"]), 1, tmp_path) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    said = "the compiled core is not tested: there is no C compiler (/nowhere/cc)"
    assert re.fullmatch(rf"compiled   passed +\d+ s  {re.escape(said)}", last)


@pytest.mark.parametrize("at_once", [1, 2])
async def test_all_lanes_run_and_are_reported_if_some_fail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, at_once: int
) -> None:
    three = [lane("a", FAILS), lane("b", PASSES), lane("c", "import os; os.abort()")]
    assert await lanes.run(three, at_once, tmp_path) == 1
    out = capsys.readouterr().out
    end = out.rpartition("=" * 78)[2].split("\n")[1:-1]
    assert [re.sub(r" +(\d+ s)? *", " ", line).rstrip() for line in end] == [
        "FAILED tests/x.py::test_y - no",
        "a FAILED (1) 1 failed",
        "b passed 1 passed",
        "c FAILED (-6)",
    ]
    assert out.count("before\nFAILED tests/x.py::test_y - no\n= 1 failed =\nlane a") == 1


async def test_passing_lanes_exit_with_0_and_print_only_warnings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert await lanes.run([lane("a", WARNS), lane("b", PASSES)], 2, tmp_path) == 0
    out = capsys.readouterr().out
    assert "FAILED" not in out
    assert "tests/x.py::test_y PASSED" not in out
    assert "a warning" in out
    assert "tests/x.py::test_y PASSED" in (tmp_path / "a.log").read_text()


WAITS_FOR_OTHER = """
import sys, time
from pathlib import Path
mine, other = map(Path, sys.argv[1:])
mine.touch()
while not other.exists():
    time.sleep(0.005)
"""


async def test_two_lanes_run_concurrently(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with asyncio.timeout(30):
        two = [lane("a", WAITS_FOR_OTHER, a, b), lane("b", WAITS_FOR_OTHER, b, a)]
        assert await lanes.run(two, 2, tmp_path / "logs") == 0


# --- time limits ----------------------------------------------------------------------------------
# Hangs in C code, where Python cannot run a signal handler; faulthandler is on, as under pytest.
FOR_EVER = "collections.deque(itertools.repeat(0), maxlen=0)"
STUCK = f"import collections, faulthandler, itertools; faulthandler.enable(); {FOR_EVER}"


async def test_a_hanging_lane_is_killed_and_its_stacks_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stuck = lane("a", STUCK)._replace(limit_s=1.0)
    assert await lanes.run([stuck, lane("b", PASSES)], 2, tmp_path) == 1
    out = capsys.readouterr().out
    assert "The lane was not done after 1 s" in out
    assert 'File "<string>", line 1 in <module>' in out
    assert re.search(r"^a +FAILED \(-6\)", out, re.M)
    assert re.search(r"^b +passed", out, re.M)


LEAVES_A_CHILD = """
import subprocess, sys
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(sys.argv[1]).write_text(str(child.pid))
"""


async def test_remaining_processes_of_a_lane_are_killed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    assert await lanes.run([lane("a", LEAVES_A_CHILD, pid)], 1, tmp_path / "logs") == 0
    out = capsys.readouterr().out
    assert "lane a has left processes behind" in out
    assert "import time; time.sleep(600)" in out
    eventually(lambda: not is_running(int(pid.read_text())), "the child has ended")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_other_lanes_run_if_one_cannot_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    two = [Lane("a", ("/nowhere/python",)), lane("b", PASSES)]
    assert await lanes.run(two, 2, tmp_path) == 1
    out = capsys.readouterr().out
    assert "a          FAILED (127)     0 s  cannot start /nowhere/python" in out
    assert re.search(r"^b +passed", out, re.M)


WAITS_IN_A_TEST = """
import sys, time
from pathlib import Path
print("tests/x.py::test_y PASSED   [ 12%]")
print("tests/x.py::test_z[1-2] ", end="", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.005)
"""


async def test_the_report_names_the_current_test_of_a_lane(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runner = lanes.Runner(tmp_path, 1)
    running = asyncio.create_task(runner.run(lane("a", WAITS_IN_A_TEST, tmp_path / "go")))
    reporting = asyncio.create_task(runner.report(0.02))
    said = ""
    async with asyncio.timeout(30):
        while "  0:00  a 12 % tests/x.py::test_z[1-2]\n" not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().out
    reporting.cancel()
    (tmp_path / "go").touch()
    assert (await running).code == 0


CONFTEST = """
from tests.support import limits

limits.GRACE_S = 3.0

def pytest_configure(config):
    limits.begin(config)

def pytest_runtest_call(item):
    limits.watch(item)

def pytest_runtest_teardown(item):
    limits.watch(item)
"""
STUCK_TESTS = f"""
import collections, itertools, pytest, time

@pytest.mark.timeout(0.2)
def test_stuck_in_python():
    while True:
        time.sleep(0.01)

def test_fine():
    pass

@pytest.mark.timeout(0.2)
def test_stuck_in_c():
    {FOR_EVER}
"""


def test_a_hanging_test_is_ended_even_if_it_hangs_in_c_code(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_stuck.py").write_text(STUCK_TESTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntimeout = 60\npythonpath = {ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(
        command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1
    assert [line.split()[1:2] for line in lines if "::" in line] == [["FAILED"], ["PASSED"], []]
    assert "Timeout (0:00:03.200000)!" in ended.stderr
    assert "in test_stuck_in_c" in ended.stderr


SLOW_END = """
import time
from tests.support import limits

limits.GRACE_S = 1.0

def pytest_configure(config):
    limits.begin(config)

def pytest_runtest_teardown(item):
    limits.watch(item)

def pytest_sessionfinish():
    limits.end()

def pytest_unconfigure():
    time.sleep(4.0)  # longer than the watchdog would wait
"""


def test_the_watchdog_does_not_watch_the_end_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SLOW_END)
    (tmp_path / "test_fine.py").write_text("def test_fine():\n    assert True\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ntimeout = 2\npythonpath = {ROOT}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(
        command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("seed", ["-1", "4294967296"])
def test_a_seed_out_of_range_is_rejected(capsys: pytest.CaptureFixture[str], seed: str) -> None:
    with pytest.raises(SystemExit):
        lanes.main([f"--seed={seed}"])
    assert "a seed is 0 to 4294967295" in capsys.readouterr().err


def test_the_seed_is_that_of_the_commit() -> None:
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert lanes.seed_of_the_commit() == (0 if found.returncode else int(found.stdout, 16))


def test_an_unknown_lane_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lanes.main(["spark", "bark"])
    assert "no lane bark; there are pipeline, " in capsys.readouterr().err


# Starts a child, which also receives the signal, and writes its process id to a file.
RUNS_UNTIL_SIGNALLED = """
import subprocess, sys
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(sys.argv[1]).with_suffix(".new").write_text(str(child.pid))
Path(sys.argv[1]).with_suffix(".new").rename(sys.argv[1])
try:
    child.wait()
finally:
    child.wait()
"""
RUNNER = """
import asyncio, sys
from pathlib import Path
from tests.lanes import Lane, run
program, *marks = sys.argv[1:]
lanes = [Lane(mark[-1], (sys.executable, "-c", program, mark)) for mark in marks]
sys.exit(asyncio.run(run(lanes, 2, Path(marks[0]).parent / "logs")))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_lanes(tmp_path: Path, how: signal.Signals) -> None:
    marks = [tmp_path / name for name in "abc"]
    command = [sys.executable, "-c", RUNNER, RUNS_UNTIL_SIGNALLED, *map(str, marks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as runner:
        eventually(lambda: marks[0].exists() and marks[1].exists(), "two lanes run")
        runner.send_signal(how)
        out, _ = runner.communicate(timeout=30)
    assert runner.returncode == 130
    assert [line.split()[:2] for line in out.splitlines()[-3:]] == [
        ["a", "FAILED"],
        ["b", "FAILED"],
        ["c", "not"],
    ]
    assert not marks[2].exists()
    for mark in marks[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.read_text()), 0)
