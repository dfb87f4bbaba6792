"""Build requite with the compiled core into a folder of its own, for tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
_SITES: Final = ROOT / "build" / "compiled-tests"
_QUICK: Final = "-O0 -w"


def _load_hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


_hook: Final = _load_hook()


def modules() -> list[str]:
    """Return the files that are compiled, relative to `SOURCE`."""
    found: list[str] = _hook.compiled_modules(SOURCE)
    return found


def lacking() -> str:
    """Return what is missing for compiling, and "" if nothing is."""
    reason: str = _hook.lacking()
    return reason


def build(*, optimised: bool) -> Path:
    """Return a folder for `PYTHONPATH` with the compiled requite; build it unless that was done for
    these sources and this Python.

    The optimised build is the one that users get, and takes GCC three times as long.
    """
    digest = sha256((ROOT / "hatch_build.py").read_bytes())
    for path in sorted(SOURCE.rglob("*.py")):
        digest.update(str(path.relative_to(SOURCE)).encode() + path.read_bytes())
    name = f"{sysconfig.get_config_var('SOABI')}-{digest.hexdigest()[:16]}"
    site = _SITES / (name if optimised else f"{name}-quick")
    if not site.exists():
        wheels = _SITES / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        flags = {} if optimised else {"CFLAGS": _QUICK}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "REQUITE_PURE": "0", **flags},
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        [wheel] = wheels.iterdir()
        unpacked = site.with_suffix(".part")
        shutil.rmtree(unpacked, ignore_errors=True)
        zipfile.ZipFile(wheel).extractall(unpacked)
        unpacked.rename(site)
    return site
