"""What was there stays: conformance ids, transcripts, scenarios and checkers.

`tests/interop/test_saved_cases.py` does the same for tests with foreign peers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.saved.cases import INTEROP, lost_cases
from tests.saved.lists import LISTS
from tests.saved.names import add, saved


@pytest.mark.parametrize("name", LISTS)
def test_nothing_is_lost(name: str) -> None:
    lost = sorted(set(saved(name)).difference(LISTS[name]()))
    assert not lost, f"remove from tests/saved/{name}.txt by hand what is given up on purpose"


@pytest.mark.parametrize("name", [*LISTS, INTEROP])
def test_lists_are_sorted(name: str) -> None:
    assert saved(name) == sorted(set(saved(name)))


def test_names_are_added_and_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.saved.names._FOLDER", tmp_path)
    assert add("names", ["b", "a"]) == ["a", "b"]
    assert add("names", ["c"]) == ["c"]
    assert saved("names") == ["a", "b", "c"]


def test_a_case_is_lost_with_its_file_and_out_of_a_file_that_was_collected(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").touch()
    (tmp_path / "test_b.py").touch()
    before = ["test_a.py::one", "test_a.py::two[x]", "test_b.py::three", "test_c.py::four"]
    there = ["test_a.py::one", "test_a.py::new"]
    assert lost_cases(before, there, tmp_path) == ["test_a.py::two[x]", "test_c.py::four"]
