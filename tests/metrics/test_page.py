"""docs/reference/metrics.md is current."""

from __future__ import annotations

from pathlib import Path

from tests.metrics.page import PAGE, main, render


def test_the_page_is_current(tmp_path: Path) -> None:
    assert PAGE.read_text() == render()
    main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == render()
