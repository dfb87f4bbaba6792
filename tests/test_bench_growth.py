"""Short runs of the curves of `python -m bench.growth`; no particular figure is required."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from bench.growth.__main__ import CURVES, main
from bench.growth.point import Point
from bench.growth.report import text

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize("name", CURVES)
def test_each_curve_has_its_figures_a_table_and_a_chart(name: str, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    curve = CURVES[name]
    if (lack := curve.lack()) is not None:
        pytest.skip(lack)
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    folder = tmp_path / "csv"
    short = ["--seconds", "0.2", "--points", "1", "--busy"]
    assert main(["--curve", name, *short, "--csv", str(folder), "--docs", str(page)]) == 0
    with (folder / f"{name}.csv").open() as file:
        figures = {row["figure"] for row in csv.DictReader(file) if float(row["value"]) >= 0}
    assert {shown.figure for shown in curve.shown} <= figures
    assert f"| {curve.what} |" in page.read_text()
    assert "<path" in (tmp_path / f"growth-{name}.svg").read_text()


def test_a_table_has_a_row_per_value_and_a_column_per_figure_and_line() -> None:
    points = [
        Point("a", 1, {"broker_cpu_us": 10.0, "broker_memory_mib": 25.0}),
        Point("b", 1, {"broker_cpu_us": 20.0, "broker_memory_mib": 26.0}),
        Point("a", 1000, {"broker_cpu_us": 30.0, "broker_memory_mib": 27.0}),
    ]
    header, _, first, last = text(CURVES["body"], points).splitlines()
    assert header.startswith("| bytes of the body | broker's CPU per request, µs: a |")
    assert first == "| 1 | 10.0 | 20.0 | 25 | 26 |"
    assert last == "| 1,000 | 30.0 | - | 27 | - |"
