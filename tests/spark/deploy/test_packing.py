"""The archive for clusters: complete, importable, reproducible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import requite
from requite.spark.__main__ import main
from requite.spark.packing import pack


def test_the_archive_has_every_module_and_always_the_same_bytes(tmp_path: Path) -> None:
    first, program = pack(tmp_path / "a")
    second, _ = pack(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    root = Path(requite.__file__).parent.parent
    with ZipFile(first) as archive:
        names = set(archive.namelist())
    assert {path.relative_to(root).as_posix() for path in root.rglob("*.py")} <= names
    assert not [name for name in names if "__pycache__" in name]
    assert program.name == "requite_submit.py"


def test_requite_can_be_imported_from_the_archive_alone(tmp_path: Path) -> None:
    archive, _ = pack(tmp_path)
    # -S leaves out site-packages, so only the archive can provide requite.
    code = "import requite.spark, requite.sim; print(requite.__file__)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(archive)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.startswith(str(archive))


def test_the_module_writes_the_archive_and_the_program(tmp_path: Path) -> None:
    assert main(["pack", str(tmp_path / "out")]) == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["requite.zip", "requite_submit.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "--scenario", "nope"], "there is no scenario 'nope'"),
        (["sweep", "--seeds", "0"], "--seeds must be at least 1"),
    ],
)
def test_invalid_options_are_refused_before_spark_starts(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
