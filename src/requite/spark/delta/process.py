"""Identify processes of this machine, and check whether they are alive: for runs in progress."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_PROCESSES: Final = Path("/proc")


def this_process() -> dict[str, Any]:
    """Return the identity of this process, for JSON."""
    process = os.getpid()
    return {"host": socket.gethostname(), "process": process, "started": _started(process)}


def is_here(named: Mapping[str, Any]) -> bool:
    """Return whether a process identity is from this machine."""
    return bool(named["host"] == socket.gethostname())


def is_alive(named: Mapping[str, Any]) -> bool:
    """Return whether a process of this machine is alive."""
    started = _started(named["process"])
    return started is not None and started == named["started"]


def _started(process: int) -> str | None:
    """Return when a process was started, in kernel ticks; None if it has ended."""
    if not _PROCESSES.is_dir():
        return _answers(process)
    try:
        words = (_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else words[19]


def _answers(process: int) -> str | None:
    """Return "?" if a process has this id, on systems without /proc; None otherwise."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's process
    return "?"
