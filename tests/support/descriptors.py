"""Counting file descriptors: whoever opens one closes it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_OPEN = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


def how_many() -> int:
    """Return how many are open in this process."""
    return len(os.listdir(_OPEN))


@contextmanager
def none_left() -> Iterator[None]:
    """Hold that as many are open after the block as before it."""
    before = how_many()
    yield
    if how_many() > before:
        gc.collect()  # an event loop's own may wait for the collector
    assert how_many() <= before, "a file descriptor was left open"
