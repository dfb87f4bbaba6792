"""File descriptors: when a shortage is reported, and how it is described."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest

from requite.transport import descriptors


@pytest.fixture
def lowest_free() -> int:
    """Return the descriptor that the next file would get."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    return lowest


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """Restore the limit after each test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def allow(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_reserve_is_kept_for_files(left: int, lowest_free: int) -> None:
    allow(lowest_free + left)
    told = descriptors.shortage()
    allowed = f"{lowest_free + left:,}"
    assert f" of {allowed} file descriptors are in use (RLIMIT_NOFILE); " in told
    assert "`ulimit -n`" in told


def test_no_shortage_is_reported_with_enough_descriptors(lowest_free: int) -> None:
    allow(lowest_free + 65)
    assert descriptors.shortage() == ""


def test_closing_connections_count_as_closed(lowest_free: int) -> None:
    allow(lowest_free + 1)
    assert descriptors.shortage(leaving=3)
    assert descriptors.shortage(leaving=64) == ""


def test_exhaustion_names_the_limit_only_if_it_is_the_reason(lowest_free: int) -> None:
    allow(lowest_free)
    told = descriptors.exhaustion(OSError(errno.EMFILE, "too many"))
    assert told.startswith(f"all {lowest_free:,} file descriptors are in use (RLIMIT_NOFILE); ")
    told = descriptors.exhaustion(OSError(errno.ENFILE, "too many"))
    assert told == "too many open files in system"
