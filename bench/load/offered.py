"""Requests at a rate that does not depend on the replies: an open loop (`offered.c`)."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from bench.c_program import CProgram
from bench.gauge import Gauge
from bench.job import Job
from bench.load.mdp03 import encode_request

PROGRAM: Final = CProgram(Path(__file__).with_name("offered.c"), "`gcc` and `libc6-dev`")
_ENDS: Final = ("refused", "expired", "late", "unsent")


def offer(job: Job, connections: Sequence[socket.socket]) -> None:
    """Offer the rate of the job, and print the figures."""
    if lack := PROGRAM.lack():
        raise SystemExit(lack)
    numbers = [each.fileno() for each in connections]
    times = (job.rate, job.timeout_s, job.warm_up_s, job.seconds)
    request = encode_request(job.service_names[0], job).hex()
    command = [str(PROGRAM.path), *map(str, times), request, *map(str, numbers)]
    gauge = Gauge(replace(job, requests=0))
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=numbers, text=True) as program:
        assert program.stdout is not None
        _read(program.stdout, "open")
        gauge.open()
        _read(program.stdout, "stop")
        gauge.stop()
        ends: dict[str, float] = json.loads(_read(program.stdout, "{"))
    latencies = {name: us for name, us in ends.items() if name.startswith("latency")}
    rates = {f"{end}_per_s": ends[end] / job.seconds for end in _ENDS}
    gauge.close(int(ends["ok"]), (), {"offered_per_s": job.rate, **latencies, **rates})


def _read(output: IO[str], beginning: str) -> str:
    """Read a line that begins so."""
    line = output.readline()
    if not line.startswith(beginning):
        raise SystemExit(f"the program of the load ended; it wrote {line!r}")
    return line
