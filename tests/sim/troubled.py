"""Runs that go wrong on purpose, by seed: what a sweep has to cope with."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from requite.sim import Options, Result
from requite.sim import run as whole

HANGS = 3
EXITS = 5
KILLED = 6
RAISES = 7
COLLECTS = 8


def run(seed: int, scenario: str, options: Options) -> Result:
    """Run a seed, unless it is one of those above."""
    if seed in _TROUBLES:
        _TROUBLES[seed]()
    return whole(seed, scenario, options)


def wait_for_ever() -> None:
    """Never return."""
    while True:
        time.sleep(1.0)


def hold_the_lock() -> None:
    """Stay in C for hours, so that no other thread of the process has its turn."""
    ctypes.PyDLL(None).sleep(3600)


def leave() -> None:
    """Take the process along without a word."""
    os._exit(9)


def die() -> None:
    """Die as an extension module does that is broken."""
    signal.raise_signal(signal.SIGSEGV)  # to this thread; `os.kill` may inject another one


def fail() -> None:
    """Raise what nobody expects."""
    raise LookupError("this seed has no world")


def collect() -> None:
    """Ask for more memory than there may be."""
    bytearray(1 << 40)


_TROUBLES = {
    HANGS: wait_for_ever,
    EXITS: leave,
    KILLED: die,
    RAISES: fail,
    COLLECTS: collect,
}
