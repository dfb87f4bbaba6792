"""The page docs/protocols/conformance.md: every requirement, and the tests that cite it.

python -m tests.spec.conformance        regenerates it
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.spec.citations import TESTS, Citation, citations
from tests.spec.requirement import Document, Requirement, documents

PAGE: Final = TESTS.parent / "docs" / "protocols" / "conformance.md"

_INTRODUCTION: Final = """\
# Conformance

Every rule of the documents below has an id, and at least one test that cites it.
The suite fails when a rule has no test, when a test cites a rule that does not exist, and when
this page is out of date; `python -m tests.spec.conformance` regenerates it. The rules are in our
own words; *level* is the source's key word, or RULE where the source states a rule without one.
"""


def render(found: Iterable[Citation]) -> str:
    """Return the page for the given citations."""
    tests: dict[str, list[Citation]] = {}
    for citation in found:
        tests.setdefault(citation.requirement, []).append(citation)
    return "\n".join([_INTRODUCTION, *(_section(document, tests) for document in documents())])


def _section(document: Document, tests: Mapping[str, list[Citation]]) -> str:
    rows = [_row(row, tests.get(row.id, [])) for row in document.requirements]
    head = ["| id | level | rule | source | tests |", "|---|---|---|---|---|"]
    return "\n".join([f"## {document.title}", "", document.about, "", *head, *rows, ""])


def _row(row: Requirement, cited_by: list[Citation]) -> str:
    shown = "; ".join(_files(cited_by)) or f"none: {row.waived}"
    cells = [f"`{row.id}`", row.level, row.text, row.section, shown]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _files(cited_by: list[Citation]) -> list[str]:
    """Return the files of the citations, each once; a known gap is given with its test."""
    gaps = [f"known gap: `{c.file}` `{c.test}`" for c in cited_by if c.fails]
    files = dict.fromkeys(f"`{c.file}`" for c in cited_by if not c.fails)
    return [*files, *gaps]


def main(page: Path = PAGE) -> int:
    """Write the page; return the exit status."""
    page.write_text(render(citations()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
