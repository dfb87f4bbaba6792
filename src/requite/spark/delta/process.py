"""Whether a process of this machine is still the one that it was: for runs that have begun."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_PROCESSES: Final = Path("/proc")


def this_process() -> dict[str, Any]:
    """Return what names this process to others, as JSON."""
    process = os.getpid()
    return {"host": socket.gethostname(), "process": process, "started": _started(process)}


def is_here(named: Mapping[str, Any]) -> bool:
    """Whether a process was named on this machine."""
    return bool(named["host"] == socket.gethostname())


def is_alive(named: Mapping[str, Any]) -> bool:
    """Whether a process of this machine is still there."""
    started = _started(named["process"])
    return started is not None and started == named["started"]


def _started(process: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; None where it is gone."""
    if not _PROCESSES.is_dir():
        return _answers(process)
    try:
        words = (_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else words[19]


def _answers(process: int) -> str | None:
    """Return a word if there is a process of this number, where no more can be found out."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it is somebody else's
    return "?"
