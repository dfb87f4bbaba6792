"""The report: one HTML file on the requests in a lake.

facts.py      the report's content, as plain values
lake.py, timeline.py, users.py, steps.py, bounded.py    from a lake to facts
words.py, markup.py, html_table.py          text, and templates that escape it
charts.py, drawing.py, scales.py, svg.py    rows to inline SVG
verdict.py, behaviour.py, capacity.py, access.py    the parts of the page
page.py, report.css                         the page
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession


def write(
    spark: SparkSession,
    lake: str | PathLike[str],
    path: str | PathLike[str],
) -> Path:
    """Write the report of a lake to `path`; return `path` as a `Path`.

    The file is self-contained, and smaller than a megabyte for lakes of any size. A lake without
    requests gives a page that says so. Raises `ConfigurationError` if the extra `report` (Altair,
    vl-convert and Jinja) is not installed or the file cannot be written; `LakeDamaged` if the lake
    has changed since its last run.
    """
    require_charts()
    require_place(path)
    from requite.spark.lake import Lake
    from requite.spark.report.lake import gather
    from requite.spark.report.page import render

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    page = render(gather(Lake.at(spark, lake)))
    target.write_text(page, encoding="utf-8")
    return target


def require_place(path: str | PathLike[str]) -> None:
    """Raise `ConfigurationError` if a report cannot be written to `path`; create nothing."""
    target = Path(path).absolute()
    if target.is_dir():
        raise ConfigurationError(
            f"cannot write the report: {path} is a folder; pass the name of a file"
        )
    nearest = next(place for place in (target, *target.parents) if place.exists())
    if nearest != target and not nearest.is_dir():
        raise ConfigurationError(f"cannot write the report to {path}: {nearest} is a file")
    if not os.access(nearest, os.W_OK):
        raise ConfigurationError(f"cannot write the report to {path}: {nearest} is read-only")


def require_charts() -> None:
    """Raise `ConfigurationError` if the packages for charts are not installed."""
    missing = [name for name in ("altair", "jinja2", "vl_convert") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the report requires {' and '.join(missing)}: pip install 'requite[report]'"
        )
