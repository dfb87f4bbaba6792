"""The page of licences lists every pinned package, with the licence in its metadata."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.licences import PAGE, licence, main, pins

_LISTED = dict(re.findall(r"^\| ([\w.-]+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M))
_LISTED.pop("package", None)
_PINNED = pins("runtime") | pins("test")


def test_every_pinned_package_is_listed() -> None:
    assert _LISTED.keys() == _PINNED.keys(), "write it: python -m tests.licences"


def test_licences_are_those_of_the_installed_packages() -> None:
    # If a package's version depends on the Python version, the page has the licence of only one.
    same_everywhere = [package for package, versions in _PINNED.items() if len(versions) == 1]
    stated = {package: licence(package) for package in same_everywhere}
    wrong = {
        package: words
        for package, words in stated.items()
        if words is not None and words != _LISTED.get(package)
    }
    assert not wrong, "write it: python -m tests.licences"


def test_the_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "licences.md"
    try:
        assert main(page) == 0
    except LookupError as error:
        pytest.skip(f"this environment cannot write the page: {error}")
    assert page.read_text("utf-8").startswith("# Licences\n")
