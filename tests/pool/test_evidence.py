"""The page about pools names tests as evidence; each of these tests exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.sim import pool_mutants
from tests.sim.mutant_table import BROKEN

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/protocols/pools.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)(?:\[(\w+)\])?`", PAGE)))


def table(heading: str) -> list[str]:
    """Return the rows of the first table below a heading."""
    _, found, below = PAGE.partition(f"\n## {heading}\n")
    assert found, heading
    lines = below[below.index("\n|") + 1 :].split("\n\n")[0].splitlines()
    return lines[2:]


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of all functions in a test file."""
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize(("path", "name", "case"), NAMED)
def test_each_test_that_the_page_names_exists(path: str, name: str, case: str) -> None:
    assert name in functions(path)
    if case:
        assert hasattr(pool_mutants, case)
        assert case in {broken.name for broken in BROKEN if broken.group == "pool"}


@pytest.mark.parametrize(
    ("heading", "count"), [("Failure mode analysis", 15), ("Thirteen defects", 13)]
)
def test_each_row_names_a_test(heading: str, count: int) -> None:
    rows = table(heading)
    assert len(rows) >= count
    for row in rows:
        assert re.search(r"`[\w/]+\.py::test_\w+", row), row


def test_the_page_names_every_injected_defect() -> None:
    mutants = {name for name in vars(pool_mutants) if re.fullmatch(r"D\d+\w+", name)}
    assert mutants <= {case for _, _, case in NAMED}
