"""Lists of names that later versions must keep, such as conformance ids, in files of this folder.

A file has one name per line. `python -m tests.saved` adds new names, and removes none. To drop a
name on purpose, remove its line by hand and give the reason in the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent


def file_of(name: str) -> Path:
    """Return the path of a list's file."""
    return _FOLDER / f"{name}.txt"


def saved(name: str) -> list[str]:
    """Return the names in a saved list."""
    return file_of(name).read_text("utf-8").splitlines()


def add(name: str, current: Iterable[str]) -> list[str]:
    """Add the current names that a list lacks; return the new names."""
    before = saved(name) if file_of(name).exists() else []
    new = sorted({*current}.difference(before))
    file_of(name).write_text("".join(f"{each}\n" for each in sorted([*before, *new])), "utf-8")
    return new


def differences(name: str, current: Iterable[str]) -> list[str]:
    """Return a line for each difference between a list and the current names, and what to do."""
    before, now = set(saved(name)), set(current)
    lost = [f"{each}: gone; if on purpose, remove its line" for each in sorted(before - now)]
    return lost + [f"{each}: new; python -m tests.saved" for each in sorted(now - before)]
