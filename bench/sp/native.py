"""The native contender: `nng_echo.c`; requires a C compiler and nng's headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("nng_echo.c")
PROGRAM: Final = Path("build/nng_echo")
_INSTALL: Final = "install Debian's packages `gcc` and `libnng-dev`"
_ASK_VERSION: Final = "#include <nng/nng.h>\nversion NNG_MAJOR_VERSION NNG_MINOR_VERSION\n"


@cache
def lack() -> str | None:
    """Compile the program and return None; or return what is missing."""
    compiler = _compiler()
    if compiler is None:
        return f"no C compiler: {_INSTALL}"
    if version() is None:
        return f"no headers of nng: {_INSTALL}"
    PROGRAM.parent.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(PROGRAM), str(SOURCE), "-lnng"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{SOURCE.name} does not compile: {done.stderr.strip()}" if done.returncode else None


@cache
def version() -> str | None:
    """Return the version of nng in its installed headers; None without headers."""
    compiler = _compiler()
    if compiler is None:
        return None
    done = subprocess.run(
        [compiler, "-E", "-P", "-"], input=_ASK_VERSION, capture_output=True, text=True, check=False
    )
    found = re.search(r"version\s+(\d+)\s+(\d+)", done.stdout)
    return f"{found[1]}.{found[2]}" if found else None


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")
