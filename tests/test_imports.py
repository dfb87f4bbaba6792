"""There are no import cycles between files, direct or indirect, not even under `TYPE_CHECKING`.

import-linter checks the layers, but does not detect cycles of files inside one folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import ismodule
from pathlib import Path

import pytest

_TREE = Path(__file__).parent.parent


def test_there_are_no_import_cycles() -> None:
    graph = imports_below(_TREE / "src") | imports_below(_TREE, "bench")
    assert {"requite.engine", "bench.job"} <= graph.keys()
    assert [" <-> ".join(cycle) for cycle in cycles(graph)] == []


@pytest.mark.parametrize(
    "statement",
    [
        "import pack.b",
        "from pack import b",
        "from pack.b import name",
        "from .b import name",
        "from . import b",
        "if TYPE_CHECKING:\n    from pack.b import Name",
        "def f() -> None:\n    from pack.b import name",
    ],
)
def test_a_cycle_is_found_and_named(statement: str, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "__init__.py").touch()
    (pack / "a.py").write_text(f"{statement}\n")
    (pack / "b.py").write_text("import pack.c\n")
    (pack / "c.py").write_text("from pack.a import f\n")
    (pack / "d.py").write_text("import pack.a\n")
    assert list(cycles(imports_below(tmp_path))) == [["pack.a", "pack.b", "pack.c"]]


def test_a_diamond_is_not_a_cycle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\nimport c\n")
    (tmp_path / "b.py").write_text("import d\n")
    (tmp_path / "c.py").write_text("import d\n")
    (tmp_path / "d.py").touch()
    assert list(cycles(imports_below(tmp_path))) == []


LAZY = sorted(
    path.parent
    for path in (_TREE / "src" / "requite").rglob("__init__.py")
    if "def __getattr__(" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("folder", LAZY, ids=lambda folder: folder.name)
def test_no_name_that_is_loaded_late_is_that_of_a_module(folder: Path) -> None:
    """The import of the module would replace the name."""
    package = import_module(".".join(folder.relative_to(_TREE / "src").parts))
    taken = {name for name in package.__all__ if find_spec(f"{package.__name__}.{name}")}
    assert {name for name in taken if not ismodule(package.__getattr__(name))} == set()


def imports_below(root: Path, folder: str = "") -> dict[str, set[str]]:
    """Return, for each module in a folder of `root`, the modules of the folder that it imports."""
    files = {_module(root, path): path for path in (root / folder).rglob("*.py")}
    return {module: set(_imported(module, path, files)) for module, path in files.items()}


def _module(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(module: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield from [each for each in (name, base) if each in files][:1]


def cycles(graph: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield each set of modules that all import each other, directly or indirectly."""
    below = {module: _reach(graph, module) for module in graph}
    seen: set[str] = set()
    for module in sorted(graph):
        if module in below[module] and module not in seen:
            cycle = sorted(each for each in below[module] if module in below[each])
            seen.update(cycle)
            yield cycle


def _reach(graph: Mapping[str, set[str]], module: str) -> set[str]:
    found: set[str] = set()
    ahead = [*graph[module]]
    while ahead:
        each = ahead.pop()
        if each not in found:
            found.add(each)
            ahead += graph[each]
    return found
