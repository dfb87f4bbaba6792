"""The native contender: `nng_echo.c`; requires a C compiler and nng's headers."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from bench.c_program import CProgram, compiler

NNG_ECHO: Final = CProgram(
    Path(__file__).with_name("nng_echo.c"), "`gcc` and `libnng-dev`", library="nng"
)
_ASK_VERSION: Final = "#include <nng/nng.h>\nversion NNG_MAJOR_VERSION NNG_MINOR_VERSION\n"


@cache
def version() -> str | None:
    """Return the version of nng in its installed headers; None without headers."""
    found = compiler()
    if found is None:
        return None
    done = subprocess.run(
        [found, "-E", "-P", "-"], input=_ASK_VERSION, capture_output=True, text=True, check=False
    )
    numbers = re.search(r"version\s+(\d+)\s+(\d+)", done.stdout)
    return f"{numbers[1]}.{numbers[2]}" if numbers else None
