"""What one user that floods a broker costs another one: `python -m bench.flood`.

A broker with an access file; a worker and a client of the user `shop`, which calls at a steady rate
over a Unix socket; and a flooder of another user with a quota, over TCP. Before each kind of flood,
a phase without one is measured. The same flood at another broker shows how much of the cost is that
of the machine, whose processors all share. The goals: p99 of `shop` at most doubles, and the
broker takes at most 64 MiB more than the flooder's quota. They are reported, never asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import requite
from bench import builds, machine, page, quiet
from bench.gauge import cpu_s
from bench.load.flooder import KINDS, Flood
from bench.loop import run
from bench.quiet import Quiet
from requite.access.passwords import hash_password
from requite.shell.curve import create_key_file
from requite.testing.processes import Child, Children

START_S: Final = 15.0
QUOTA_MIB: Final = 16
RATE_MIB: Final = 16
_QUIET: Final = "no flood"
_ALL: Final = "all of these at once"
_ELSEWHERE: Final = "all of these, at another broker"
_EVERY: Final = (*KINDS, _ALL, _ELSEWHERE)
_SETTLE_S: Final = 1.0
_WARM_UP_S: Final = 1.0
_CALL_S: Final = 30.0
_FIGURES: Final = ("p50_ms", "p99_ms")
_ACCESS: Final = f"""
[user.shop]
local = {os.getuid()}
call = ["*"]
serve = ["*"]

[user.ann]
password = "{hash_password("right")}"

[user.flooder]
anonymous = true
call = ["echo", "absent"]
quota = "small"

[quota.small]
bytes = "{QUOTA_MIB}M"
bytes_per_s = "{RATE_MIB}M"
connections = 20
requests = 1000
requests_per_s = 2000
services = 20
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """Latencies of `shop` in a phase, in ms, and what the broker used."""

    kind: str
    calls: int
    failed: int
    p50_ms: float
    p99_ms: float
    peak_mib: float
    broker_cores: float


def main(arguments: Sequence[str]) -> int:
    """Measure and report."""
    given = parse(arguments)
    calm = Quiet(given.busy)

    def measure_all() -> list[Phase]:
        phases: list[Phase] = []
        run(measure(phases))
        return phases

    async def measure(phases: list[Phase]) -> None:
        with Children() as children, TemporaryDirectory(prefix="requite-bench-") as folder:
            async for phase in Measurement(given, children, Path(folder)).phases():
                phases.append(phase)
                print(phase, flush=True)

    phases = calm.take(measure_all)
    how = f"Made by `{builds.shown('bench.flood', arguments)}`"
    text = report(phases, given, how, calm)
    print(text)
    if given.docs:
        page.write(given.docs, "flood", text, maker="bench")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a phase (10)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all floods (3)")
    parser.add_argument("--rate", type=float, default=200.0, help="calls per second (200)")
    parser.add_argument("--only", nargs="+", choices=_EVERY, help="some kinds of floods")
    parser.add_argument("--docs", type=Path, help="page to write the table to")
    quiet.add_option(parser)
    return parser.parse_args(arguments)


class Measurement:
    """The processes of a measurement."""

    def __init__(self, given: argparse.Namespace, children: Children, folder: Path) -> None:
        self._given = given
        self._children = children
        self._folder = folder
        self._curve = ""

    async def phases(self) -> AsyncIterator[Phase]:
        """Yield the phases, as they end."""
        access = self._folder / "access.toml"
        access.touch(0o600)
        access.write_text(_ACCESS)
        socket = self._folder / "broker"
        self._curve = create_key_file(self._folder / "curve")
        options = f"--access={access}", f"--curve-key-file={self._folder / 'curve'}"
        broker, port = self._broker(*options, f"--bind=ipc://{socket}")
        broker.wait_for("^listening on ipc:", START_S)
        _, port_elsewhere = self._broker(*options)
        url = f"mdp+ipc://{socket}"
        worker = self._start("worker", "requite.examples:echo", f"--connect={url}")
        worker.wait_for("^serving ", START_S)
        async with requite.AsyncClient(url, service="echo", timeout=_CALL_S) as client:
            await self._call(client, _WARM_UP_S)
            kinds = self._given.only or [*_EVERY]
            for kind in kinds * self._given.rounds:
                yield await self._phase(_QUIET, broker, client)
                with self._flood(kind, port_elsewhere if kind == _ELSEWHERE else port):
                    await asyncio.sleep(_SETTLE_S)
                    yield await self._phase(kind, broker, client)
                await asyncio.sleep(_SETTLE_S)

    @contextmanager
    def _flood(self, kind: str, port: int) -> Iterator[None]:
        kinds = [kind] if kind in KINDS else [*KINDS]
        command = [sys.executable, "-m", "bench.load.flooder"]
        flooders = [
            self._children.start([*command, flood.to_argument()], name=f"flooder: {flood.kind}")
            for flood in (Flood(port, each, self._curve) for each in kinds)
        ]
        try:
            yield
            for flooder in flooders:
                flooder.check()
        finally:
            for flooder in flooders:
                flooder.kill()

    async def _phase(self, kind: str, broker: Child, client: requite.AsyncClient) -> Phase:
        proc = Path(f"/proc/{broker.pid}")
        (proc / "clear_refs").write_text("5")  # proc(5): resets the peak of resident memory
        used_s, started = cpu_s(broker.pid), perf_counter()
        latencies_ms, failed = await self._call(client, self._given.seconds)
        took_s = perf_counter() - started
        latencies_ms.sort()
        return Phase(
            kind,
            len(latencies_ms) + failed,
            failed,
            _quantile(latencies_ms, 0.5),
            _quantile(latencies_ms, 0.99),
            _peak_mib(proc),
            (cpu_s(broker.pid) - used_s) / took_s,
        )

    async def _call(self, client: requite.AsyncClient, seconds: float) -> tuple[list[float], int]:
        """Call at the rate, whether or not earlier calls have ended; return the latencies since
        each call was due, and the number of failed calls."""
        latencies_ms: list[float] = []
        failed = 0

        async def call(due_at: float) -> None:
            nonlocal failed
            try:
                await client.call(b"hello")
            except requite.CallError:
                failed += 1
            else:
                latencies_ms.append((perf_counter() - due_at) * 1000)

        started = perf_counter()
        async with asyncio.TaskGroup() as calls:
            for number in range(int(seconds * self._given.rate)):
                due_at = started + number / self._given.rate
                await asyncio.sleep(due_at - perf_counter())
                calls.create_task(call(due_at))
        return latencies_ms, failed

    def _broker(self, *options: str) -> tuple[Child, int]:
        broker = self._start("broker", "--bind=tcp://127.0.0.1:0", *options)
        return broker, int(broker.wait_for(r"^listening on tcp://.*:(\d+)$", START_S)[1])

    def _start(self, *arguments: str) -> Child:
        command = [sys.executable, "-m", "requite.cli", *arguments]
        return self._children.start(command, name=arguments[0])


def _latencies(phases: Sequence[Phase]) -> str:
    p50_ms, p99_ms = (median(getattr(each, name) for each in phases) for name in _FIGURES)
    return f"{p50_ms:.1f} / {p99_ms:.1f}"


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile; infinite if no call was answered."""
    return ordered[int(len(ordered) * share)] if ordered else inf


def _peak_mib(proc: Path) -> float:
    """Return the peak of a process's resident memory since it was reset (proc(5), VmHWM)."""
    lines = (proc / "status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def report(phases: Sequence[Phase], given: argparse.Namespace, how: str, calm: Quiet) -> str:
    """Return the table: medians over the rounds; each flood is compared with the phase before."""
    rounds: dict[str, list[tuple[Phase, Phase]]] = {}
    for before, during in zip(phases[::2], phases[1::2], strict=True):
        rounds.setdefault(during.kind, []).append((before, during))
    rows = []
    for kind, pairs in rounds.items():
        befores, durings = zip(*pairs, strict=True)
        rows.append(
            [
                kind,
                _latencies(befores),
                _latencies(durings),
                f"{median(during.p99_ms / before.p99_ms for before, during in pairs):.1f}x",
                f"{sum(each.failed for each in durings)} of {sum(each.calls for each in durings)}",
                f"{max(during.peak_mib - before.peak_mib for before, during in pairs):+.0f}",
                f"{median(each.broker_cores for each in durings):.2f}",
            ]
        )
    header = [
        "flood",
        "without it: p50 / p99, ms",
        "with it: p50 / p99, ms",
        "p99",
        "failed calls",
        "broker's peak memory, MiB more",
        "cores that the broker uses",
    ]
    return "\n\n".join(
        [
            f"{how}: medians of {given.rounds} rounds, with {given.rate:g} calls per second for"
            f" {given.seconds:g} s without and with each flood; of memory, the most. The flooder's"
            f" quota is {QUOTA_MIB} MiB, {RATE_MIB} MiB per second, 20 connections, 1,000 requests"
            f" at a time and 2,000 per second. {calm.words()}",
            page.sentence(machine.facts()),
            page.table(header, rows),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
