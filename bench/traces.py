"""What traces cost: CPU time per call of client, broker and worker together.

    python -m bench.traces [--calls 20000] [--rounds 7]

Client, broker and worker share a process, with 64 calls in flight. Each round of each way to set up
OpenTelemetry is a process of its own, and they take turns; medians are printed. Spans go to a
processor that drops them, so exporters are not measured.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
from time import process_time
from typing import Final

import requite
from requite.shell.aio import run

IN_FLIGHT: Final = 64
WARM_UP: Final = 2000
WAYS: Final = {
    "not imported": None,
    "the API, no SDK": None,
    "SDK, 1 % sampled": 0.01,
    "SDK, 100 % sampled": 1.0,
}


def set_up(way: str) -> None:
    """Set up OpenTelemetry in this process."""
    if way == "not imported":
        return
    from opentelemetry import trace

    share = WAYS[way]
    if share is None:
        return
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    provider = TracerProvider(ParentBasedTraceIdRatio(share), shutdown_on_exit=False)
    provider.add_span_processor(SpanProcessor())
    trace.set_tracer_provider(provider)


async def measure(calls: int) -> float:
    """Return the CPU time of a call, in us."""

    @requite.service("echo")
    async def echo(request: requite.Request) -> bytes:
        return request.body

    async with requite.Broker("tcp://127.0.0.1:0") as broker:
        url = broker.endpoints[0].replace("tcp://", "mdp://")
        async with (
            requite.Worker(url, echo, capacity=IN_FLIGHT),
            requite.AsyncClient(f"{url}/echo") as client,
        ):

            async def call_many(count: int) -> None:
                for _ in range(count // IN_FLIGHT):
                    await client.call(b"hello world")

            await asyncio.gather(*(call_many(WARM_UP) for _ in range(IN_FLIGHT)))
            began = process_time()
            await asyncio.gather(*(call_many(calls) for _ in range(IN_FLIGHT)))
            return (process_time() - began) * 1e6 / (calls // IN_FLIGHT * IN_FLIGHT)


def main() -> None:
    """Measure all ways in turn, or one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        set_up(given.way)
        print(run(measure(given.calls)))
        return
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, times in took.items():
            command = [sys.executable, "-m", "bench.traces", "--way", way]
            out = subprocess.run(
                [*command, "--calls", str(given.calls)], check=True, stdout=subprocess.PIPE
            )
            times.append(float(out.stdout))
    usual = statistics.median(took["not imported"])
    print("| OpenTelemetry | us per call | more |\n|---|---|---|")
    for way, times in took.items():
        us = statistics.median(times)
        print(f"| {way} | {us:.2f} | {us - usual:+.2f} us, {us / usual - 1:+.1%} |")


if __name__ == "__main__":
    main()
