"""Ids of the interop tests that a pytest process has collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

INTEROP: Final = "interop-cases"
_COLLECTED: Final = pytest.StashKey[frozenset[str]]()


def note_cases(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Record the ids of all tests marked `interop`, before tests are deselected."""
    found = (item.nodeid for item in items if item.get_closest_marker("interop"))
    config.stash[_COLLECTED] = frozenset(found)


def collected_cases(config: pytest.Config) -> frozenset[str]:
    """Return the ids that `note_cases` has recorded."""
    return config.stash[_COLLECTED]
