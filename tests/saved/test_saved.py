"""The saved lists have exactly the current conformance ids, transcripts, scenarios and checkers.

`tests/interop/test_saved_cases.py` checks the list of interop tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.saved.cases import INTEROP
from tests.saved.lists import LISTS
from tests.saved.names import add, differences, saved


@pytest.mark.parametrize("name", LISTS)
def test_the_list_has_the_current_names(name: str) -> None:
    assert differences(name, LISTS[name]()) == []


@pytest.mark.parametrize("name", [*LISTS, INTEROP])
def test_lists_are_sorted(name: str) -> None:
    assert saved(name) == sorted(set(saved(name)))


def test_names_are_added_and_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.saved.names._FOLDER", tmp_path)
    assert add("names", ["b", "a"]) == ["a", "b"]
    assert add("names", ["c"]) == ["c"]
    assert saved("names") == ["a", "b", "c"]
    assert differences("names", ["a", "c", "d"]) == [
        "b: gone; if on purpose, remove its line",
        "d: new; python -m tests.saved",
    ]
