"""The programs of the page on bulk calls that call a typed service, run as printed except for the
port."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.bulk.shop import Served

import requite.spark
from requite.spark import session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "bulk-calls.md").read_text()
SECTION = PAGE.partition("## Call a typed service\n")[2].partition("\n## ")[0]
PRINTED = "127.0.0.1:5555"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.DOTALL)


def test_the_programs_print_what_the_page_shows(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "local_session", lambda: spark)
    service, job = blocks("python")
    [table], [query] = blocks("text"), blocks("sql")
    names: dict[str, Any] = {}
    exec(compile(service, "orders.py", "exec", dont_inherit=True), names)
    served = Served(names["orders"])
    try:
        place = served.url("").removeprefix("mdp://").rstrip("/")
        exec(compile(job.replace(PRINTED, place), "job.py", "exec", dont_inherit=True), names)
        assert capsys.readouterr().out.split() == table.split()
        requite.spark.register(spark)
        names["orders"].createOrReplaceTempView("orders")
        spark.sql(query.replace(PRINTED, place)).orderBy("order_id").show(truncate=False)
        assert capsys.readouterr().out.split() == table.split()
    finally:
        served.close()
        spark.catalog.dropTempView("orders")
