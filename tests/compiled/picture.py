"""Draw a traceback through compiled code, for the documentation.

python -m tests.compiled.picture
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.text import Text
from tests.compiled.build import ROOT, build
from tests.compiled.test_tracebacks import PROGRAM

_PICTURE: Final = ROOT / "docs" / "how-to" / "traceback.svg"
_INSTALLED: Final = "/venv/lib/python3.11/site-packages"


def main() -> None:
    """Run the program with the compiled core, and draw its output."""
    site = build(optimised=True)
    with TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(PROGRAM)
        command = [sys.executable, "program.py"]
        env = {**os.environ, "PYTHONPATH": str(site)}
        ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        shown = ended.stderr.replace(str(site), _INSTALLED).replace(f"{folder}/", "")
    console = Console(record=True, width=96, file=io.StringIO())
    console.print(Text(f"$ python program.py\n{shown.rstrip()}"))
    svg = console.export_svg(title="a compiled core", unique_id="traceback")
    # A page must not fetch fonts from elsewhere.
    _PICTURE.write_text(re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.S))


if __name__ == "__main__":
    main()
