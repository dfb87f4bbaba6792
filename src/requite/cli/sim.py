"""`requite sim`: run seeds of the deterministic simulator."""

from __future__ import annotations

import os
import secrets
import shlex
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JsonFlag
from requite.cli.output import say, say_json, stderr_console
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from requite.sim import Options, Plan, Result

_SEEDS_DEFAULT: Final = 100
_FRESH_SEEDS: Final = 1 << 31
_POSITIVE: Final = validators.Number(gt=0)
_WIDTH_MAX: Final = 400  # of a violation, which may quote a large body
_SHOWN_MAX: Final = 10  # violations per run; the first ones tell, the others follow from them
# A task of a few runs is long enough that handing it out costs nothing.
_RUNS_PER_TASK: Final = 5


def sim(
    *,
    seeds: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_POSITIVE,
            show_default=False,
            help=f"How many seeds to run: {_SEEDS_DEFAULT}, or 1 with --seed.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Parameter(
            metavar="S",
            validator=validators.Number(gte=0),
            help="The first seed; without, a fresh one.",
        ),
    ] = None,
    scenario: Annotated[
        str,
        Parameter(
            metavar="NAME",
            help="What may go wrong; `list` tells. `all`, or those of one part (`mdp`, `sp`, "
            "`flp`, `pirate`, …), take turns.",
        ),
    ] = "swarm",
    plan: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Play the plan in this file instead of seeds.",
        ),
    ] = None,
    write_plan: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Write the plan of the seed, if it is one, to this file; the seed runs as well.",
        ),
    ] = None,
    knob: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME=VALUE",
            show_default=False,
            help="Use this value for a knob instead of the one that is drawn; repeatable.",
        ),
    ] = (),
    shrink: Annotated[
        bool,
        Parameter(
            show_default=False,
            help="For each violation, write the smallest plan that still has it to a file in this "
            "folder, and print its messages as a diagram.",
        ),
    ] = False,
    transcript: Annotated[
        bool,
        Parameter(group=OUTPUT, show_default=False, help="Print what was said, if it is one seed."),
    ] = False,
    jobs: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_POSITIVE,
            show_default=False,
            help="Processes that share the work: one per processor.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> int:
    """Run seeds of the deterministic simulator.

    Each seed is a world of its own: the real engines and framings, a network
    that loses connections, processes that crash and freeze, peers that send
    garbage. While faults strike, no call may be lost, answered twice or given a
    wrong reply; when they have healed, everything must settle and nothing may be
    left behind.

    For each seed with violations its knobs and the command that replays it are
    printed. With --json the last line is an object: seeds, violations, calls,
    virtual_s. Exit code 1: there were violations.

    A plan is a text file with everything that is drawn from a seed: knobs,
    processes, calls and faults. It stands for the same run when later versions
    draw in other ways, and it may be edited.

      $ requite sim --seeds 500
      $ requite sim --seed 17 --scenario freezes --transcript
      $ requite sim --seed 17 --scenario freezes --write-plan freezes-17.toml
      $ requite sim --plan freezes-17.toml
      $ requite sim --seeds 500 --knob outage_max=20 --shrink
    """
    if scenario == "list":
        _list_scenarios()
        return ExitCode.OK
    if plan is not None:
        if seed is not None or seeds is not None or write_plan is not None or knob:
            raise ConfigurationError(
                "--plan takes the place of --seed, --seeds, --knob and --write-plan"
            )
        total = _play(plan, transcript, shrink)
    else:
        asked = _Asked(scenario, knob, transcript, shrink, write_plan)
        total = _run_seeds(seed, seeds, jobs, asked)
    say(total.sentence())
    if as_json:
        say_json(total.record())
    return ExitCode.FAILED if total.violations else ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Asked:
    """What seeds are run of, and what is made of their results."""

    scenario: str
    knobs: tuple[str, ...]
    transcript: bool
    shrink: bool
    write_plan: Path | None

    def options(self, scenario: str) -> Options:
        """Return the options of a run. Raises `ConfigurationError` for a knob it does not have."""
        from requite.sim import Options, read_knobs

        return Options(knobs=read_knobs(scenario, self.knobs), transcript=self.transcript)

    def replay(self, seed: int, scenario: str) -> str:
        """Return the command that repeats a run."""
        from requite.sim.result import replay_command

        return replay_command(seed, scenario, self.knobs)


def _run_seeds(seed: int | None, seeds: int | None, jobs: int | None, asked: _Asked) -> Total:
    count = seeds or (_SEEDS_DEFAULT if seed is None else 1)
    single = (("--transcript", asked.transcript), ("--write-plan", asked.write_plan is not None))
    for option, given in single:
        if given and count > 1:
            raise ConfigurationError(f"{option} needs a single seed: give one with --seed")
    first = secrets.randbelow(_FRESH_SEEDS) if seed is None else seed
    runs = list(zip(range(first, first + count), _scenarios(asked.scenario), strict=False))
    seeds_of = f"seed {first}" if count == 1 else f"{count} seeds, from {first},"
    say(f"{seeds_of} of {asked.scenario}")
    if count == 1:
        return _run_one(*runs[0], asked)
    return _run_many(runs, jobs or os.cpu_count() or 1, asked)


@dataclass(slots=True)
class Total:
    """What all runs together came to."""

    seeds: int = 0
    violations: int = 0
    calls: int = 0
    virtual_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count a run."""
        self.seeds += 1
        self.violations += len(result.violations)
        self.calls += result.calls
        self.virtual_s += result.virtual_s
        self.outcomes.update(result.outcomes)

    def record(self) -> dict[str, float]:
        """Return the figures for machines."""
        return {
            "seeds": self.seeds,
            "violations": self.violations,
            "calls": self.calls,
            "virtual_s": round(self.virtual_s, 3),
        }

    def sentence(self) -> str:
        """Return the figures for people."""
        ends = ", ".join(f"{n:,} {name}" for name, n in self.outcomes.most_common())
        found = f"{self.violations:,} violations" if self.violations else "no violation"
        return (
            f"{found}; {self.calls:,} calls in {self.virtual_s:,.0f} s of virtual time\n"
            f"calls ended: {ends}"
        )


def _scenarios(name: str) -> Iterator[str]:
    """Return the scenario of each seed, without end."""
    from requite.sim.scenarios import GROUPS, find

    names = GROUPS.get(name) or [find(name).name]
    return cycle(names)


def _list_scenarios() -> None:
    from requite.sim.scenarios import SCENARIOS

    for scenario in SCENARIOS.values():
        say(f"{scenario.name:<19} {scenario.about}")


def _run_one(seed: int, scenario: str, asked: _Asked) -> Total:
    from requite.sim import draw
    from requite.sim.plan import write

    plan = draw(seed, scenario, asked.options(scenario))
    if asked.write_plan is not None:
        with _naming(asked.write_plan):
            asked.write_plan.write_text(write(plan), "utf-8")
    return _show(plan, asked.transcript, asked.shrink, asked.replay(seed, scenario))


def _play(file: Path, transcript: bool, shrink: bool) -> Total:
    from requite.sim import read_plan

    with _naming(file):
        text = file.read_text("utf-8")
    plan = read_plan(text, str(file))
    say(f"plan {file}: seed {plan.seed} of {plan.scenario}")
    return _show(plan, transcript, shrink, f"requite sim --plan {shlex.quote(str(file))}")


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _show(plan: Plan, transcript: bool, shrink: bool, replay: str) -> Total:
    """Play a plan, and print its knobs, its transcript if wanted, and its violations."""
    from requite.sim import Options, play

    for line in plan.knobs.lines():
        say(f"  {line}")
    result = play(plan, Options(transcript=transcript))
    for line in result.transcript:
        say(line)
    _report(result, replay, with_knobs=False)
    if shrink and result.violations:
        _shrink(plan, result.violations[0].invariant)
    total = Total()
    total.add(result)
    return total


def _run_many(runs: list[tuple[int, str]], jobs: int, asked: _Asked) -> Total:
    from requite.sim import draw

    total = Total()
    options = {scenario: asked.options(scenario) for _, scenario in runs}
    shrunk: set[tuple[str, str]] = set()
    with _progress("seeds", len(runs)) as advance:
        for result in _results(runs, options, jobs):
            total.add(result)
            if result.violations:
                _report(result, asked.replay(result.seed, result.scenario), with_knobs=True)
                found = (result.scenario, result.violations[0].invariant)
                if asked.shrink and found not in shrunk:
                    shrunk.add(found)
                    plan = draw(result.seed, result.scenario, options[result.scenario])
                    _shrink(plan, found[1])
            advance()
    return total


def _results(
    runs: list[tuple[int, str]], options: dict[str, Options], jobs: int
) -> Iterator[Result]:
    """Run everything, in as many processes; results come in the order of `runs`."""
    from requite.sim import run

    whole = [(seed, scenario, options[scenario]) for seed, scenario in runs]
    if jobs == 1:
        yield from (run(*each) for each in whole)
        return
    with ProcessPoolExecutor(min(jobs, len(runs))) as pool:
        yield from pool.map(run, *zip(*whole, strict=True), chunksize=_RUNS_PER_TASK)


def _shrink(plan: Plan, invariant: str) -> None:
    """Write the smallest plan that violates an invariant to a file, and print its messages."""
    from requite.sim import Options, play, violates
    from requite.sim.plan import write
    from requite.sim.shrink import shrink

    with _progress("shrinking", None) as advance:

        def fails(candidate: Plan) -> bool:
            advance()
            return violates(invariant, candidate)

        shrunk = shrink(plan, fails)
    file = Path(f"{plan.scenario}-{plan.seed}-{invariant.replace(' ', '-')}.toml")
    with _naming(file):
        file.write_text(write(shrunk.plan), "utf-8")
    result = play(shrunk.plan, Options(transcript=True, heartbeats=False, stop_at=invariant))
    say(f"shrunk in {shrunk.tries:,} runs: {_counts(plan)} before, {_counts(shrunk.plan)} now")
    for line in result.diagram:
        say(line)
    for violation in result.violations[:1]:
        say(_line(violation))
    say(f"replay: requite sim --plan {file}")


def _line(violation: object) -> str:
    text = str(violation)
    return f"  {text}" if len(text) <= _WIDTH_MAX else f"  {text[:_WIDTH_MAX]}…"


def _counts(plan: Plan) -> str:
    return f"{len(plan.faults)} faults and {len(plan.calls)} calls"


def _report(result: Result, replay: str, *, with_knobs: bool) -> None:
    if not result.violations:
        return
    say(f"\nseed {result.seed} of {result.scenario}: {len(result.violations)} violations")
    for violation in result.violations[:_SHOWN_MAX]:
        say(_line(violation))
    if len(result.violations) > _SHOWN_MAX:
        say(f"  and {len(result.violations) - _SHOWN_MAX} more")
    if with_knobs:
        for line in result.knobs:
            say(f"  {line}")
    say(f"replay: {replay}")


@contextmanager
def _progress(what: str, runs: int | None) -> Iterator[Callable[[], None]]:
    """Show on a terminal how many runs are done; yield what to call after each run."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = stderr_console()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=runs)
        yield partial(progress.advance, task)
