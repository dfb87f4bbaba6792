"""Every test has an assertion, or calls a helper that asserts."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[1]
_FOLDERS: Final = ("tests", "fuzz")
# Calls that fail a test: pytest's, `tests.support.patience`, and waits for a condition.
_EXPECTING: Final = frozenset({"raises", "warns", "fail", "failure", "until", "timeout"})

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definitions = dict[str, list[_Function]]


def find_tests_without_assertion(sources: dict[str, str]) -> list[str]:
    """Return the tests without an assertion, as `file::test`.

    A test asserts with `assert`, with a call of a function in `_EXPECTING`, or through a function
    that it calls or passes as an argument. Functions are looked up by name: if several have the
    same name, all of them must assert.
    """
    definitions: _Definitions = defaultdict(list)
    tests: dict[str, _Function] = {}
    for file, source in sources.items():
        for function in _functions(ast.parse(source, file)):
            definitions[function.name].append(function)
            if function.name.startswith("test_"):
                tests[f"{file}::{function.name}"] = function
    asserting = _asserting(definitions)
    return [name for name, test in tests.items() if not _asserts(test, asserting)]


def _functions(tree: ast.AST) -> Iterator[_Function]:
    return (node for node in ast.walk(tree) if isinstance(node, _Function))


def _asserting(definitions: _Definitions) -> frozenset[str]:
    """Return the names of the functions that assert, directly or through functions they call."""
    found: frozenset[str] = frozenset(_EXPECTING)
    while True:
        more = found | {
            name
            for name, functions in definitions.items()
            if all(_asserts(function, found) for function in functions)
        }
        if more == found:
            return found
        found = more


def _asserts(function: _Function, asserting: frozenset[str]) -> bool:
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Raise) and "AssertionError" in ast.dump(node))
        or (isinstance(node, ast.Call) and not asserting.isdisjoint(_names(node)))
        for statement in function.body
        for node in ast.walk(statement)
    )


def _names(call: ast.Call) -> Iterator[str]:
    """Yield the names of the called function and of the functions among its arguments."""
    for node in (call.func, *call.args):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_every_test_asserts() -> None:
    files = sorted(file for folder in _FOLDERS for file in (_ROOT / folder).rglob("*.py"))
    sources = {str(file.relative_to(_ROOT)): file.read_text("utf-8") for file in files}
    assert find_tests_without_assertion(sources) == []


@pytest.mark.parametrize(
    "body",
    [
        "assert work()",
        "with pytest.raises(ValueError): work()",
        "checked()",
        "bench.checked()",
        "run(checked)",
        "for each in work():\n        assert each",
    ],
)
def test_an_assertion_is_found(body: str) -> None:
    helper = "def checked():\n    inner()\ndef inner():\n    assert work()\n"
    assert find_tests_without_assertion({"a.py": f"{helper}def test_it():\n    {body}\n"}) == []


@pytest.mark.parametrize("body", ["work()", "helper()", "pass"])
def test_a_test_without_an_assertion_is_named(body: str) -> None:
    helper = "def helper():\n    work()\n"
    test = f"@pytest.mark.timeout(5)\nasync def test_it():\n    {body}\n"
    assert find_tests_without_assertion({"a.py": helper, "b.py": test}) == ["b.py::test_it"]
