"""`requite demo`: short runs with every kind of fault; no process or file is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.live import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NO_FAULTS = ("--workers=2", "--worker-kills=0", "--broker-kills=0", "--stops=0")
DEMO = (sys.executable, "-m", "requite.cli", "demo")
KEYS = [
    "requests",
    "answered",
    "correct",
    "lost",
    "duplicated",
    "retries",
    "worker_kills",
    "broker_kills",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "audit",
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("worker_kills", "broker_kills"), [(1, 1), pytest.param(6, 2, marks=pytest.mark.long)]
)
def test_every_request_is_answered_once_and_correctly_despite_faults(
    tmp_path, worker_kills, broker_kills
):
    """The audit of the journals has the same counts."""
    faults = (f"--worker-kills={worker_kills}", f"--broker-kills={broker_kills}")
    ended = subprocess.run(
        [*DEMO, "--requests=1000", *faults, "--json"],
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0, ended.stderr
    verdict = json.loads(ended.stdout.splitlines()[-1])
    assert list(verdict) == KEYS
    assert [verdict[key] for key in KEYS[:5]] == [1000, 1000, 1000, 0, 0]
    assert (verdict["worker_kills"], verdict["broker_kills"]) == (worker_kills, broker_kills)
    assert verdict["retries"] > 0
    assert 0 < verdict["p50_ms"] <= verdict["p99_ms"]
    assert "Every request was answered exactly once and correctly." in ended.stdout
    for fault in ("killed (SIGKILL)", "stopped (SIGSTOP)", "resumed (SIGCONT)", "restarted"):
        assert fault in ended.stderr
    assert verdict["audit"] == {
        "accepted": 1000,
        "exactly_one": 1000,
        "missing": 0,
        "duplicate": 0,
        "in_flight": 0,
    }
    assert "1,000 accepted, 1,000 ended exactly once." in ended.stdout
    assert "It agrees with what was counted." in ended.stdout
    report = Path(re.search(r"^Report: (.*)$", ended.stdout, re.MULTILINE)[1])
    assert '<p class="words">1,000 accepted, 1,000 ended exactly once.</p>' in report.read_text()
    assert list(report.parent.iterdir()) == [report]


@pytest.mark.timeout(240)
def test_without_the_audit_nothing_is_kept(tmp_path):
    ended = subprocess.run(
        [*DEMO, "--requests=100", *NO_FAULTS, "--no-audit", "--json"],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["audit"] is None
    assert list(tmp_path.iterdir()) == []


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread may have ended
            found += map(int, task.read_text(encoding="ascii").split())
    return found


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2][1] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_bound(pid: int) -> bool:
    """Return whether a child has tied its lifetime to the demo's and loaded its module.

    Between fork and exec, a child still has the command line and the modules of the demo.
    """
    try:
        is_child = "requite.testing.lifetime" in command_of(pid)
        maps = Path(f"/proc/{pid}/maps").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return is_child and "_ctypes" in maps and "_asyncio" in maps


def command_of(pid: int) -> str:
    """Return the words of a process's command line, joined by spaces."""
    return Path(f"/proc/{pid}/cmdline").read_text("utf-8").replace("\0", " ")


def bound_worker(demo_pid: int) -> int | None:
    """Return a worker of the demo if `is_bound`; the demo kills workers, and starts others.

    The order of process ids tells nothing: they start again at a low number after the highest.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        for child in children_of(demo_pid):
            if "requite.cli worker" in command_of(child) and is_bound(child):
                return child
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.timeout(150)
def test_the_unexpected_exit_of_a_process_ends_the_demo():
    demo = subprocess.Popen(
        [*DEMO, *NO_FAULTS, "--no-audit"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: len(children_of(demo.pid)) >= 4, "all children have started")
        worker = eventually(lambda: bound_worker(demo.pid), "a worker has loaded its module")
        os.kill(worker, signal.SIGKILL)
        _, output = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 1
    assert re.search(r"^requite: worker [12] .*: it printed no error$", output, re.M), output


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.timeout(200)
def test_no_process_is_left_after_any_end(end, tmp_path):
    """This includes a stopped process, and Java."""
    demo = subprocess.Popen(
        [*DEMO, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        # Children: the audit, the broker, two workers, and the direct computation.
        children = eventually(
            lambda: len(found := children_of(demo.pid)) >= 5 and found, "all children have started"
        )
        worker = eventually(lambda: bound_worker(demo.pid), "a worker has loaded its module")
        os.kill(worker, signal.SIGSTOP)
        java = eventually(
            lambda: [each for child in children for each in children_of(child)],
            "Spark is being started",
        )
        demo.send_signal(end)
        demo.wait(60)
    finally:
        demo.kill()
        demo.wait()
    eventually(lambda: not any(map(is_running, [*children, *java])), "all of them are gone")
    assert demo.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(end, -end)
    assert end is signal.SIGKILL or list(tmp_path.iterdir()) == []
