"""docs/reference/metrics.md is current, and pools have the metrics that it names."""

from __future__ import annotations

import re
from pathlib import Path

from tests.metrics.page import PAGE, main, render

import requite.pool.manager.status as status


def test_the_page_is_current(tmp_path: Path) -> None:
    assert PAGE.read_text() == render()
    main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == render()


def test_the_metrics_of_pools_are_those_of_the_manager() -> None:
    source = Path(status.__file__).read_text()
    gauges = set(re.findall(r'_gauge\(\s*"(\w+)"', source))
    counters = {f"{name}_total" for name in re.findall(r'_counter\(\s*"(\w+)"', source)}
    named = set(re.findall(r"`requite_pool_(\w+)`", PAGE.read_text()))
    assert named == gauges | counters
