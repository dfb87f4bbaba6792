"""Facts of the machine that a reader needs to judge the figures, without its host name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from bench.builds import THIS, Build, describe


def facts(builds: Sequence[Build] = (THIS,), packages: Sequence[str] = ()) -> dict[str, str]:
    """Return cores, system, Python, C compiler, and the versions of requite and of packages."""
    found = {
        "cores": str(len(os.sched_getaffinity(0))),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": _python(),
    }
    if (compiler := shutil.which("gcc")) is not None:
        found["gcc"] = _ask(compiler, "-dumpfullversion")
    found["requite"] = describe(builds)
    for package in ("uvloop", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _python() -> str:
    """Return the interpreter's version, and that of the system if it is the system's."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.base_prefix != "/usr":
        return f"{name} (not the system's; {platform.python_compiler()})"
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        system = "the system"
    return f"{name} of {system} ({platform.python_compiler()})"


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
