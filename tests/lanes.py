"""Run the tests in lanes: concurrent processes, each with a part of the tests, or a slow check.

    python -m tests.lanes                  all lanes
    python -m tests.lanes spark engines    two lanes
    python -m tests.lanes --at-once 1      one lane at a time
    python -m tests.lanes --seed 7         set the seed of hashes and of the simulator

Each lane is a process group with a time limit. Once a minute, a line shows the current test of each
lane. The complete output of a lane is in a file. A failed lane prints its failures and does not
stop the others; all failures are repeated at the end. SIGINT, SIGTERM or SIGHUP ends all lanes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import psutil
from tests.support import bytecode

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / "build" / "lanes"
SEED_VARIABLE: Final = "REQUITE_TEST_SEED"
_END_S: Final = 45.0  # Spark's processes need some time to end after an interrupt
_ABORT_S: Final = 5.0  # time for a hanging lane to print its stacks
_REPORT_S: Final = 60.0
_CANNOT_START: Final = 127  # as in a shell
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NAME_SIZE: Final = 120  # characters of a test's name in a progress line
_TAIL: Final = 60  # lines to show of a lane that ended without pytest's summary
_SUMMARY: Final = re.compile(
    r"^=+ (?:ERRORS|FAILURES|warnings summary|short test summary info) =+$", re.M
)
_DONE: Final = re.compile(r"\[ *(\d+)%\]$", re.M)


class Lane(NamedTuple):
    """A lane: its name, its command, and the time limit in seconds, after which it is killed.

    Each test has its own limit (`tests.support.limits`). The lane's limit ends a process that hangs
    outside of a test: during collection or at exit. It is four times the duration of the slowest
    lane, because a virtual machine may get half of a processor's time.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float = 2700.0


def _pytest(*arguments: str) -> tuple[str, ...]:
    # Without pytest's cache, which does not support concurrent writers.
    options = ("-v", "-p", "no:cacheprovider", "-m", "not nng and not long", "--durations=30")
    return (sys.executable, "-m", "pytest", *options, *arguments)


# Folders by lane. The lane `rest` has all other tests. A lane skips subfolders of its folders that
# belong to another lane.
FOLDERS: Final = {
    "pipeline": ("tests/spark/pipeline",),
    "spark": ("tests/spark",),
    "e2e": ("tests/e2e",),
    "rabbitmq": ("tests/amqp", "tests/pool"),
    "cli": ("tests/cli",),
    "sim": ("tests/sim",),
    # `make check` runs this lane: its tests start no processes.
    "engines": tuple(
        f"tests/{name}" for name in ("engines", "wire", "spec", "framing", "pair", "transcripts")
    ),
    "interop": ("tests/interop", "tests/compat"),
}
_NAMED: Final = tuple(folder for folders in FOLDERS.values() for folder in folders)


def _in(*folders: str) -> tuple[str, ...]:
    """Return the command for the tests in these folders, without subfolders of other lanes."""
    others = (
        name
        for name in _NAMED
        if name not in folders and any(name.startswith(f"{folder}/") for folder in folders)
    )
    return _pytest(*folders, *(f"--ignore={name}" for name in others))


CHECKS: Final = ("types", "docs")  # targets of the Makefile
_ALL: Final = {
    **{name: _in(*folders) for name, folders in FOLDERS.items()},
    **{name: ("make", "--no-print-directory", name) for name in CHECKS},
    "rest": _in("tests"),
    "nng": ("scripts/test-nng",),
    "compiled": (sys.executable, "-m", "tests.compiled"),
}
# The order in which lanes start: the longest first, so that short ones fill the gaps at the end.
_ORDER: Final = (
    "pipeline",
    "e2e",
    "spark",
    "rabbitmq",
    "cli",
    "sim",
    "rest",
    "compiled",
    "engines",
    "interop",
    "nng",
    *CHECKS,
)
LANES: Final = tuple(Lane(name, _ALL[name]) for name in sorted(_ALL, key=_ORDER.index))


class Result(NamedTuple):
    """The result of a lane. `code` is its process's exit code; None if the lane did not start."""

    name: str
    code: int | None
    seconds: float
    output: str

    @property
    def line(self) -> str:
        """The lane's row in the final table: verdict, seconds, and the last line of its output."""
        last = self.output.rstrip().rpartition("\n")[2].strip("= ")
        verdict = {0: "passed", None: "not run"}.get(self.code, f"FAILED ({self.code})")
        return f"{self.name:<10} {verdict:<12} {self.seconds:5.0f} s  {last}".rstrip()

    @property
    def failures(self) -> list[str]:
        """The lines of pytest's summary that name failed tests."""
        named = ("FAILED tests", "ERROR tests")
        return [line for line in self.output.splitlines() if line.startswith(named)]

    @property
    def report(self) -> str:
        """The part of the output to show: pytest's failures and warnings, or the last lines of a
        lane that failed without a summary."""
        if found := _SUMMARY.search(self.output):
            return self.output[found.start() :].rstrip()
        lines = self.output.rstrip().splitlines()
        return "" if self.code == 0 else "\n".join(lines[-_TAIL:])


class Running:
    """A running lane. Its process leads a process group, which receives all signals."""

    def __init__(self, lane: Lane, process: asyncio.subprocess.Process, log: Path) -> None:
        self.lane = lane
        self._process = process
        self._log = log

    async def end(self) -> int:
        """Wait until the lane ends; return its exit code. At the time limit, print its stacks and
        kill it."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), self.lane.limit_s)
        with self._log.open("a") as log:
            log.write(f"\nThe lane was not done after {self.lane.limit_s:g} s; its stacks:\n")
        self.signal(signal.SIGABRT)  # faulthandler prints the stacks of all threads
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _ABORT_S)
        self.signal(signal.SIGKILL)
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, if it has a process."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def processes(self) -> list[str]:
        """Return the command line of each process of the group that has not ended."""
        found = []
        for each in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getpgid(each.pid) == self._process.pid:
                    found.append(" ".join(each.cmdline()))  # raises if it has ended
        return found

    def progress(self) -> str:
        """Return the lane's name, its progress in percent, and its current test."""
        output = self._log.read_text(errors="replace")
        done = _DONE.findall(output)
        test = output.rpartition("\n")[2].strip()[:_NAME_SIZE]
        return f"{self.lane.name} {done[-1] if done else 0} % {test}".rstrip()


class Runner:
    """Runs up to `at_once` lanes concurrently. `stop` ends the running lanes and starts no more."""

    def __init__(self, logs: Path, at_once: int) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._turns = asyncio.Semaphore(at_once)
        self._running: dict[str, Running] = {}
        self._began = monotonic()
        self.stopping = asyncio.Event()

    async def run(self, lane: Lane) -> Result:
        """Wait for a free slot, run a lane, and print the relevant part of its output."""
        async with self._turns:
            if self.stopping.is_set():
                return Result(lane.name, None, 0.0, "")
            _say(f"lane {lane.name} begins")
            begun = monotonic()
            log = self._logs / f"{lane.name}.log"
            log.unlink(missing_ok=True)
            try:
                code = await self._run_process(lane, log)
            except OSError as error:
                code = _CANNOT_START
                log.write_text(f"cannot start {lane.command[0]}: {error.strerror}\n")
            result = Result(lane.name, code, monotonic() - begun, log.read_text(errors="replace"))
        if result.report:
            _say(f"{'=' * 30} lane {lane.name} {'=' * 30}\n{result.report}")
        _say(f"lane {result.line}")
        return result

    async def _run_process(self, lane: Lane, log: Path) -> int:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *lane.command,
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        running = self._running[lane.name] = Running(lane, process, log)
        try:
            return await running.end()
        finally:
            del self._running[lane.name]
            left = running.processes()
            running.signal(signal.SIGKILL)
            if left:
                names = "".join(f"\n    {each}" for each in left)
                _say(f"lane {lane.name} has left processes behind, which are killed:{names}")

    async def report(self, every_s: float = _REPORT_S) -> None:
        """Print the progress of all running lanes every `every_s` seconds, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            minutes, seconds = divmod(round(monotonic() - self._began), 60)
            lanes = "; ".join(running.progress() for running in self._running.values())
            _say(f"{minutes:3}:{seconds:02}  {lanes}")

    def stop(self) -> None:
        """Interrupt the running lanes with SIGINT; kill them at the second call, or after
        `_END_S`."""
        again = self.stopping.is_set()
        self.stopping.set()
        for running in self._running.values():
            running.signal(signal.SIGKILL if again else signal.SIGINT)
        if not again:
            asyncio.get_running_loop().call_later(_END_S, self.stop)


def _say(text: str) -> None:
    print(text, flush=True)


def _sum_up(results: Sequence[Result]) -> None:
    """Print all failures, then the result of each lane."""
    _say("=" * 78)
    for result in results:
        for line in result.failures:
            _say(line)
    for result in results:
        _say(result.line)


async def run(lanes: Sequence[Lane], at_once: int, logs: Path = LOGS) -> int:
    """Run the lanes; return 0 if all passed, 1 if one failed, 130 after an interrupt."""
    runner = Runner(logs, at_once)
    for number in _STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, runner.stop)
    reporting = asyncio.create_task(runner.report())
    results = await asyncio.gather(*(runner.run(lane) for lane in lanes))
    reporting.cancel()
    _sum_up(results)
    if runner.stopping.is_set():
        return 130
    return int(any(result.code != 0 for result in results))


def chosen(names: Sequence[str]) -> list[Lane]:
    """Return the lanes of these names; all without names."""
    return [lane for lane in LANES if lane.name in names or not names]


def seed_of_the_commit() -> int:
    """Return the first seven hex digits of the current commit as a number; 0 outside of git."""
    with suppress(OSError, subprocess.CalledProcessError):
        command = ("git", "rev-parse", "HEAD")
        return int(subprocess.check_output(command, cwd=ROOT, stderr=subprocess.DEVNULL)[:7], 16)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the lanes of the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [lane.name for lane in LANES]
    parser.add_argument("lane", nargs="*", help=f"one of {', '.join(names)}")
    # Two per core, because half of the lanes mostly wait and use a core for two fifths of the time.
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1), metavar="N")
    parser.add_argument("--seed", type=int, metavar="N", help="that of the commit if none is named")
    asked = parser.parse_args(words)
    if unknown := set(asked.lane) - set(names):
        parser.error(f"no lane {sorted(unknown)[0]}; there are {', '.join(names)}")
    if asked.at_once < 1:
        parser.error("at least one lane runs at once")
    seed = seed_of_the_commit() if asked.seed is None else asked.seed
    if not 0 <= seed < 2**32:
        parser.error("a seed is 0 to 4294967295")
    os.environ["PYTHONHASHSEED"] = os.environ[SEED_VARIABLE] = str(seed)
    lanes = f' LANES="{" ".join(asked.lane)}"' if asked.lane else ""
    _say(f"seed {seed}; to repeat this run: make unit SEED={seed}{lanes}")
    bytecode.keep()  # here as well, because pytest is imported before the tests' conftest.py
    return asyncio.run(run(chosen(asked.lane), asked.at_once))


if __name__ == "__main__":
    sys.exit(main())
