"""Requirements of the protocols, and the decorator with which tests cite them.

Every MUST, SHALL and SHOULD of a source document is a row in `requirements/*.toml`:

    [[requirement]]
    id = "mdp02:worker:one-final"        # document : subject : rule
    level = "SHALL"                      # the source's key word; RULE where it has none
    section = "Request and Reply Processing"
    text = "..."                         # in our own words

If no test can show a requirement, `waived` gives the reason. `test_coverage.py` checks both
directions: every requirement has a test, and every citation is of a known requirement.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

FOLDER: Final = Path(__file__).parent / "requirements"
LEVELS: Final = frozenset(
    {"MUST", "MUST NOT", "SHALL", "SHALL NOT", "SHOULD", "SHOULD NOT", "RULE"}
)

Cited = TypeVar("Cited", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Requirement:
    """One rule of a document. `waived`: the reason why no test can cite it, or empty."""

    id: str
    level: str
    section: str
    text: str
    waived: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise ValueError(f"{self.id}: {self.level!r} is not a level")


@dataclass(frozen=True, slots=True)
class Document:
    """A source document, and its requirements in the order of its text."""

    title: str
    about: str
    requirements: tuple[Requirement, ...]


@cache
def documents() -> tuple[Document, ...]:
    """Return the documents of all data files, in order of file name."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.toml")))


def _read(path: Path) -> Document:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = tuple(Requirement(**row) for row in data["requirement"])
    return Document(data["title"], data["about"], rows)


@cache
def requirements() -> dict[str, Requirement]:
    """Return all requirements by id. Raises ValueError when two have the same id."""
    table: dict[str, Requirement] = {}
    for row in (row for document in documents() for row in document.requirements):
        if row.id in table:
            raise ValueError(f"two requirements have the id {row.id}")
        table[row.id] = row
    return table


def requirement(*ids: str) -> Callable[[Cited], Cited]:
    """Cite the requirements that a test verifies.

    The ids must be literals: citations are collected from the source of the tests. Raises
    LookupError for an unknown id.
    """
    unknown = [id_ for id_ in ids if id_ not in requirements()]
    if unknown:
        raise LookupError(f"no file in {FOLDER.name}/ has {', '.join(unknown)}")
    return lambda cited: cited
