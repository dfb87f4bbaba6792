"""Native contenders: programs in C, compiled on first use if compiler and headers are installed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CProgram:
    """A program of one source file. `library` is linked if there is one, and `packages` names the
    packages of Debian to install."""

    source: Path
    packages: str
    library: str = ""

    @property
    def path(self) -> Path:
        """The compiled program."""
        return Path("build") / self.source.stem

    def lack(self) -> str | None:
        """Compile the program and return None; or return what is missing."""
        return _compile(self)


def compiler() -> str | None:
    """Return the path of the C compiler."""
    return shutil.which("cc") or shutil.which("gcc")


@cache
def _compile(program: CProgram) -> str | None:
    found = compiler()
    if found is None:
        return f"no C compiler: install Debian's packages {program.packages}"
    program.path.parent.mkdir(exist_ok=True)
    command = [found, "-O2", "-Wall", "-Wextra", "-o", str(program.path), str(program.source)]
    if program.library:
        command.append(f"-l{program.library}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        hint = f"are Debian's packages {program.packages} installed?"
        return f"{program.source.name} does not compile ({hint}): {done.stderr.strip()}"
    return None
