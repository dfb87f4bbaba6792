"""Lists of what no later tree may lose: names, one a line, in files beside this one.

`python -m tests.saved` adds what is new. It removes nothing: whoever gives up one of these names
removes its line by hand, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent


def file_of(name: str) -> Path:
    """Return the file of a list."""
    return _FOLDER / f"{name}.txt"


def saved(name: str) -> list[str]:
    """Read a list."""
    return file_of(name).read_text("utf-8").splitlines()


def add(name: str, there: Iterable[str]) -> list[str]:
    """Add to a list what it does not have yet; return that."""
    before = saved(name) if file_of(name).exists() else []
    new = sorted({*there}.difference(before))
    file_of(name).write_text("".join(f"{each}\n" for each in sorted([*before, *new])), "utf-8")
    return new


def differences(name: str, there: Iterable[str]) -> list[str]:
    """Say in what a list differs from what there is, and what to do about it."""
    before, now = set(saved(name)), set(there)
    lost = [f"{each}: gone; if on purpose, remove its line" for each in sorted(before - now)]
    return lost + [f"{each}: new; python -m tests.saved" for each in sorted(now - before)]
