"""Importing requite loads neither Spark nor any other third-party package."""

from __future__ import annotations

import subprocess
import sys

import pytest

THIRD_PARTY = {"altair", "cyclopts", "numpy", "pandas", "pyarrow", "pyspark", "rich", "uvloop"}


def loaded_by(statement: str) -> set[str]:
    """Return the packages that a new interpreter has loaded after a statement."""
    script = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=50)
    return {name.partition(".")[0] for name in run.stdout.split()}


@pytest.mark.parametrize("module", ["journal", "storage", "broker", "client", "worker", "spark"])
def test_importing_a_module_loads_no_third_party_package(module: str) -> None:
    loaded = loaded_by(f"import requite.{module}")
    assert "requite" in loaded
    assert not loaded & THIRD_PARTY


def test_importing_pyspark_requite_is_cheap() -> None:
    """Spark imports `pyspark_requite` in every session that uses a Python data source."""
    pytest.importorskip("pyspark")
    before = loaded_by("import pyspark.sql.datasource")
    assert not (loaded_by("import pyspark_requite") - before) & THIRD_PARTY
    modules = "print(*(name for name in sys.modules if name.startswith('requite.')), sep='\\n')"
    script = f"import pyspark_requite, sys; {modules}"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=50)
    ours = set(run.stdout.split())
    assert "requite.spark.source" in ours
    assert not {name for name in ours if name.startswith(("requite.journal", "requite.storage"))}
