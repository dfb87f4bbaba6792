"""The requirements that each test cites, collected from the source of the tests without running
them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).parents[1]

_Test = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Citation(NamedTuple):
    """A requirement cited by a test. `fails`: the test is expected to fail (xfail)."""

    requirement: str
    file: str
    test: str
    fails: bool


def citations(folder: Path = TESTS) -> list[Citation]:
    """Return all citations in the tests below a folder. Raises ValueError for one that cannot be
    read."""
    found: list[Citation] = []
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "requirement(" in source:  # three of four files cite nothing and need no parsing
            found += _in_source(source, path.relative_to(folder).as_posix())
    return found


@cache
def _in_source(source: str, file: str) -> tuple[Citation, ...]:
    return tuple(_in_tree(ast.parse(source, file), file))


def _in_tree(tree: ast.Module, file: str) -> Iterator[Citation]:
    for node in ast.walk(tree):
        if isinstance(node, _Test):
            fails = any(_is_named(decorator, "xfail") for decorator in node.decorator_list)
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _is_named(decorator, "requirement"):
                    yield from (
                        Citation(id_, file, node.name, fails) for id_ in _ids(decorator, node, file)
                    )


def _is_named(decorator: ast.expr, name: str) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (isinstance(called, ast.Name) and called.id == name) or (
        isinstance(called, ast.Attribute) and called.attr == name
    )


def _ids(decorator: ast.Call, test: _Test, file: str) -> Iterator[str]:
    where = f"{file}:{decorator.lineno}"
    if not isinstance(test, ast.ClassDef) and not test.name.startswith("test"):
        raise ValueError(f"{where}: {test.name} cites a requirement, but pytest does not run it")
    if not decorator.args or decorator.keywords:
        raise ValueError(f"{where}: requirement() takes one id or more")
    for arg in decorator.args:
        if not (isinstance(arg, ast.Constant) and isinstance(arg.value, str)):
            raise ValueError(f"{where}: ids of requirements must be literal")
        yield arg.value
