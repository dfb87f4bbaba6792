"""The processes and connections of one case."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Self

from bench.gauge import cpu_s
from requite.testing.processes import Child, ProcessFailed

START_S: Final = 60.0
_LISTENING: Final = r"^listening on \S+:(\d+)"
_QUIET_S: Final = 0.3  # without any processor time
_LOOK_S: Final = 0.05
_BUSY_S: Final = 120.0
_TRACE_S: Final = 60.0


class Subject(NamedTuple):
    """The measured process, and what adds a number of things to it."""

    child: Child
    add: Callable[[int], object]


class Stage:
    """Runs processes until the end of a `with` block; `kept` are connections that are
    open as long.

    With `traced`, measured processes run under tracemalloc.
    """

    def __init__(self, *, traced: bool = False) -> None:
        self._traced = traced
        self._stack = ExitStack()
        self._children: list[Child] = []
        self.kept: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for each in self.kept:
            each.close()
        self._stack.close()

    def folder(self) -> Path:
        """Return a new temporary folder."""
        return Path(self._stack.enter_context(TemporaryDirectory(prefix="requite-bench-")))

    def enter(self, context: Any) -> Any:
        """Enter a context manager until the end of the case."""
        return self._stack.enter_context(context)

    def run(self, module: str, *arguments: str, measured: bool = True) -> Child:
        """Start a module as a process."""
        modules = ["bench.memory.traced", module] if self._traced and measured else [module]
        command = [sys.executable, "-m", *modules, *arguments]
        child = Child(module, command, has_stdin=True, merge_stderr=True)
        self._stack.callback(child.end)
        self._children.append(child)
        return child

    def listen(self, module: str, *arguments: str, measured: bool = True) -> tuple[Child, int]:
        """Start a module that listens; return it with its port."""
        child = self.run(module, *arguments, measured=measured)
        return child, int(child.wait_for(_LISTENING, START_S)[1])

    def broker(self, *options: str) -> tuple[Child, int]:
        """Start a broker that sends few heartbeats; return it with its port."""
        if not any(option.startswith("--bind") for option in options):
            options = ("--bind=tcp://127.0.0.1:0", *options)
        return self.listen("requite.cli", "broker", "--heartbeat-interval=30", *options)

    def report(self) -> str:
        """Return the last lines of each process."""
        return "\n".join(child.report() for child in self._children)


def own_memory(pid: int) -> int:
    """Return the bytes of memory that a process shares with no other one."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def settle(child: Child) -> None:
    """Wait until a process has nothing to do. Raises `ProcessFailed` if it is busy for too long."""
    ends_at = monotonic() + _BUSY_S
    used_s, quiet_at = cpu_s(child.pid), monotonic() + _QUIET_S
    while monotonic() < quiet_at:
        sleep(_LOOK_S)
        child.check()
        if cpu_s(child.pid) != used_s:
            used_s, quiet_at = cpu_s(child.pid), monotonic() + _QUIET_S
        if monotonic() > ends_at:
            raise ProcessFailed(f"{child.name} was busy for {_BUSY_S:.0f} s")


def trace(child: Child) -> Sequence[str]:
    """Have a traced process print what it has allocated; return its lines."""
    os.kill(child.pid, signal.SIGUSR1)
    lines: list[str] = []
    while (line := child.read_line(_TRACE_S)) != "traced":
        lines.append(line)
    return lines
