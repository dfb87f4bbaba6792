"""Child processes of demos and benchmarks; none outlives the process that started it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from enum import StrEnum
from typing import Final, Protocol

from requite.errors import RequiteError

_STARTED_WITHIN_S: Final = 20.0
_LAST_WORDS_SIZE: Final = 2000
_LEASH: Final = "requite.cli.show.leash"


class ShowFailed(RequiteError):
    """A child process did not start, ended by itself, or was never heard of again."""


class State(StrEnum):
    """What a process is at."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    KILLED = "killed"
    ABSENT = "not needed"


class Member(Protocol):
    """A process of the demo, as the screen shows it; without one, `pid` is 0."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def pid(self) -> int: ...


class Child:
    """One process: `python -m` with `arguments`, or what else the leash runs. `name` is for people.

    One that `listens` can be told things on its stdin. With `mixed`, stderr arrives on stdout.
    """

    def __init__(
        self, name: str, *arguments: str, listens: bool = False, mixed: bool = False
    ) -> None:
        self.name = name
        self.state = State.STARTING
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the child)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _LEASH, str(os.getpid()), *arguments],
            stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if mixed else self._stderr,
            process_group=0,  # Ctrl-C is for the parent alone, which then ends its children itself
        )

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to its stdin; what reads its stdout finds out if it is gone."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    async def read_line(self, within_s: float = _STARTED_WITHIN_S) -> str:
        """Wait for a line on its stdout, such as the broker's `listening on`: then it runs."""
        assert self._process.stdout is not None
        reading = asyncio.to_thread(self._process.stdout.readline)
        try:
            line = await asyncio.wait_for(reading, within_s)
        except TimeoutError as error:
            raise ShowFailed(f"{self.name} said nothing for {within_s:.0f} s") from error
        if not line:
            self._process.wait()
            did = "did not start" if self.state is State.STARTING else "ended"
            raise ShowFailed(f"{self.name} {did}: {self._last_words()}")
        self.state = State.RUNNING
        return line.decode().rstrip()

    async def read_all(self) -> bytes:
        """Wait for its end and return all of its stdout."""
        output, _ = await asyncio.to_thread(self._process.communicate)
        if self._process.returncode:
            raise ShowFailed(f"{self.name} failed: {self._last_words()}")
        return output

    def check(self) -> None:
        """Raise `ShowFailed` if it has ended although nobody killed it."""
        if self.state is not State.KILLED and self._process.poll() is not None:
            code = self._process.returncode
            raise ShowFailed(f"{self.name} ended with exit code {code}: {self._last_words()}")

    def kill(self) -> None:
        """SIGKILL: no last words, no farewell to anybody."""
        self.state = State.KILLED
        self._process.kill()
        self._process.wait()
        self._close()

    def end(self, patience_s: float = 1.0) -> None:
        """SIGTERM, and SIGKILL if it still runs after `patience_s` seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        self.kill()

    def stop(self) -> None:
        """SIGSTOP: the process freezes with all its connections open."""
        self._process.send_signal(signal.SIGSTOP)
        self.state = State.STOPPED

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        self._process.send_signal(signal.SIGCONT)
        self.state = State.RUNNING

    def _close(self) -> None:
        for pipe in (self._stderr, self._process.stdout, self._process.stdin):
            with suppress(BrokenPipeError):  # it may not have read all it was told
                if pipe is not None:
                    pipe.close()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        words = self._stderr.read().decode(errors="replace").strip()
        return words[-_LAST_WORDS_SIZE:] or "it said nothing"
