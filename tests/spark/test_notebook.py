"""The notebook examples/audit.ipynb: its cells run in order on a lake, as expected."""

from __future__ import annotations

import ast
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.events import NOON
from tests.spark.tables import append

from requite.spark.delta.catalog import Catalog
from requite.spark.marker import claim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "audit.ipynb"
DATE = NOON.date()


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return found


def test_the_notebook_is_valid_and_has_no_outputs(cells: list[dict[str, Any]]) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        common = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert set(cell) == common | {"execution_count", "outputs"}
            assert (cell["execution_count"], cell["outputs"]) == (None, [])
        else:
            assert (cell["cell_type"], set(cell)) == ("markdown", common)


def fill(root: Path) -> None:
    """Create a lake with one run: one request ended exactly once, another is missing."""
    claim(str(root), "/journal")
    catalog = Catalog(str(root))
    request = {"service": "echo", "date": DATE}
    verdicts = [
        {**request, "request_id": "a", "verdict": "EXACTLY_ONE"},
        {**request, "request_id": "b", "verdict": "MISSING", "evidence": "[]"},
    ]
    histogram = [
        {**request, "n": 3, "minute": NOON, "bucket": 400, "upper_ms": 2.75},
        {**request, "n": 3, "minute": NOON + timedelta(minutes=1), "bucket": 409, "upper_ms": 3.29},
        {**request, "n": 3, "minute": NOON, "bucket": 500, "upper_ms": 19.96},
    ]
    with catalog.running():
        append(catalog, "audit_verdicts", verdicts)
        append(catalog, "gold_latency_histogram", histogram)
        append(catalog, "gold_rightsizing", [{"service": "echo", "current": 4, "recommended": 2}])
        catalog.end({})


def test_the_notebook_runs(
    spark: SparkSession,
    cells: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("altair")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("requite.spark.session.local_session", lambda *_args: spark)
    fill(tmp_path / "lake")
    names: dict[str, Any] = {}
    shown = {cell["id"]: run(cell, names) for cell in cells if cell["cell_type"] == "code"}
    counts = {"verdict": ["EXACTLY_ONE", "MISSING"], "count": [1, 1]}
    assert shown["count"].to_dict("list") == counts
    assert shown["wrong"]["request_id"].tolist() == ["b"]
    assert shown["advice"]["recommended"].tolist() == [2]
    (rows,) = shown["chart"].to_dict()["datasets"].values()
    assert sorted((row["ms"], row["requests"]) for row in rows) == [(3.29, 6), (19.96, 3)]


def run(cell: dict[str, Any], names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last expression, which a notebook would show."""
    module = ast.parse("".join(cell["source"]))
    last = module.body.pop() if isinstance(module.body[-1], ast.Expr) else None
    exec(compile(module, cell["id"], "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
