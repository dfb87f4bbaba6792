"""Constructs that mypyc compiles to something else than what Python does, silently or loudly.

| trap | compiled |
|---|---|
| identity of tuples, numbers | two values that were one object are none: the comparison is False |
| `super().__init__(*arguments)` | the tuple becomes the first argument |
| a generator expression that is kept | a list: everything is evaluated at once |
| `case (…) as name` | the name is not assigned |
| `ClassVar` in a dataclass | a field, which cannot be set |
| an attribute of a class that is made by a call | there is no such attribute |

`python -m tests.compiled.traps FOLDER NAME...` prints the first one, for files of a folder.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mypy import build, nodes, types
from mypy.modulefinder import BuildSource
from mypy.options import Options

_SPECIAL = {"NamedTuple", "Enum", "IntEnum", "IntFlag", "StrEnum", "Protocol"}
_UNBOXED = ("builtins.int", "builtins.float")


def in_text(text: str, name: str) -> list[str]:
    """Return the traps in a module that its text shows, as `name:line: what`."""
    tree = ast.parse(text)
    return [f"{name}:{line}: {what}" for node in ast.walk(tree) for line, what in _at(node)]


def _at(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("super")))):
            if any(isinstance(each, ast.Starred) for each in node.args):
                yield node.lineno, "super() is called with starred arguments: write them out"
        case (
            ast.Assign(value=ast.GeneratorExp() as made)
            | ast.AnnAssign(value=ast.GeneratorExp() as made)
            | ast.Return(value=ast.GeneratorExp() as made)
            | ast.Starred(value=ast.GeneratorExp() as made)
            | ast.YieldFrom(value=ast.GeneratorExp() as made)
        ):
            yield made.lineno, "a generator expression is kept: use a list, or a function"
        case ast.MatchAs(pattern=ast.MatchSequence()):
            yield node.lineno, "a sequence pattern has a name: test the type instead"
        case ast.ClassDef() if any(
            "dataclass" in ast.unparse(each) for each in node.decorator_list
        ):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and "ClassVar" in ast.unparse(line.annotation):
                    yield line.lineno, "a dataclass has a ClassVar: leave out the annotation"
        case ast.ClassDef(bases=bases, body=body) if not _SPECIAL & {*map(ast.unparse, bases)}:
            for line in body:
                if _is_made_by_a_call(line):
                    yield line.lineno, "an attribute of a class is made by a call: use `__init__`"


def _is_made_by_a_call(line: ast.stmt) -> bool:
    match line:
        case ast.Assign(value=ast.Call()):
            return True
        case ast.AnnAssign(value=ast.Call(), annotation=annotation):
            return not any(word in ast.unparse(annotation) for word in ("Final", "ClassVar"))
    return False


_IDENTITY: Final = frozenset({ast.Is, ast.IsNot})


def in_types(source: Path, names: Sequence[str]) -> list[str]:
    """Return the comparisons by identity of unboxed values, in modules below `source`."""
    options = Options()
    options.python_version = sys.version_info[:2]
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    options.ignore_missing_imports = True
    options.mypy_path = [str(source)]
    options.namespace_packages = True
    modules = {name: name.removesuffix(".py").replace("/", ".") for name in names}
    sources = [BuildSource(str(source / name), module) for name, module in modules.items()]
    checked = build.build(sources, options)
    # mypy's expressions do not know their file, so it is found by their place.
    places: dict[tuple[int | None, ...], list[str]] = {}
    for name in names:
        for node in ast.walk(ast.parse((source / name).read_text())):
            if isinstance(node, ast.Compare) and _IDENTITY.intersection(map(type, node.ops)):
                place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                places.setdefault(place, []).append(name)
    return sorted(
        f"{name}:{each.line}: {unboxed} is compared by identity"
        for each in checked.types
        if isinstance(each, nodes.ComparisonExpr)
        for unboxed in _unboxed_identities(each, checked.types)
        for name in places.get((each.line, each.column, each.end_line, each.end_column), ())
    )


def _unboxed_identities(
    comparison: nodes.ComparisonExpr, types_of: dict[nodes.Expression, types.Type]
) -> Iterator[types.ProperType]:
    """Yield the unboxed types that a comparison compares by identity, unless it is with None."""
    for operator, *sides in comparison.pairwise():
        if operator not in ("is", "is not"):
            continue
        parts = [
            [
                types.get_proper_type(part)
                for part in types.flatten_nested_unions([types_of[side]])
                if not isinstance(part, types.NoneType)
            ]
            for side in sides
            if side in types_of
        ]
        if len(parts) == 2 and all(parts):
            yield from {part for each in parts for part in each if _is_unboxed(part)}


def _is_unboxed(part: types.ProperType) -> bool:
    if isinstance(part, types.TupleType):
        return part.partial_fallback.type.fullname == "builtins.tuple"
    return isinstance(part, types.Instance) and part.type.fullname in _UNBOXED


if __name__ == "__main__":
    gc.disable()  # mypy's trees are kept to the end
    for found in in_types(Path(sys.argv[1]), sys.argv[2:]):
        print(found)
    sys.stdout.flush()
    os._exit(0)
