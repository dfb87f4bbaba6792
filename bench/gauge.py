"""Time and processor time of the measured window of a run, without start-up and warm-up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter, process_time

from bench.job import Job

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LONGEST = 3  # times the requested seconds: limit for a slow contender to finish its requests


def cpu_s(pid: int) -> float:
    """Return the user and system time of a process, all its threads included (proc(5), stat)."""
    # The name in parentheses may contain spaces: count the fields after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_mib(pid: int) -> float:
    """Return the memory of a process, with its share of shared pages (proc(5), smaps_rollup)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


class Gauge:
    """Measures from `open`, after the warm-up, to `stop` or `close`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._started = perf_counter()
        self._cpu_s = self._read_cpu_s()
        self._measured: dict[str, float] = {}

    def open(self) -> None:
        """Start measuring."""
        self._cpu_s = self._read_cpu_s()
        self._started = perf_counter()

    def is_warm(self, _answered: int = 0) -> bool:
        """Return whether the warm-up is over; called before `open`."""
        return perf_counter() - self._started >= self._job.warm_up_s

    def is_over(self, answered: int) -> bool:
        """Return whether the run has lasted long enough, given the number of `answered` requests;
        at least one is required."""
        elapsed = perf_counter() - self._started
        seconds = self._job.seconds
        if elapsed < seconds or not answered:
            return False
        return answered >= self._job.requests or elapsed >= seconds * _LONGEST

    def stop(self) -> None:
        """Stop measuring: replies may still come before `close`."""
        self._measured = {"elapsed_s": perf_counter() - self._started}
        for who, now_s in self._read_cpu_s().items():
            self._measured[f"{who}_cpu_s"] = now_s - self._cpu_s[who]
        if self._job.broker_pid:
            self._measured["broker_memory_mib"] = memory_mib(self._job.broker_pid)

    def close(
        self, answered: int, latencies_ns: Sequence[int], more: Mapping[str, float] | None = None
    ) -> None:
        """Print the figures of the run for the runner, and `more`, as JSON on one line."""
        if not self._measured:
            self.stop()
        figures = {"answered": answered, **self._measured, **(more or {})}
        figures["requests_per_s"] = answered / figures["elapsed_s"]
        for who in self._cpu_s:
            figures[f"{who}_cpu_us"] = figures[f"{who}_cpu_s"] / max(answered, 1) * 1e6
        if latencies_ns:
            ordered = sorted(latencies_ns)
            for percent in (50, 99):
                at = min(len(ordered) - 1, len(ordered) * percent // 100)
                figures[f"latency_p{percent}_us"] = ordered[at] / 1000
        print(json.dumps(figures), flush=True)

    def _read_cpu_s(self) -> dict[str, float]:
        return {
            "broker": cpu_s(self._job.broker_pid) if self._job.broker_pid else 0.0,
            "client": process_time(),
            "workers": sum(map(cpu_s, self._job.worker_pids)),
        }
