"""The modules that are compiled have no construct that mypyc compiles wrongly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.compiled.build import ROOT, SOURCE, modules
from tests.compiled.traps import in_text

BAD_TEXTS = {
    "starred": "class A(B):\n def __init__(self, *args):\n  super().__init__(*args)",
    "kept": "later = (each for each in line)",
    "returned": "def f():\n return (each for each in line)",
    "named pattern": "match x:\n case (_, _) as pair:\n  print(pair)",
    "made by a call": "class A:\n a: B = B()",
    "class variable": "@dataclass(slots=True)\nclass A:\n a: ClassVar[int] = 1",
}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_a_trap_is_found(text: str) -> None:
    [line] = in_text(text, "bad.py")
    assert line.startswith("bad.py:")


def test_the_text_of_compiled_modules_has_no_trap() -> None:
    assert [line for name in modules() for line in in_text((SOURCE / name).read_text(), name)] == []


def in_types(folder: Path, names: Sequence[str]) -> list[str]:
    """Return what a process finds, which ends without its 600 MB being freed one by one."""
    command = [sys.executable, "-m", "tests.compiled.traps", str(folder), *names]
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()


@pytest.mark.slow
def test_compiled_modules_compare_no_unboxed_values_by_identity(tmp_path: Path) -> None:
    text = "def f(a: tuple[int, str], b: tuple[int, str] | None) -> bool:\n    return b is a\n"
    (tmp_path / "bad.py").write_text(text)
    assert in_types(tmp_path, ["bad.py"]) == ["bad.py:2: tuple[int, str] is compared by identity"]
    assert in_types(SOURCE, modules()) == []


def test_only_compiled_classes_have_the_base_class_of_compiled_values() -> None:
    """Python does not let an interpreted class inherit from a compiled one."""
    derived = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "(Value):" in path.read_text(encoding="utf-8")
    }
    assert derived
    assert derived <= set(modules())
