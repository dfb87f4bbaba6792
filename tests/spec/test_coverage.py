"""Every requirement has a test, and every citation is of a known requirement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.spec.citations import citations
from tests.spec.conformance import PAGE, main, render
from tests.spec.requirement import documents, requirement, requirements

MDP_03_PAGE = PAGE.with_name("mdp-0.3.md")


def test_every_requirement_has_a_test_or_is_waived() -> None:
    cited = {citation.requirement for citation in citations()}
    untested = [id_ for id_, row in requirements().items() if id_ not in cited and not row.waived]
    assert not untested


def test_no_waived_requirement_has_a_test() -> None:
    cited = {citation.requirement for citation in citations()}
    assert not [id_ for id_, row in requirements().items() if id_ in cited and row.waived]


def test_every_citation_is_of_a_known_requirement() -> None:
    unknown = [c for c in citations() if c.requirement not in requirements()]
    assert not unknown


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(citations()), (
        "docs/protocols/conformance.md is out of date; write it: python -m tests.spec.conformance"
    )


def test_main_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "conformance.md"
    assert main(page) == 0
    assert page.read_text(encoding="utf-8") == render(citations())


def test_ids_begin_with_their_document() -> None:
    for document in documents():
        assert len({row.id.partition(":")[0] for row in document.requirements}) == 1


def test_the_requirements_of_mdp_0_3_match_its_page() -> None:
    bracketed = re.findall(r"^(?:- )?\[([a-z-]+)\] ", MDP_03_PAGE.read_text(encoding="utf-8"), re.M)
    known = [id_.removeprefix("mdp03:") for id_ in requirements() if id_.startswith("mdp03:")]
    assert sorted(known) == sorted(bracketed)


def test_an_unknown_id_is_refused_at_once() -> None:
    with pytest.raises(LookupError, match="mdp02:no-such-rule"):
        requirement("mdp02:no-such-rule")


# --- the collector, with small sources ------------------------------------------------------------
def collect(tmp_path: Path, source: str) -> list[tuple[str, str, bool]]:
    (tmp_path / "test_it.py").write_text(source, encoding="utf-8")
    return [(c.requirement, c.test, c.fails) for c in citations(tmp_path)]


def test_citations_are_found_on_functions_coroutines_methods_and_classes(tmp_path: Path) -> None:
    source = """
@requirement("a", "b")
def test_one(): ...
@spec.requirement("c")
async def test_two(): ...
@requirement("d")
class TestThree:
    @pytest.mark.xfail(strict=True)
    @requirement("e")
    def test_four(self): ...
"""
    assert sorted(collect(tmp_path, source)) == [
        ("a", "test_one", False),
        ("b", "test_one", False),
        ("c", "test_two", False),
        ("d", "TestThree", False),
        ("e", "test_four", True),
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("@requirement(NAME)\ndef test_it(): ...", "literal"),
        ("@requirement()\ndef test_it(): ...", "one id or more"),
        ("@requirement('a')\ndef helper(): ...", "does not run"),
    ],
)
def test_a_citation_that_cannot_be_read_is_an_error(
    source: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=complaint):
        collect(tmp_path, source)
