"""Test services under faults, on virtual time, with a seed: `simulate`.

    from requite.testing import simulate

    @simulate(seeds=50, faults=["kill worker", "reset connection"])
    async def test_every_payment_is_booked_once(world):
        ledger = Ledger()
        world.broker()
        world.worker(lambda: pay(ledger), count=2)
        async with world.client("pay") as client:
            for number in range(20):
                await client.call(b"10", idempotency_key=b"%d" % number)
        assert ledger.total == 200

The test, the broker and each worker are processes in one simulated world. They run the production
code on an event loop with virtual time (`requite.sim.shells`): an hour takes about a second, and a
seed always gives the same run.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import count
from math import inf
from typing import Any, Final

from requite.errors import ConfigurationError
from requite.sim.kernel.faults import Fault
from requite.sim.kernel.shrink import fewest
from requite.sim.kernel.world import luck
from requite.testing.simulated_world import FAULTS, SimulatedWorld

SEED: Final = "REQUITE_SEED"
"""The environment variable that names the one seed to run."""
_FAULTS_S: Final = 60.0  # faults end after this time, or at `heal`
_OUTAGE_S: Final = (0.01, 10.0)
_RUNS_MAX: Final = 60  # limit of runs to minimize the faults of a failure


def simulate(
    *,
    seeds: int | Iterable[int] = 20,
    faults: Sequence[str] = (),
    faults_per_s: float = 0.2,
    limit_s: float = 3600.0,
) -> Callable[[Callable[..., Coroutine[Any, Any, object]]], Callable[..., None]]:
    """Run an `async def` test once per seed, each time with a new `SimulatedWorld` as its argument.

    - `seeds`: their number (0, 1, 2, …), or the seeds. The variable REQUITE_SEED overrides them.
    - `faults`: names from `FAULTS`; they occur until the test calls `heal`. "kill" sends SIGKILL,
      "drain" SIGTERM; the process restarts after a while. "freeze" is SIGSTOP, then SIGCONT. "cut
      power to" drops connections without a FIN. "reset connection" loses data in flight, "forget
      connection" all data sent later.
    - `faults_per_s`: average number of each fault per second of virtual time.
    - `limit_s`: time limit of the test, in seconds of virtual time.

    A failed test raises its own exception. The notes have the seed, the faults that the failure
    requires, a diagram of the run, and the command that repeats it.

    The result is a plain function; its other arguments are those of the test, so pytest passes
    fixtures. Do no real I/O in a simulated test: sockets, files and threads take no virtual time.
    The clock of the event loop is virtual, and `random` is seeded; the module `time` is real.

    Raises `ConfigurationError` for an unknown fault, and for figures that cannot work.
    """
    _check(seeds, faults, faults_per_s, limit_s)

    def decorate(test: Callable[..., Coroutine[Any, Any, object]]) -> Callable[..., None]:
        if not inspect.iscoroutinefunction(test):
            raise ConfigurationError(f"{test!r} is not an `async def` function")

        @functools.wraps(test)
        def simulated(*args: Any, **given: Any) -> None:
            __tracebackhide__ = True  # pytest hides this frame
            for seed in _seeds(seeds):
                plan = [*_draw(seed, faults, faults_per_s)]
                case = _Case(lambda world: test(*args, world, **given), seed, plan, limit_s)
                case.run()

        parameters = [*inspect.signature(test).parameters.values()]
        at = 1 if parameters and parameters[0].name == "self" else 0  # of the world
        if len(parameters) <= at:
            raise ConfigurationError(f"{test.__qualname__} needs an argument: the simulated world")
        del parameters[at]
        simulated.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del simulated.__wrapped__  # pytest would take the arguments of the test from it
        return simulated

    return decorate


def _check(
    seeds: int | Iterable[int], faults: Sequence[str], faults_per_s: float, limit_s: float
) -> None:
    if isinstance(seeds, int) and seeds < 1:
        raise ConfigurationError(f"at least one seed is needed, not {seeds}")
    if isinstance(faults, str):
        raise ConfigurationError(f"`faults` must be a list of names, not the text {faults!r}")
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        raise ConfigurationError(
            f"unknown fault {unknown[0]!r}; the faults are {', '.join(FAULTS)}"
        )
    for name, value in (("faults_per_s", faults_per_s), ("limit_s", limit_s)):
        if not 0 < value < inf:
            raise ConfigurationError(f"{name} must be positive, not {value}")


def _seeds(seeds: int | Iterable[int]) -> Iterable[int]:
    chosen = os.environ.get(SEED)
    if chosen is None:
        return range(seeds) if isinstance(seeds, int) else seeds
    if not chosen.isdecimal():
        raise ConfigurationError(f"{SEED} must be a whole number, not {chosen!r}")
    return (int(chosen),)


def _draw(seed: int, kinds: Sequence[str], per_s: float) -> Iterator[Fault]:
    for kind in kinds:
        rng = luck(seed, f"fault {kind}")
        at_s = rng.expovariate(per_s)
        shortest_s, longest_s = _OUTAGE_S
        while at_s < _FAULTS_S:
            # Log-uniform: short and long outages are equally likely, around the time-outs.
            duration_s = shortest_s * (longest_s / shortest_s) ** rng.random()
            yield Fault(at_s, kind, duration_s, rng.random())
            at_s += rng.expovariate(per_s)


class _Case:
    """One seed of a test."""

    def __init__(
        self,
        test: Callable[[SimulatedWorld], Awaitable[object]],
        seed: int,
        plan: list[Fault],
        limit_s: float,
    ) -> None:
        self._test = test
        self._seed = seed
        self._plan = plan
        self._limit_s = limit_s

    def run(self) -> None:
        """Run the case; raise the exception of the test, with notes on its cause."""
        __tracebackhide__ = True
        world, failure = self._play(self._plan)
        if failure is None:
            return
        needed = self._needed(type(failure))
        if len(needed) < len(self._plan):
            world, shorter = self._play(needed)
            failure = shorter or failure
        for note in self._notes(world, needed):
            failure.add_note(note)
        raise failure

    def _needed(self, kind: type[BaseException]) -> Sequence[Fault]:
        """Return a minimal set of faults with which the test raises this type of exception."""
        runs = count(1)

        def still_fails(plan: Sequence[Fault]) -> bool:
            return next(runs) <= _RUNS_MAX and type(self._play(plan)[1]) is kind

        return fewest(tuple(self._plan), still_fails)

    def _play(self, plan: Sequence[Fault]) -> tuple[SimulatedWorld, BaseException | None]:
        world = SimulatedWorld(self._seed, plan, self._limit_s)
        return world, world.run(self._test)

    def _notes(self, world: SimulatedWorld, needed: Sequence[Fault]) -> Iterator[str]:
        yield f"seed {self._seed}, after {world.now:.3f} s of virtual time"
        yield f"faults that it needs: {len(needed)} of {len(self._plan)}"
        for at_s, kind, duration_s, _ in needed:
            lasts = "" if kind.endswith("connection") else f", for {duration_s:.3f} s"
            yield f"  at {at_s:.3f} s {kind}{lasts}"
        yield from world.account()
        yield f"repeat it: {SEED}={self._seed} {_command()}"


def _command() -> str:
    """Return the command that runs the current test, or this program."""
    test, _, _phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    words = ["python", "-m", "pytest", test] if test else ["python", *sys.argv]
    return " ".join(map(shlex.quote, words))
