"""The command that makes the page of measurements anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from bench import all as everything
from bench.builds import PURE, Build


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(everything, "STATE", tmp_path / "state.json")
    monkeypatch.setattr(everything, "LOGS", tmp_path / "logs")
    path = tmp_path / "performance.md"
    path.write_text("# Page\n")
    return path


def make(page: Path, *options: str) -> int:
    return everything.main(["--docs", str(page), "--quick", "--busy", "--incomplete", *options])


ENGINE: Final = everything.Part("engine", "bench.engine --rounds 2", 1, "--rounds 1")
BROKEN: Final = everything.Part("broken", "bench.nothing", 1, "")


@pytest.mark.e2e
def test_parts_that_are_done_are_not_repeated(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "PARTS", (ENGINE, BROKEN))
    assert make(page) == 1
    assert "failed: broken" in capsys.readouterr().out
    assert "No module named bench.nothing" in (page.parent / "logs" / "broken.log").read_text()
    assert "| access file and quota |" in page.read_text()
    mended = BROKEN._replace(command="bench.engine --rounds 1")
    monkeypatch.setattr(everything, "PARTS", (ENGINE, mended))
    assert make(page) == 0
    written = capsys.readouterr().out
    assert "engine: done before" in written
    assert "=== broken: 1 of 1" in written
    assert make(page, "--only", "engine") == 0  # all were done, so this is another run
    assert "done before" not in capsys.readouterr().out


@pytest.mark.e2e
def test_missing_contenders_stop_it_before_anything_is_measured(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "find_spec", lambda _name: None)
    assert everything.main(["--docs", str(page), "--quick"]) == 1
    assert "no module pyspark" in capsys.readouterr().out
    assert page.read_text() == "# Page\n"


def test_every_part_is_a_command_with_known_options() -> None:
    given = everything.parse(["--docs", "docs/performance.md", "--quick", "--busy"])
    given.beside = Build("python", PURE, "")
    for part in everything.PARTS:
        words = part.words(given)
        assert ("--beside" in words) == part.has_builds
        assert words[-2:] in (["--docs", "docs/performance.md"], ["--docs", "docs"])
