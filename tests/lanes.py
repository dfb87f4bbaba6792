"""Run the tests in lanes, two at a time: most machines have two cores, and one process uses one.

    python -m tests.lanes                  all lanes
    python -m tests.lanes spark engines    these
    python -m tests.lanes --at-once 1      one after the other

Each lane is a process, whose output is printed in one piece when it ends. Whatever one lane comes
to, the others run; what failed is said again at the end. SIGINT, SIGTERM or SIGHUP ends them all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

from tests.support import bytecode

ROOT: Final = Path(__file__).parents[1]
_END_S: Final = 45.0  # Spark's processes take their time; who is not gone then is killed
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lane(NamedTuple):
    """A name, and the command that runs it."""

    name: str
    command: tuple[str, ...]


def _pytest(*arguments: str) -> tuple[str, ...]:
    # Without its cache, which is made for one writer.
    options = ("-p", "no:cacheprovider", "-m", "not nng and not long")
    return (sys.executable, "-m", "pytest", *options, *arguments)


# Folders with a lane of their own. Every other test is in the lane `engines`, so none is left out.
FOLDERS: Final = {
    "spark": ("tests/spark",),
    "e2e": ("tests/e2e",),
    "sim": ("tests/sim",),
    "commands": ("tests/cli", "tests/amqp", "tests/pool"),
    "interop": ("tests/interop",),
}
_NAMED: Final = tuple(folder for folders in FOLDERS.values() for folder in folders)

_REST: Final = _pytest("tests", *(f"--ignore={folder}" for folder in _NAMED))
_ALL: Final = {
    **{name: _pytest(*folders) for name, folders in FOLDERS.items()},
    "engines": _REST,
    "nng": ("scripts/test-nng",),
}
# They begin in this order: the longest first, so that the short ones fill the gap at the end.
_ORDER: Final = ("spark", "e2e", "commands", "engines", "sim", "interop", "nng")
LANES: Final = tuple(Lane(name, _ALL[name]) for name in sorted(_ALL, key=_ORDER.index))


class Result(NamedTuple):
    """What a lane came to. `code` is that of its process; None if the lane did not begin."""

    name: str
    code: int | None
    seconds: float
    output: str

    @property
    def line(self) -> str:
        """Its row in the table at the end: how it ended, in seconds, and its own last line."""
        last = self.output.rstrip().rpartition("\n")[2].strip("= ")
        verdict = {0: "passed", None: "not run"}.get(self.code, f"FAILED ({self.code})")
        return f"{self.name:<10} {verdict:<12} {self.seconds:5.0f} s  {last}".rstrip()

    @property
    def failures(self) -> list[str]:
        """The lines in which pytest names what failed."""
        named = ("FAILED tests", "ERROR tests")
        return [line for line in self.output.splitlines() if line.startswith(named)]


class Runner:
    """Runs lanes; `stop` ends those that run, and lets no other begin."""

    def __init__(self, folder: Path, at_once: int) -> None:
        self._folder = folder
        self._turns = asyncio.Semaphore(at_once)
        self._running: set[asyncio.subprocess.Process] = set()
        self.stopping = asyncio.Event()

    async def run(self, lane: Lane) -> Result:
        """Run a lane when it is its turn, and print what it printed."""
        async with self._turns:
            if self.stopping.is_set():
                return Result(lane.name, None, 0.0, "")
            _say(f"lane {lane.name} begins")
            begun = monotonic()
            log = self._folder / lane.name
            code = await self._run_process(lane, log)
            result = Result(lane.name, code, monotonic() - begun, log.read_text(errors="replace"))
        _say(f"{'=' * 30} lane {lane.name} {'=' * 30}\n{result.output.rstrip()}")
        _say(f"lane {result.line}")
        return result

    async def _run_process(self, lane: Lane, log: Path) -> int:
        with log.open("wb") as output:
            # In a group of its own, so that it gets each signal once, and its children, too.
            process = await asyncio.create_subprocess_exec(
                *lane.command,
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._running.add(process)
        code = await process.wait()
        self._running.discard(process)
        return code

    def stop(self) -> None:
        """Interrupt what runs, as a terminal does; a second time, or after a while, kill it."""
        again = self.stopping.is_set()
        self.stopping.set()
        self._signal(signal.SIGKILL if again else signal.SIGINT)
        if not again:
            asyncio.get_running_loop().call_later(_END_S, self.stop)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, number)


def _say(text: str) -> None:
    print(text, flush=True)


def _sum_up(results: Sequence[Result]) -> None:
    """Say what failed, and how each lane ended: the last lines are what people read."""
    _say("=" * 78)
    for result in results:
        for line in result.failures:
            _say(line)
    for result in results:
        _say(result.line)


async def run(lanes: Sequence[Lane], at_once: int) -> int:
    """Run the lanes; return 0 if all passed, 1 if one did not, 130 if they were interrupted."""
    with TemporaryDirectory(prefix="requite-lanes-") as folder:
        runner = Runner(Path(folder), at_once)
        for number in _STOPPING:
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        results = await asyncio.gather(*(runner.run(lane) for lane in lanes))
    _sum_up(results)
    if runner.stopping.is_set():
        return 130
    return int(any(result.code != 0 for result in results))


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [lane.name for lane in LANES]
    parser.add_argument("lane", nargs="*", help=f"one of {', '.join(names)}; all if none is named")
    parser.add_argument("--at-once", type=int, default=min(2, os.cpu_count() or 1), metavar="N")
    asked = parser.parse_args(words)
    if unknown := set(asked.lane) - set(names):
        parser.error(f"no lane {sorted(unknown)[0]}; there are {', '.join(names)}")
    if asked.at_once < 1:
        parser.error("at least one lane runs at once")
    bytecode.keep()  # for pytest itself, which is loaded before the tests are
    return asyncio.run(
        run([x for x in LANES if not asked.lane or x.name in asked.lane], asked.at_once)
    )


if __name__ == "__main__":
    sys.exit(main())
