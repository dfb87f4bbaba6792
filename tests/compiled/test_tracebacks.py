"""Tracebacks have the text of lines of the package, with a compiled core too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import requite

# The core calls a function of the program, which fails.
PROGRAM = """\
from requite.backoff import Backoff

def uniform() -> float:
    return 1 / 0

Backoff(uniform).next_s()
"""


def test_an_uncaught_error_shows_the_text_of_each_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-P", str(program)]
    # Elsewhere than the package, whose files have relative names while it is compiled.
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = [line.strip() for line in ended.stderr.splitlines() if set(line) - set(" ^~")]
    core = Path(requite.__file__).with_name("backoff.py")
    text = core.read_text().splitlines()
    frames = list(zip(lines[1:-1:2], lines[2:-1:2], strict=True))
    assert [(place.rpartition(" in ")[2], line) for place, line in frames] == [
        ("<module>", "Backoff(uniform).next_s()"),
        (
            "next_s",
            "return pause_s(self._failures, self._first_s, self._max_s, _JITTER, self._rng)",
        ),
        ("pause_s", "return ceiling_s * (1 - jitter * rng())"),
        ("uniform", "return 1 / 0"),
    ]
    for place, line in frames[1:3]:
        file, number, _ = place.split(", ")
        assert file == f'File "{core}"'
        assert text[int(number.removeprefix("line ")) - 1].strip() == line
