"""The declarative front door: the same tables, and a second run finds the first one's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest
from tests.spark import once
from tests.spark.source.journals import Writing, flight

from requite.spark.session import prepare_environment

PROJECT = Path(__file__).parents[3] / "pipelines"
FOR_TESTS = {
    **once.SQL,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": once.JAVA_OPTIONS,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy whose folders are in the test's own."""
    copy = tmp_path / "pipelines"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    spec = copy / "spark-pipeline.yml"
    told = spec.read_text(encoding="utf-8")
    assert "/var/lib/requite" in told
    spec.write_text(told.replace("/var/lib/requite", str(tmp_path)), encoding="utf-8")
    with (copy / "conf" / "spark-defaults.conf").open("a", encoding="utf-8") as defaults:
        defaults.writelines(f"{key} {value}\n" for key, value in FOR_TESTS.items())
    return copy


def run(project: Path) -> None:
    prepare_environment()
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(project / "conf"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]


def table(project: Path, name: str) -> list[dict[str, object]]:
    folder = project / "spark-warehouse" / name
    return ds.dataset(folder, partitioning="hive").to_table().to_pylist()


def write_first(writing: Writing) -> None:
    writing.flights([flight(number, number / 8, queued=True) for number in range(10)])


def write_more(writing: Writing) -> None:
    writing.flights([flight(number, number / 8) for number in range(10, 15)])
    writing.raw(b"this is no block")


def check_all(project: Path) -> None:
    """See what the tables have when both parts of the journal have been read."""
    assert len(table(project, "bronze_events")) == 55
    assert len(table(project, "bronze_quarantine")) == 1
    assert len(table(project, "audit_verdicts")) == 15
    (minute,) = table(project, "gold_service_minute")
    assert (minute["accepted"], minute["replied"]) == (15, 15)
    (advice,) = table(project, "gold_rightsizing")
    assert advice["recommended"] == 2
    assert table(project, "poison") == []
    (depth,) = table(project, "gold_queue_depth")
    assert depth["max_depth"] == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_makes_the_same_tables(project: Path) -> None:
    with Writing(project.parent / "journal") as writing:
        write_first(writing)
        write_more(writing)
        run(project)
    check_all(project)
    verdicts = [row["verdict"] for row in table(project, "audit_verdicts")]
    assert verdicts == ["EXACTLY_ONE"] * 15


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_makes_the_same_tables_run_after_run(project: Path) -> None:
    with Writing(project.parent / "journal") as writing:
        write_first(writing)
        run(project)
        assert len(table(project, "bronze_events")) == 40
        verdicts = [row["verdict"] for row in table(project, "audit_verdicts")]
        assert verdicts == ["EXACTLY_ONE"] * 10
        write_more(writing)
        run(project)
    check_all(project)
