"""Short runs of `python -m bench.memory`; no particular figure is required."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.memory.__main__ import main
from bench.memory.cases import CASES
from tests.support.builds import pure_only

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


_SHORT = (
    "pending request, MDP 0.3",
    "pending call, SP",
    "idle connection, ZMTP PLAIN",
    "idle connection, SP over WebSocket",
    "idle worker, MDP 0.2",
)


@pytest.mark.parametrize("name", _SHORT)
def test_each_case_adds_its_things_and_has_a_row(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if (lack := case.lack()) is not None:
        pytest.skip(lack)
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    assert main(["--only", f"{case.what}, {case.how}", "--count", "4", "--docs", str(page)]) == 0
    assert f"| {case.what} | {case.how} | {case.process} | " in page.read_text()


@pure_only("compiled lines are not traced")
def test_a_trace_names_the_lines_that_allocate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--only", "pending request, MDP 0.3", "--count", "500", "--trace"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("/majordomo/" in line for line in lines)
