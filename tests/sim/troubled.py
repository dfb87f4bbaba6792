"""Runs that fail on purpose, selected by seed, to test a sweep's error handling."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from requite.sim import Options, Result
from requite.sim import run as sim_run

HANGS = 3
EXITS = 5
KILLED = 6
RAISES = 7
COLLECTS = 8


def run(seed: int, scenario: str, options: Options) -> Result:
    """Run a seed; those in `_TROUBLES` fail."""
    if seed in _TROUBLES:
        _TROUBLES[seed]()
    return sim_run(seed, scenario, options)


def wait_for_ever() -> None:
    """Never return."""
    while True:
        time.sleep(1.0)


def hold_the_lock() -> None:
    """Sleep for an hour in C code that holds the GIL, so that no other thread runs."""
    ctypes.PyDLL(None).sleep(3600)


def leave() -> None:
    """Exit the process without clean-up."""
    os._exit(9)


def die() -> None:
    """Crash with SIGSEGV, like a broken extension module."""
    signal.raise_signal(signal.SIGSEGV)  # raised in this thread; `os.kill` may signal another one


def fail() -> None:
    """Raise an unexpected exception."""
    raise LookupError("this seed has no world")


def collect() -> None:
    """Allocate more memory than the limit permits."""
    bytearray(1 << 40)


_TROUBLES = {
    HANGS: wait_for_ever,
    EXITS: leave,
    KILLED: die,
    RAISES: fail,
    COLLECTS: collect,
}
