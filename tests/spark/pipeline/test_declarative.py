"""The declarative pipeline: its tables after one run, and after a second one.

The project runs on the Connect server of the tests. A long test runs it by `spark-pipelines`, with
the settings of the project, in separate JVMs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.dataset as ds
import pyspark
import pytest
from pyspark.sql import SparkSession
from tests.spark import spark_settings
from tests.spark.source.journals import LogWriter, span

from requite.spark.session import prepare_environment

PROJECT = Path(__file__).parents[3] / "pipelines"
FOR_TESTS = {
    **spark_settings.SQL,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": spark_settings.JAVA_OPTIONS,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project with temporary folders."""
    copy = tmp_path / "pipelines"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    spec = copy / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    assert "/var/lib/requite" in text
    spec.write_text(text.replace("/var/lib/requite", str(tmp_path)), encoding="utf-8")
    with (copy / "conf" / "spark-defaults.conf").open("a", encoding="utf-8") as defaults:
        defaults.writelines(f"{key} {value}\n" for key, value in FOR_TESTS.items())
    return copy


def run_by_command(project: Path) -> None:
    """Run the project by `spark-pipelines`, as its page says."""
    prepare_environment()
    home = Path(pyspark.__file__).parent
    command = [home / "bin" / "spark-pipelines", "run", "--spec", "spark-pipeline.yml"]
    environment = {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(project / "conf"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    run(project, command, environment)


def run_on_server(project: Path, url: str) -> None:
    """Run the project as `spark-pipelines` does once it has a server."""
    program = Path(pyspark.__file__).parent / "pipelines" / "cli.py"
    command = [sys.executable, program, "run", "--spec", "spark-pipeline.yml"]
    run(project, command, {"SPARK_REMOTE": url})


def run(project: Path, command: Sequence[str | Path], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=project,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]


Table = Callable[[str], list[dict[str, object]]]


def tables(warehouse: Path) -> Table:
    """Return a function that reads a table of a warehouse."""

    def table(name: str) -> list[dict[str, object]]:
        return ds.dataset(warehouse / name, partitioning="hive").to_table().to_pylist()

    return table


def write_first(writer: LogWriter) -> None:
    writer.spans([span(number, number / 8, queued=True) for number in range(10)])


def write_more(writer: LogWriter) -> None:
    writer.spans([span(number, number / 8) for number in range(10, 15)])
    writer.raw(b"this is no block")


def check_all(table: Table) -> None:
    """Assert the rows of the tables after both parts of the journal have been read."""
    assert len(table("bronze_events")) == 55
    assert len(table("bronze_quarantine")) == 1
    assert len(table("audit_verdicts")) == 15
    (minute,) = table("gold_service_minute")
    assert (minute["accepted"], minute["replied"]) == (15, 15)
    (advice,) = table("gold_rightsizing")
    assert advice["recommended"] == 2
    assert table("gold_failures") == []
    (depth,) = table("gold_queue_depth")
    assert depth["max_depth"] == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pipeline_fills_its_tables(
    project: Path, spark: SparkSession, connect_url: str
) -> None:
    with LogWriter(project.parent / "journal") as writer:
        write_first(writer)
        write_more(writer)
        run_on_server(project, connect_url)
    table = tables(Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path))
    check_all(table)
    assert [row["verdict"] for row in table("audit_verdicts")] == ["EXACTLY_ONE"] * 15


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_run_continues_the_tables_of_the_first(project: Path) -> None:
    table = tables(project / "spark-warehouse")
    with LogWriter(project.parent / "journal") as writer:
        write_first(writer)
        run_by_command(project)
        assert len(table("bronze_events")) == 40
        verdicts = [row["verdict"] for row in table("audit_verdicts")]
        assert verdicts == ["EXACTLY_ONE"] * 10
        write_more(writer)
        run_by_command(project)
    check_all(table)
