"""Make the page of measurements anew: `python -m bench.all --docs PAGE --beside PYTHON`.

Runs all benchmarks of the page one after the other, each in its own process. Started again after an
interruption or a failure, it continues with the parts that are not done. Run it on a quiet machine,
with the system's Python and the compiled build, and the pure build as PYTHON.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

from bench import builds, contenders, machine, quiet
from bench.amqp.contenders import CONTENDERS as OVER_RABBITMQ
from bench.sp.cells import SECTIONS

STATE: Final = Path("build/bench-all.json")
LOGS: Final = Path("build/bench-all")


class Part(NamedTuple):
    """A benchmark: the arguments of its command, and those that shorten it for a trial.

    `takes_s` is an estimate for a quiet machine with two cores. One that `has_builds` measures both
    builds, and `docs` says whether `--docs` is the page or its folder. Memory does not depend on
    other load, so it needs no quiet machine.
    """

    name: str
    command: str
    takes_s: int
    quick: str
    has_builds: bool = False
    docs: str = "page"
    needs_quiet: bool = True

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the arguments of Python."""
        page = given.docs if self.docs == "page" else given.docs.parent
        beside = given.beside is not None and self.has_builds
        return [
            "-m",
            *self.command.split(),
            *(self.quick.split() if given.quick else ()),
            *(["--beside", given.beside.python] if beside else ()),
            *(["--busy"] if given.busy and self.needs_quiet else ()),
            *("--docs", str(page)),
        ]


_TURN: Final = "--runs 1 --seconds 0.1 --requests 10 --warm-up 0.1 --cell 64x4x11"

PARTS: Final = (
    Part(
        "brokers",
        "bench --kind broker native --runs 5 --seconds 0.7 --requests 1000 --warm-up 0.3"
        " --json build/bench-broker.json"
        " --cell 1x4x11 64x4x11 64x4x1024 64x64x11 256x64x11",
        420,
        _TURN,
        has_builds=True,
    ),
    Part(
        "end to end",
        "bench --kind end-to-end --runs 7 --seconds 1.2 --requests 1000"
        " --json build/bench-end-to-end.json --cell 1x4x11 64x4x11 64x4x1024 256x4x11",
        380,
        _TURN,
        has_builds=True,
    ),
    Part(
        "journal, TLS, CURVE, rights",
        "bench --kind journal tls curve access --runs 7 --seconds 0.8 --requests 1000"
        " --warm-up 0.3 --json build/bench-options.json --cell 64x4x11 64x4x1024",
        220,
        _TURN,
    ),
    Part("engine", "bench.engine --rounds 200", 15, "--rounds 5"),
    Part(
        "growth",
        "bench.growth --curve services workers clients pending body --seconds 0.5 --points 6",
        160,
        "--seconds 0.2 --points 1",
    ),
    Part(
        "growth of groups and backlog",
        "bench.growth --curve groups backlog --seconds 1 --points 3",
        80,
        "--seconds 0.2 --points 1",
    ),
    Part("memory", "bench.memory", 120, "--count 4", needs_quiet=False),
    Part(
        "overload",
        "bench.growth --curve overload brokers --seconds 2",
        330,
        "--seconds 0.2 --points 1",
    ),
    Part(
        "SP",
        "bench.sp --rounds 4 --seconds 0.6 --requests 3000 --warm-up 0.3",
        450,
        "--rounds 1 --seconds 0.1 --requests 10 --warm-up 0.1 --size 11 --section 1 2",
        has_builds=True,
    ),
    Part("Spark, bulk calls", "bench.spark bulk --runs 3", 100, "--rows 2000 --runs 1"),
    Part(
        "Spark, pipeline",
        "bench.spark pipeline --events 300000 1000000",
        120,
        "--events 2000",
    ),
    Part("Spark, journal", "bench.spark source --runs 5", 80, "--events 5000 --runs 1"),
    Part(
        "durable",
        "bench.durable --rounds 5 --seconds 1 --warm-up 0.5 --clients 1 64",
        200,
        "--rounds 1 --seconds 0.1 --warm-up 0.1 --clients 64",
        has_builds=True,
    ),
    Part(
        "AMQP",
        "bench.amqp calls start groups",
        430,
        "--quick",
        has_builds=True,
        docs="folder",
    ),
    Part("flood", "bench.flood --rounds 2 --seconds 2", 140, "--rounds 1 --seconds 0.2"),
    Part("fail-over", "bench.failover --fail-overs 40 --heartbeat 0.25", 60, "--fail-overs 2"),
)


def main(arguments: Sequence[str]) -> int:
    """Run the parts; return 1 if one of them failed, was interrupted or cannot be measured."""
    given = parse(arguments)
    if missing := list(lacks(builds.all_of(given))):
        print(*missing, sep="\n")
        if not given.incomplete:
            print("nothing was measured; --incomplete leaves these out", file=sys.stderr)
            return 1
    parts = [part for part in PARTS if part.name in (given.only or [part.name])]
    state = State(given)
    left = parts if given.only else [part for part in parts if part.name not in state.done]
    for part in parts:
        if part not in left:
            print(f"{part.name}: done before, in {state.done[part.name]:.0f} s")
    failed = []
    for number, part in enumerate(left):
        minutes = sum(each.takes_s for each in left[number:]) / 60
        print(f"\n=== {part.name}: {number + 1} of {len(left)}; about {minutes:.0f} min left ===")
        began = perf_counter()
        try:
            status = run(part, given)
        except KeyboardInterrupt:
            print(f"\ninterrupted: start again to continue with {part.name}", file=sys.stderr)
            return 1
        took_s = perf_counter() - began
        print(f"=== {part.name}: {took_s:.0f} s, {part.takes_s} s expected ===", flush=True)
        if status:
            failed.append(part.name)
        else:
            state.add(part.name, took_s)
    if failed:
        print(f"failed: {', '.join(failed)}; see {LOGS}. Start again to repeat them.")
        return 1
    if state.done.keys() >= {part.name for part in PARTS}:
        state.end()
    print(f"\n{len(left)} parts are written to {given.docs}")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    total_min = sum(part.takes_s for part in PARTS) / 60
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(
        prog="python -m bench.all",
        description=f"{__doc__}\nAll parts take about {total_min:.0f} minutes.",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--docs", type=Path, required=True, help="the page, performance.md")
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="PART", help=f"some of: {', '.join(names)}"
    )
    parser.add_argument("--fresh", action="store_true", help="repeat parts that are done, too")
    parser.add_argument(
        "--incomplete", action="store_true", help="leave out contenders that are not installed"
    )
    parser.add_argument("--quick", action="store_true", help="few and short turns, as a trial")
    builds.add_option(parser)
    quiet.add_option(parser)
    return parser.parse_args(arguments)


def lacks(measured: Sequence[builds.Build]) -> Iterator[str]:
    """Yield what is missing to measure everything."""
    lines = [line for section in SECTIONS for line in section.lines]
    everybody = [*contenders.contenders(measured), *OVER_RABBITMQ, *lines]
    missing: dict[str, dict[str, None]] = {}
    for each in everybody:
        if lack := each.lack():
            missing.setdefault(lack, {})[each.name] = None
    yield from (f"missing: {'; '.join(names)}: {lack}" for lack, names in missing.items())
    for module in ("pyspark", "altair", "vl_convert"):
        if find_spec(module) is None:
            yield f"no module {module}: run `scripts/setup runtime`"


def run(part: Part, given: argparse.Namespace) -> int:
    """Run a part, show its output and write it to its log; return its exit status."""
    LOGS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-u", *part.words(given)]
    with (
        (LOGS / f"{part.name}.log").open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                log.write(line)
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def _leave(*_: object) -> None:
    raise KeyboardInterrupt


class State:
    """The parts that are done, with their seconds; kept in a file until all are.

    Other options, another Python or another page begin anew, as `--fresh` does.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._key = {
            **machine.facts(builds.all_of(given)),
            "page": str(given.docs.resolve()),
            "how": f"quick: {given.quick}, busy: {given.busy}",
        }
        known: dict[str, Any] = {}
        if STATE.exists() and not given.fresh:
            known = json.loads(STATE.read_text())
        self.done: dict[str, float] = known["done"] if known.get("key") == self._key else {}

    def add(self, name: str, took_s: float) -> None:
        """Record a part that is done."""
        self.done[name] = took_s
        STATE.parent.mkdir(exist_ok=True)
        STATE.write_text(json.dumps({"key": self._key, "done": self.done}, indent=1))

    def end(self) -> None:
        """Forget the parts: everything is done."""
        STATE.unlink(missing_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)  # so that the part ends, too
    sys.exit(main(sys.argv[1:]))
