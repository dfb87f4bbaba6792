"""Time limits of tests, and a watchdog for tests that hang.

pytest-timeout interrupts a test at its limit with a signal: the test fails, and the next one runs.
Python cannot handle the signal while a test hangs in C code. In that case the thread of
faulthandler prints the stacks of all threads and ends the process, so the lane fails.
"""

from __future__ import annotations

import faulthandler
import os
from typing import Final

import pytest

# Tests with these markers start processes, which may take ten times as long on a busy machine.
_LONGER: Final = ("e2e", "interop", "slow")
_LONGER_S: Final = 120.0
# The watchdog waits this much longer than pytest-timeout, in each phase of a test.
GRACE_S = 30.0
_STDERR: Final = pytest.StashKey[int]()


def set_limit(item: pytest.Item) -> None:
    """Raise the time limit of a test that starts processes to 120 s, unless it has its own."""
    if not item.get_closest_marker("timeout") and any(map(item.get_closest_marker, _LONGER)):
        item.add_marker(pytest.mark.timeout(_LONGER_S))


def begin(config: pytest.Config) -> None:
    """Enable faulthandler on a copy of stderr, because pytest replaces stderr during a test."""
    config.stash[_STDERR] = os.dup(2)
    faulthandler.enable(config.stash[_STDERR])


def watch(item: pytest.Item) -> None:
    """Restart the watchdog: the process ends if this phase of the test hangs."""
    marker = item.get_closest_marker("timeout")
    asked = item.config.getoption("timeout") or item.config.getini("timeout")
    limit_s = float(marker.args[0] if marker else asked)
    file = item.config.stash[_STDERR]
    faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=file)


def end() -> None:
    """Stop the watchdog after the last test: pytest then collects garbage, which may take minutes
    on a busy machine."""
    faulthandler.cancel_dump_traceback_later()


def summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the CPU time of this process, and of its children that have ended."""
    times = os.times()
    own, children = times.user + times.system, times.children_user + times.children_system
    terminalreporter.write_line(f"processor time: {own:.0f} s, and {children:.0f} s in children")
