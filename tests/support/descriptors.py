"""Checks for leaks of file descriptors."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_OPEN = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def how_many() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir(_OPEN))


@contextmanager
def none_left() -> Iterator[None]:
    """Assert that the block leaves no more file descriptors open than before."""
    before = how_many()
    yield
    if how_many() > before:
        gc.collect()  # closes the descriptors of event loops in reference cycles
    assert how_many() <= before, "a file descriptor was left open"
