"""`requite sim`: run seeds of the deterministic simulator."""

from __future__ import annotations

import multiprocessing
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
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter, validators

from requite.cli.exit_codes import ExitCode
from requite.cli.options import OUTPUT, JsonFlag
from requite.cli.output import say, say_json, stderr_console
from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from requite.sim import Options, Plan, Result
    from requite.sim.kernel.coverage import Combination

_SEEDS_DEFAULT: Final = 100
_SCENARIO_DEFAULT: Final = "swarm"
_FRESH_SEEDS: Final = 1 << 31
_POSITIVE: Final = validators.Number(gt=0)
_SEEDS_MAX: Final = 1_000_000
_WIDTH_MAX: Final = 400  # of a violation, which may quote a large body
_SHOWN_MAX: Final = 10  # violations per run; later ones mostly follow from the first
# Runs per task of a process; enough that the overhead of a task does not matter.
_RUNS_PER_TASK: Final = 5


def sim(
    *,
    seeds: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=validators.Number(gt=0, lte=_SEEDS_MAX),
            show_default=False,
            help=f"How many seeds to run: {_SEEDS_DEFAULT}, or 1 with --seed.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        Parameter(
            metavar="S",
            validator=validators.Number(gte=0),
            help="The first seed. [default: random]",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            show_default=False,
            help="The faults to simulate; `list` lists the scenarios. `all`, and a part such as "
            "`mdp`, `sp`, `flp` or `pirate`, run several in turn. [default: swarm]",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Run the plan in this file instead of seeds.",
        ),
    ] = None,
    write_plan: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            show_default=False,
            help="Run a single seed, and write its plan to this file.",
        ),
    ] = None,
    knob: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME=VALUE",
            show_default=False,
            help="Set a knob to this value instead of a random one; repeatable.",
        ),
    ] = (),
    shrink: Annotated[
        bool | None,
        Parameter(
            negative="--no-shrink",
            show_default=False,
            help="Write the smallest plan that still has the violation to a file in the current "
            "folder, and print its messages as a diagram. [default: yes, no with --plan]",
        ),
    ] = None,
    transcript: Annotated[
        bool,
        Parameter(group=OUTPUT, show_default=False, help="Print all messages of a single seed."),
    ] = False,
    coverage: Annotated[
        bool,
        Parameter(
            group=OUTPUT,
            show_default=False,
            help="Count the combinations of process, state, event and fault that the runs met.",
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=_POSITIVE,
            show_default=False,
            help="Number of processes. [default: one per processor]",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> int:
    """Run seeds of the deterministic simulator.

    A seed runs the real engines and framings on a simulated network that loses
    connections, with processes that crash and freeze, and peers that send
    garbage. During faults no call may be lost, answered twice or get a wrong
    reply. After the faults all calls must end, and no state may remain.

    For each seed with violations it prints the knobs and the command that replays
    it, and for the first seed of each scenario and invariant the smallest plan
    that still violates it. With --json the last line is an object: seeds,
    violations, calls, virtual_s, and with --coverage a list of combinations. Exit
    code 1: there were violations.

    A plan is a text file with everything that a seed generates: knobs, processes,
    calls and faults. It can be edited, and describes the same run in later
    versions, where the seed may generate another one.

      $ requite sim --seeds 500
      $ requite sim --seed 17 --scenario freezes --transcript
      $ requite sim --seed 17 --scenario freezes --write-plan freezes-17.toml
      $ requite sim --plan freezes-17.toml
      $ requite sim --seeds 500 --knob outage_max=20
      $ requite sim --seeds 500 --scenario sp --coverage
    """
    if scenario == "list":
        _list_scenarios()
        return ExitCode.OK
    if plan is not None:
        if any(each is not None for each in (seed, seeds, scenario, write_plan)) or knob:
            raise ConfigurationError(
                "--plan cannot be combined with --seed, --seeds, --scenario, --knob or --write-plan"
            )
        total = _play(plan, _Choice("", (), transcript, shrink or False, None, coverage))
    else:
        name = _SCENARIO_DEFAULT if scenario is None else scenario
        choice = _Choice(name, knob, transcript, shrink is not False, write_plan, coverage)
        total = _run_seeds(seed, seeds, jobs, choice)
    if coverage:
        _show_coverage(total)
    say(total.sentence())
    if as_json:
        say_json(total.record())
    return ExitCode.FAILED if total.violations else ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Choice:
    """The options that apply to each seed."""

    scenario: str
    knobs: tuple[str, ...]
    transcript: bool
    shrink: bool
    write_plan: Path | None
    coverage: bool = False

    def options(self, scenario: str) -> Options:
        """Return the options of a run. Raises `ConfigurationError` for an unknown knob."""
        from requite.sim import Options, read_knobs

        return Options(
            knobs=read_knobs(scenario, self.knobs),
            transcript=self.transcript,
            coverage=self.coverage,
        )

    def replay(self, seed: int, scenario: str) -> str:
        """Return the command that repeats a run."""
        from requite.sim.kernel.result import replay_command

        return replay_command(seed, scenario, self.knobs)


def _run_seeds(seed: int | None, seeds: int | None, jobs: int | None, choice: _Choice) -> Total:
    count = seeds or (_SEEDS_DEFAULT if seed is None else 1)
    single = (("--transcript", choice.transcript), ("--write-plan", choice.write_plan is not None))
    for option, given in single:
        if given and count > 1:
            raise ConfigurationError(f"{option} requires a single seed: give --seed S")
    first = secrets.randbelow(_FRESH_SEEDS) if seed is None else seed
    runs = list(zip(range(first, first + count), _scenarios(choice.scenario), strict=False))
    seeds_of = f"seed {first}" if count == 1 else f"{count} seeds, from {first},"
    say(f"{seeds_of} of {choice.scenario}")
    if count == 1:
        return _run_one(*runs[0], choice)
    return _run_many(runs, jobs or os.cpu_count() or 1, choice)


@dataclass(slots=True)
class Total:
    """Totals of all runs."""

    seeds: int = 0
    violations: int = 0
    calls: int = 0
    virtual_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    coverage: Counter[Combination] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        """Count a run."""
        self.seeds += 1
        self.violations += len(result.violations)
        self.calls += result.calls
        self.virtual_s += result.virtual_s
        self.outcomes.update(result.outcomes)
        self.coverage.update(result.coverage)

    def record(self) -> dict[str, object]:
        """Return the totals as a JSON object."""
        met = [{**key._asdict(), "count": n} for key, n in sorted(self.coverage.items())]
        return {
            "seeds": self.seeds,
            "violations": self.violations,
            "calls": self.calls,
            "virtual_s": round(self.virtual_s, 3),
            **({"coverage": met} if met else {}),
        }

    def sentence(self) -> str:
        """Return the totals as text."""
        ends = ", ".join(f"{n:,} {name}" for name, n in self.outcomes.most_common())
        found = f"{self.violations:,} violations" if self.violations else "no violation"
        return (
            f"{found}; {self.calls:,} calls in {self.virtual_s:,.0f} s of virtual time\n"
            f"calls ended: {ends}"
        )


def _scenarios(name: str) -> Iterator[str]:
    """Yield the scenario of each seed, endlessly."""
    from requite.sim.scenarios import GROUPS, find

    names = GROUPS.get(name) or [find(name).name]
    return cycle(names)


def _list_scenarios() -> None:
    from requite.sim.scenarios import SCENARIOS

    for scenario in SCENARIOS.values():
        say(f"{scenario.name:<19} {scenario.about}")


def _run_one(seed: int, scenario: str, choice: _Choice) -> Total:
    from requite.sim import draw
    from requite.sim.kernel.plan import write

    plan = draw(seed, scenario, choice.options(scenario))
    if choice.write_plan is not None:
        with _naming(choice.write_plan):
            choice.write_plan.write_text(write(plan), "utf-8")
    return _show(plan, choice, choice.replay(seed, scenario))


def _play(file: Path, choice: _Choice) -> Total:
    from requite.sim import read_plan

    with _naming(file):
        text = file.read_text("utf-8")
    plan = read_plan(text, str(file))
    say(f"plan {file}: seed {plan.seed} of {plan.scenario}")
    return _show(plan, choice, f"requite sim --plan {shlex.quote(str(file))}")


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _show(plan: Plan, choice: _Choice, replay: str) -> Total:
    """Run a plan; print its knobs, its violations and, if asked for, its transcript."""
    from requite.sim import Options, play

    for line in plan.knobs.lines():
        say(f"  {line}")
    result = play(plan, Options(transcript=choice.transcript, coverage=choice.coverage))
    for line in result.transcript:
        say(line)
    _report(result, replay, with_knobs=False)
    if choice.shrink and result.violations:
        _shrink(plan, result.violations[0].invariant)
    total = Total()
    total.add(result)
    return total


def _run_many(runs: list[tuple[int, str]], jobs: int, choice: _Choice) -> Total:
    from requite.sim import draw

    total = Total()
    options = {scenario: choice.options(scenario) for _, scenario in runs}
    shrunk: set[tuple[str, str]] = set()
    with _progress("seeds", len(runs)) as advance:
        for result in _results(runs, options, jobs):
            total.add(result)
            if result.violations:
                _report(result, choice.replay(result.seed, result.scenario), with_knobs=True)
                found = (result.scenario, result.violations[0].invariant)
                if choice.shrink and found not in shrunk:
                    shrunk.add(found)
                    plan = draw(result.seed, result.scenario, options[result.scenario])
                    _shrink(plan, found[1])
            advance()
    return total


def _results(
    runs: list[tuple[int, str]], options: dict[str, Options], jobs: int
) -> Iterator[Result]:
    """Run all seeds in `jobs` processes; yield results in the order of `runs`."""
    from requite.sim import run

    whole = [(seed, scenario, options[scenario]) for seed, scenario in runs]
    if jobs == 1:
        yield from (run(*each) for each in whole)
        return
    with ProcessPoolExecutor(min(jobs, len(runs)), initializer=_end_with_parent) as pool:
        yield from pool.map(run, *zip(*whole, strict=True), chunksize=_RUNS_PER_TASK)


def _end_with_parent() -> None:
    """Let this process of a pool end when its parent is killed: it would wait for work forever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(ExitCode.FAILED)

    Thread(target=watch, daemon=True).start()


def _show_coverage(total: Total) -> None:
    from requite.sim.kernel.coverage import table

    for line in table(total.coverage):
        say(line)


def _shrink(plan: Plan, invariant: str) -> None:
    """Write the smallest plan that violates an invariant to a file, and print its messages."""
    from requite.sim import Options, play, violates
    from requite.sim.kernel.plan import write
    from requite.sim.kernel.shrink import shrink

    with _progress("shrinking", None) as advance:

        def fails(candidate: Plan) -> bool:
            advance()
            return violates(invariant, candidate)

        try:
            shrunk = shrink(plan, fails)
        except ConfigurationError as error:  # a run that depends on more than its plan
            say(str(error))
            return
    file = Path(f"{plan.scenario}-{plan.seed}-{invariant.replace(' ', '-')}.toml")
    result = play(shrunk.plan, Options(transcript=True, heartbeats=False, stop_at=invariant))
    say(f"shrunk in {shrunk.tries:,} runs: {_counts(plan)} before, {_counts(shrunk.plan)} now")
    for line in result.diagram:
        say(line)
    for violation in result.violations[:1]:
        say(_line(violation))
    text = write(shrunk.plan)
    try:
        file.write_text(text, "utf-8")
    except OSError as error:  # the seeds that are left still have to run
        say(f"{file} cannot be written ({error}); the plan:\n{text}")
    else:
        say(f"replay: requite sim --plan {file}")


def _line(violation: object) -> str:
    """Return a violation as text, without the middle if it is long: a traceback ends with its
    cause."""
    text = str(violation)
    if len(text) > _WIDTH_MAX:
        half = _WIDTH_MAX // 2
        text = f"{text[:half]} … {text[-half:]}"
    return f"  {text}"


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
    """Show a progress bar on a terminal; yield the function to call after each run."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = stderr_console()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=runs)
        yield partial(progress.advance, task)
