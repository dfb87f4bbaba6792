"""The package as a whole: its version, its imports, and its archives."""

import os
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

import requite

ROOT = Path(__file__).parents[1]
HEAVY = [
    "aio_pika",
    "aiohttp",
    "airportsdata",
    "altair",
    "cyclopts",
    "dbus_fast",
    "h11",
    "msgspec",
    "numpy",
    "pandas",
    "prometheus_client",
    "pydantic",
    "pyarrow",
    "pyspark",
    "rich",
    "starlette",
    "uvicorn",
    "uvloop",
    "wsproto",
    "zmq",
]


def test_version_is_the_installed_one() -> None:
    assert requite.__version__ == metadata.version("requite")


@pytest.fixture(scope="module")
def modules_after_import() -> set[str]:
    """Names of the modules that a new interpreter has loaded after ``import requite``."""
    script = "import requite, sys; print('\\n'.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=30
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_import_loads_no_heavy_module(module: str, modules_after_import: set[str]) -> None:
    assert "requite" in modules_after_import
    assert module not in modules_after_import


def test_the_change_log_of_the_next_release_can_be_made() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    texts = [path.read_text("utf-8").split() for path in (ROOT / "changes").glob("*.*.md")]
    told = " ".join(run.stdout.split())
    assert [" ".join(text) for text in texts if " ".join(text) not in told] == []


# --- archives -------------------------------------------------------------------------------------
LEFT_OUT = {".ci", ".gitignore"}  # used only in the repository


def built(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    env = {**os.environ, "REQUITE_PURE": "1"}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=60)
    [archive] = folder.iterdir()
    return archive


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_archive_builds_are_reproducible(kind: str, tmp_path: Path) -> None:
    first, second = (built(kind, tmp_path / name) for name in ("first", "second"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git knows what is in the tree")
def test_the_source_archive_has_all_tracked_files(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30
    )
    tracked = {name for name in listed.stdout.split("\n") if name and (ROOT / name).is_file()}
    with tarfile.open(built("sdist", tmp_path)) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    missing = {name for name in tracked - packed if name.partition("/")[0] not in LEFT_OUT}
    assert not missing
