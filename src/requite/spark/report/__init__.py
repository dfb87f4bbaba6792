"""The report: one HTML file that tells what became of the requests in a lake.

facts.py      what it tells, as plain values
tables.py, steps.py, course.py, lake.py     from a lake to facts
words.py, markup.py, html_table.py          text and elements, escaped by construction
charts.py, svg.py                           rows to inline SVG
verdict.py, behaviour.py, capacity.py       the parts of the page
page.py, report.css                         the page
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession


def write(
    spark: SparkSession,
    lake: str | PathLike[str],
    path: str | PathLike[str],
    *,
    table_format: str = "parquet",
) -> Path:
    """Write the report of a lake to `path`, and return that as a `Path`.

    The file needs nothing else to be read, and stays below a megabyte however much the lake holds.
    A lake without requests gives a page that says so. Needs the extra `report` (Altair and
    vl-convert); raises `ImportError` where these are missing.
    """
    from requite.spark.report.lake import gather
    from requite.spark.report.page import render

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render(gather(spark, str(lake), table_format=table_format)), encoding="utf-8")
    return target
