"""Every test shows what it checks: an assertion of its own, or a helper that asserts."""

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


def silent_tests(sources: dict[str, str]) -> list[str]:
    """Return the tests without an assertion, as `file::test`.

    A test asserts with `assert`, with a call of `_EXPECTING`, or by a function that it calls or
    passes on. Functions are looked up by name: all functions of that name must assert.
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
    """Return the names of functions that assert, by themselves or by those that they call."""
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
    """Yield the name of the called function, and of functions among the arguments."""
    for node in (call.func, *call.args):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_every_test_asserts() -> None:
    files = sorted(file for folder in _FOLDERS for file in (_ROOT / folder).rglob("*.py"))
    sources = {str(file.relative_to(_ROOT)): file.read_text("utf-8") for file in files}
    assert silent_tests(sources) == []


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
    assert silent_tests({"a.py": f"{helper}def test_it():\n    {body}\n"}) == []


@pytest.mark.parametrize("body", ["work()", "helper()", "pass"])
def test_a_test_without_an_assertion_is_named(body: str) -> None:
    helper = "def helper():\n    work()\n"
    test = f"@pytest.mark.timeout(5)\nasync def test_it():\n    {body}\n"
    assert silent_tests({"a.py": helper, "b.py": test}) == ["b.py::test_it"]
