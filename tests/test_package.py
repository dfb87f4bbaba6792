"""The package as a whole: its version, and what importing it costs."""

import subprocess
import sys
from importlib import metadata

import pytest

import requite

HEAVY = [
    "aio_pika",
    "aiohttp",
    "airportsdata",
    "altair",
    "cyclopts",
    "dbus_fast",
    "h11",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "uvloop",
    "wsproto",
    "zmq",
]


def test_version_is_the_installed_one() -> None:
    assert requite.__version__ == metadata.version("requite")


@pytest.fixture(scope="module")
def modules_after_import() -> set[str]:
    """Names of the modules that a fresh interpreter has loaded after ``import requite``."""
    script = "import requite, sys; print('\\n'.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=30
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_import_stays_light(module: str, modules_after_import: set[str]) -> None:
    assert "requite" in modules_after_import
    assert module not in modules_after_import
