"""Child processes of tests, demos and benchmarks; none outlives the process that started it."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from requite.errors import RequiteError

_STARTED_WITHIN_S: Final = 20.0
_LINES_REPORTED: Final = 40
_ERRORS_REPORTED: Final = 2000  # characters
_LIFETIME: Final = "requite.testing.lifetime"
_PORTS: Final = range(15_000, 32_000)  # below the range from which systems choose ephemeral ports
T = TypeVar("T")


class ProcessFailed(RequiteError):
    """A child process did not start, ended unexpectedly, or did not respond in time."""


class State(StrEnum):
    """State of a process."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"
    ABSENT = "not needed"


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "REQUITE_HTTP"}


class Child:
    """A child process: a program, or a Python module (`-m`, its name, its arguments).

    A thread reads its stdout, and stderr too if `merge_stderr`. `name` appears in errors. With
    `has_stdin`, `write_line` writes to its stdin. `environment` has variables beside those of this
    process, without REQUITE_HTTP: only one process can have a port. `folder` is its working
    directory. Ctrl-C reaches the parent only.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        has_stdin: bool = False,
        merge_stderr: bool = False,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.state = State.STARTING
        self._merges_stderr = merge_stderr
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._last_errors = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", _LIFETIME, "--parent", str(os.getpid()), *command],
            stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge_stderr else self._stderr,
            env=_inherited() | dict(environment or {}),
            cwd=folder,
            process_group=0,
        )
        self._lines: list[str] = []
        self._read_lines = 0
        self._changed = threading.Condition()
        self._is_silent = False  # its output has ended
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    # --- input and output -------------------------------------------------------------------------
    def write_line(self, line: str) -> None:
        """Write a line to its stdin. Ignores a process that has ended; `read_line` reports it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def read_line(self, timeout_s: float | None = _STARTED_WITHIN_S) -> str:
        """Return the next line of its output. Raises `ProcessFailed` at its end or the timeout."""
        return self._await(self._next_line, "a line", timeout_s)

    def wait_for(self, pattern: str, timeout_s: float = _STARTED_WITHIN_S) -> re.Match[str]:
        """Return the match of the first line in which `pattern` is found, read or not.

        Raises `ProcessFailed` when the process ends without such a line, or at the timeout.
        """
        searched = 0

        def find() -> re.Match[str] | None:
            nonlocal searched
            for line in self._lines[searched:]:
                searched += 1
                if found := re.search(pattern, line):
                    return found
            return None

        return self._await(find, f"a line with {pattern!r}", timeout_s)

    def errors(self) -> str:
        """Return all that it has written to stderr, unless `merge_stderr`."""
        if self._stderr.closed:
            return self._last_errors
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def report(self) -> str:
        """Return whether it runs or how it ended, and the last lines of its output."""
        if self._is_silent:  # it ends within moments
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        status = self._process.poll()
        state = "is running" if status is None else f"ended with status {status}"
        with self._changed:
            lines = self._lines[-_LINES_REPORTED:]
        return "\n    ".join([f"{self.name} {state}, its output:", *lines])

    # --- its end ----------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise `ProcessFailed` if it has ended and `kill` did not end it."""
        if self.state is not State.KILLED and self._process.poll() is not None:
            raise self._failure(f"ended with exit code {self._process.returncode}")

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.state = State.KILLED
        self._process.kill()
        self._process.wait()
        self._close()

    def end(self, patience_s: float = 1.0) -> None:
        """End it with SIGTERM, and with SIGKILL if it still runs after `patience_s` seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        self.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends; return its exit code. Raises `ProcessFailed` at the timeout."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"{self.name} did not end within {timeout_s:.0f} s") from None

    def stop(self) -> None:
        """Freeze it with SIGSTOP; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)
        self.state = State.STOPPED

    def resume(self) -> None:
        """Continue it with SIGCONT."""
        self._process.send_signal(signal.SIGCONT)
        self.state = State.RUNNING

    # --- inside -----------------------------------------------------------------------------------
    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:  # a descendant may hold it open after `_close`
            for line in stdout:
                with self._changed:
                    self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
                    self._changed.notify_all()
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _await(self, look: Callable[[], T | None], what: str, timeout_s: float | None) -> T:
        found: T | None = None

        def is_settled() -> bool:
            nonlocal found
            found = look()
            return found is not None or self._is_silent

        with self._changed:
            self._changed.wait_for(is_settled, timeout_s)
        if found is not None:
            if self.state is State.STARTING:
                self.state = State.RUNNING
            return found
        if not self._is_silent:
            raise ProcessFailed(f"{self.name} did not print {what} within {timeout_s:.0f} s")
        raise self._failure("did not start" if self.state is State.STARTING else "ended")

    def _next_line(self) -> str | None:
        if self._read_lines == len(self._lines):
            return None
        self._read_lines += 1
        return self._lines[self._read_lines - 1]

    def _failure(self, event: str) -> ProcessFailed:
        if self._merges_stderr:
            return ProcessFailed(f"{self.name} {event}")
        if self._is_silent and self.state is not State.KILLED:  # all of its stderr is there then
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        errors = self.errors().strip()[-_ERRORS_REPORTED:]
        return ProcessFailed(f"{self.name} {event}: {errors or 'it printed no error'}")

    def _close(self) -> None:
        self._reader.join(1)
        self._last_errors = self.errors()
        for pipe in (self._stderr, self._process.stdin):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it has not read all of its stdin
                    pipe.close()


class Children:
    """The processes of one run. Leaving the `with` block ends them, the last one first."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in reversed(self._children):
            child.end()

    def start(self, command: Sequence[str], *, name: str) -> Child:
        """Start a process whose stderr is merged into its output."""
        child = Child(name, command, merge_stderr=True)
        self._children.append(child)
        return child

    def report(self) -> str:
        """Return the last lines of each process's output."""
        return "\n".join(child.report() for child in self._children)


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback that no other process gets as an ephemeral port.

    So a server that was killed finds its port free again.
    """
    draw = random.SystemRandom()  # concurrent runs may share the seed of `random`
    found: list[int] = []
    while len(found) < count:
        port = draw.choice(_PORTS)
        if port in found:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found
