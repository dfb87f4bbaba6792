"""The lanes of `make unit`: none hides another, two run at once, and an interrupt ends them all."""

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
from tests.lanes import FOLDERS, LANES, ROOT, Lane
from tests.support.live import eventually

FAILS = "print('before'); print('FAILED tests/x.py::test_y - no'); print('= 1 failed ='); exit(1)"
PASSES = "print('= 1 passed =')"


def lane(name: str, program: str, *arguments: object) -> Lane:
    return Lane(name, (sys.executable, "-c", program, *map(str, arguments)))


def test_folders_have_one_lane_each_and_the_last_lane_has_the_rest() -> None:
    folders = [folder for each in FOLDERS.values() for folder in each]
    assert len(folders) == len(set(folders))
    assert all((ROOT / folder).is_dir() for folder in folders)
    (rest,) = (each for each in LANES if each.name == "engines")
    ignored = {x.removeprefix("--ignore=") for x in rest.command if x.startswith("--ignore=")}
    assert ignored == set(folders)
    assert "tests" in rest.command


@pytest.mark.parametrize("at_once", [1, 2])
async def test_what_fails_hides_nothing(capsys: pytest.CaptureFixture[str], at_once: int) -> None:
    three = [lane("a", FAILS), lane("b", PASSES), lane("c", "import os; os.abort()")]
    assert await lanes.run(three, at_once) == 1
    out = capsys.readouterr().out
    end = out.rpartition("=" * 78)[2].split("\n")[1:-1]
    assert [re.sub(r" +(\d+ s)? *", " ", line).rstrip() for line in end] == [
        "FAILED tests/x.py::test_y - no",
        "a FAILED (1) 1 failed",
        "b passed 1 passed",
        "c FAILED (-6)",
    ]
    assert out.count("before\nFAILED tests/x.py::test_y - no\n= 1 failed =\nlane a") == 1


async def test_what_passes_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert await lanes.run([lane("a", PASSES), lane("b", PASSES)], 2) == 0
    assert "FAILED" not in capsys.readouterr().out


MEET = """
import sys, time
from pathlib import Path
mine, other = map(Path, sys.argv[1:])
mine.touch()
while not other.exists():
    time.sleep(0.005)
"""


async def test_two_run_at_once(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    async with asyncio.timeout(30):
        assert await lanes.run([lane("a", MEET, a, b), lane("b", MEET, b, a)], 2) == 0


def test_what_is_no_lane_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lanes.main(["spark", "bark"])
    assert "no lane bark; there are spark, " in capsys.readouterr().err


# It writes the process id of a child of its own, to whom the interrupt goes as well.
STAYS = """
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
from tests.lanes import Lane, run
program, *marks = sys.argv[1:]
lanes = [Lane(mark[-1], (sys.executable, "-c", program, mark)) for mark in marks]
sys.exit(asyncio.run(run(lanes, 2)))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_them_all(tmp_path: Path, how: signal.Signals) -> None:
    marks = [tmp_path / name for name in "abc"]
    command = [sys.executable, "-c", RUNNER, STAYS, *map(str, marks)]
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
