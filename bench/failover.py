"""Measure the duration of a fail-over: `python -m bench.failover`.

Two brokers in a pair, a worker, and a client that makes one call after the other. Repeatedly the
active broker is killed with SIGKILL; the figure is the longest time between two replies around the
kill, as a caller sees it. The killed broker then restarts as the passive one, and the other one is
killed next.

No time is asserted. By design a fail-over takes two heartbeats of silence; the rest is overhead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Final

import requite
from bench import builds, machine, page, quiet
from bench.loop import run
from bench.quiet import Quiet
from requite.pair.operator import Operator
from requite.protocols.binarystar.table import State
from requite.testing.processes import Child, Children, free_ports

START_S: Final = 15.0
SETTLE_S: Final = 30.0
CALL_S: Final = 60.0
_STEADY_S: Final = 0.3  # seconds of calls before each kill
_POLL_S: Final = 0.05
_ROLES: Final = ("primary", "backup")


def main(arguments: Sequence[str]) -> int:
    """Measure and report."""
    given = parse(arguments)
    calm = Quiet(given.busy)

    def measure() -> list[float]:
        with Children() as children:
            return run_on_loop(Measurement(given, children))

    gaps_s = calm.take(measure)
    how = f"Made by `{builds.shown('bench.failover', arguments)}`"
    text = report(gaps_s, given, how, calm)
    print(text)
    if given.docs:
        page.write(given.docs, "failover", text, maker="bench")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--fail-overs", type=int, default=100, help="number of fail-overs (100)")
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=1.0,
        help="heartbeat interval of the pair and of all peers, in seconds (1)",
    )
    parser.add_argument("--docs", type=Path, help="page to write the table to")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


@dataclass(slots=True)
class Calls:
    """Time of the last reply, and the longest time between two replies."""

    last_s: float = field(default_factory=perf_counter)
    longest_s: float = 0.0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        """Record a reply."""
        now = perf_counter()
        self.longest_s = max(self.longest_s, now - self.last_s)
        self.last_s = now
        self.came.set()


class Measurement:
    """Kills the active broker repeatedly, while a client makes calls to a worker."""

    def __init__(self, given: argparse.Namespace, children: Children) -> None:
        self._given = given
        self._children = children
        self._fronts, self._links = free_ports(2), free_ports(2)
        self._servers: list[Child] = []
        self._calls = Calls()

    async def run(self) -> list[float]:
        """Start the processes; return the duration of each fail-over, in seconds."""
        self._servers = [self._start(n) for n in range(2)]
        for server in self._servers:
            server.wait_for("^listening on ", START_S)
        url = "mdp://" + ",".join(f"127.0.0.1:{port}" for port in self._fronts)
        worker = [*_command("worker", "requite.examples:echo", f"--connect={url}"), *self._beat()]
        self._children.start(worker, name="the worker")
        retry = requite.RetryPolicy(attempts=1000, budget=1.0, budget_burst=1_000_000)
        client = requite.AsyncClient(
            f"{url}/echo", retry=retry, heartbeat=self._given.heartbeat, timeout=CALL_S
        )
        async with client:
            await client.call(b"hello")
            asking = asyncio.create_task(self._keep_asking(client))
            gaps_s = [await self._fail_over(number) for number in range(self._given.fail_overs)]
            asking.cancel()
        return gaps_s

    async def _keep_asking(self, client: requite.AsyncClient) -> None:
        while True:
            await client.call(b"hello")
            self._calls.note()

    async def _fail_over(self, number: int) -> float:
        """Kill the active broker, wait until calls succeed again, and restart it."""
        active = await self._settle()
        self._calls = Calls()
        await asyncio.sleep(_STEADY_S)
        os.kill(self._servers[active].pid, signal.SIGKILL)
        # The first reply may have been in flight; the second one is from the other broker.
        for _ in range(2):
            self._calls.came.clear()
            await self._calls.came.wait()
        gap_s = self._calls.longest_s
        print(f"{number + 1}/{self._given.fail_overs} {_ROLES[active]} {gap_s:.3f} s", flush=True)
        self._servers[active] = self._start(active)
        return gap_s

    async def _settle(self) -> int:
        """Wait until one broker is active and the other one passive; return the active one."""
        async with asyncio.timeout(SETTLE_S):
            while True:
                states = [await self._state(n) for n in range(2)]
                if sorted(states) == sorted((State.ACTIVE.name, State.PASSIVE.name)):
                    return states.index(State.ACTIVE.name)
                await asyncio.sleep(_POLL_S)

    async def _state(self, number: int) -> str:
        try:
            async with Operator(f"tcp://127.0.0.1:{self._links[number]}", timeout=1.0) as operator:
                return (await operator.view()).state.name
        except requite.CallTimeout:
            return ""

    def _start(self, number: int) -> Child:
        links = [f"tcp://127.0.0.1:{port}" for port in self._links]
        command = _command(
            "broker",
            f"--{_ROLES[number]}",
            f"--bind=tcp://127.0.0.1:{self._fronts[number]}",
            f"--pair-bind={links[number]}",
            f"--peer={links[1 - number]}",
            f"--pair-heartbeat={self._given.heartbeat}",
        )
        return self._children.start([*command, *self._beat()], name=_ROLES[number])

    def _beat(self) -> list[str]:
        return [f"--heartbeat-interval={self._given.heartbeat}"]


def run_on_loop(measurement: Measurement) -> list[float]:
    """Run a measurement on the event loop of the benchmarks; return its result."""
    gaps_s: list[float] = []

    async def main() -> None:
        gaps_s.extend(await measurement.run())

    run(main())
    return gaps_s


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "requite.cli", *arguments]


def report(gaps_s: Sequence[float], given: argparse.Namespace, how: str, calm: Quiet) -> str:
    """Return the distribution of the times."""
    ordered = sorted(gaps_s)
    cuts = quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered * 19
    figures = [ordered[0], cuts[0], cuts[9], cuts[18], ordered[-1]]
    return "\n\n".join(
        [
            f"{how}: {len(ordered)} fail-overs by SIGKILL of the active broker; heartbeats every"
            f" {given.heartbeat:g} s. The longest time between two replies, in seconds."
            f" {calm.words()}",
            page.sentence(machine.facts()),
            page.table(
                ["fail-overs", "shortest", "5 %", "median", "95 %", "longest"],
                [[str(len(ordered)), *(f"{figure:.2f}" for figure in figures)]],
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
