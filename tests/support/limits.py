"""How long a test may take, and what ends one that is stuck.

pytest-timeout interrupts a test at its limit, as a signal that Python handles: the test fails, and
the next one runs. Code that is stuck in C never lets Python handle it. For that faulthandler's
thread waits: it writes the stacks of all threads and ends the process, and so fails the lane.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Final

import pytest

# What starts processes may be ten times as slow on a busy machine.
_LONGER: Final = ("e2e", "interop", "slow")
_LONGER_S: Final = 120.0
# Added to the limit of a test for each of its phases; the interrupt gets this time to work.
GRACE_S = 30.0
_STDERR: Final = pytest.StashKey[int]()


def set_limit(item: pytest.Item) -> None:
    """Give a test that starts processes more time than others."""
    if not item.get_closest_marker("timeout") and any(map(item.get_closest_marker, _LONGER)):
        item.add_marker(pytest.mark.timeout(_LONGER_S))


def begin(config: pytest.Config) -> None:
    """Keep the real stderr, which pytest replaces while a test runs."""
    config.stash[_STDERR] = os.dup(2)
    faulthandler.enable(config.stash[_STDERR])


def watch(item: pytest.Item) -> None:
    """Have the process end if this phase of the test is stuck. Replaces the watch before it."""
    marker = item.get_closest_marker("timeout")
    asked = item.config.getoption("timeout") or item.config.getini("timeout")
    limit_s = float(marker.args[0] if marker else asked)
    file = item.config.stash[_STDERR]
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=file)


def summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the tests have cost this process and those of its children that have ended."""
    times = os.times()
    own, children = times.user + times.system, times.children_user + times.children_system
    terminalreporter.write_line(f"processor time: {own:.0f} s, and {children:.0f} s in children")
