"""Type checkers, run on the files of a folder in their strictest settings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def checked(checker: str, folder: Path) -> list[str]:
    """Return the errors that `mypy` or `basedpyright` finds in a folder, in order of lines."""
    if checker == "mypy":
        (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n")
        command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "."]
        done = _run(command, folder)
        return [line for line in done.splitlines() if " error: " in line]
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnusedCoroutine": True,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable,
        "-p", str(folder),
    ]  # fmt: skip
    found = json.loads(_run(command, folder))["generalDiagnostics"]
    return [each["message"] for each in found if each["severity"] == "error"]


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.stdout, done.stderr
    return done.stdout
