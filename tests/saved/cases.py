"""The tests with foreign peers that a pytest process has collected, and those that are lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pytest

INTEROP: Final = "interop-cases"
_COLLECTED: Final = pytest.StashKey[frozenset[str]]()


def note_cases(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Keep the ids of the tests with foreign peers, before any is deselected."""
    found = (item.nodeid for item in items if item.get_closest_marker("interop"))
    config.stash[_COLLECTED] = frozenset(found)


def collected_cases(config: pytest.Config) -> frozenset[str]:
    """Return the ids that `note_cases` has kept."""
    return config.stash[_COLLECTED]


def lost_cases(before: Iterable[str], there: Iterable[str], root: Path) -> list[str]:
    """Return the cases that were there before and are not now.

    A process collects whole files. One of which nothing was collected was not asked for here, or
    lacks its peer on this machine; a case in it counts as lost only if the file is gone.
    """
    there = frozenset(there)
    files = {_file_of_case(case) for case in there}
    return [
        case
        for case in before
        if case not in there
        and ((file := _file_of_case(case)) in files or not (root / file).exists())
    ]


def _file_of_case(case: str) -> str:
    return case.partition("::")[0]
