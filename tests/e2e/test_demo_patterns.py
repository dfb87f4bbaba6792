"""`requite demo --pattern` with faults, for every pattern of the Guide's chapter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from requite.cli.show.demos import DEMOS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

DEMO = (sys.executable, "-m", "requite.cli", "demo", "--json", "--no-audit", "--workers=2")
CHAPTER = [
    pattern for pattern in DEMOS if pattern != "pool"
]  # that one: tests/cli/test_show_pool.py
IN_BETWEEN = {"simple-pirate", "paranoid-pirate", "majordomo", "titanic", "binary-star"}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pattern", CHAPTER)
def test_every_request_is_answered_once_and_correctly(pattern: str) -> None:
    faults = ("--worker-kills=1", "--broker-kills=1", "--stops=1")
    ended = subprocess.run(
        [*DEMO, f"--pattern={pattern}", "--requests=600", "--clients=1", *faults],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    verdict = json.loads(ended.stdout.splitlines()[-1])
    counted = [verdict[key] for key in ("requests", "answered", "correct", "lost", "duplicated")]
    assert counted == [600, 600, 600, 0, 0]
    assert verdict["worker_kills"] == 1
    assert verdict["broker_kills"] == (pattern in IN_BETWEEN)
    assert ended.stderr.count("killed (SIGKILL)") == 1 + (pattern in IN_BETWEEN)


def test_an_unknown_pattern_is_refused_with_the_names_of_all() -> None:
    ended = subprocess.run(
        [*DEMO, "--pattern=corsair"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert all(name in ended.stderr.replace("\n", " ") for name in ("corsair", "titanic"))
