"""Services whose handlers wait at a gate, so that a test decides what happens while they run.

The gate is a folder: a handler leaves a file there that tells that it runs, and goes on once the
test has put a file `open` there. `Gate` is the test's side of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from tests.support.live import Process, eventually

import requite

_FOLDER: Final = "REQUITE_TEST_GATE"
_LOOK_EVERY_S: Final = 0.01
_PLAIN_TAKES_S: Final = 0.02  # long enough that a broker always has some in hand


class Gate:
    """A gate in a folder; it starts closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Let everybody pass, now and later."""
        (self._folder / "open").touch()

    def close(self) -> None:
        """Let nobody pass."""
        (self._folder / "open").unlink()

    def runs(self, body: str = "*", what: str = "started") -> list[int]:
        """Return the ids of the processes whose handlers started (or ended, or were given up)."""
        return [int(path.suffix[1:]) for path in self._folder.glob(f"{what}.{body}.*")]

    def await_run(self, body: str, what: str = "started") -> int:
        """Wait until one handler for this body has come so far; return its process id."""
        return eventually(lambda: self.runs(body, what), f"{body} has {what}")[0]

    def worker(self, url: str, *options: str, services: str = "gated") -> WorkerProcess:
        """Start a worker process; it goes on starting by itself."""
        targets = [f"{__name__}:{name}" for name in services.split()]
        command = ["-m", "requite.cli", "worker", *targets, "--connect", url, *options]
        return WorkerProcess(*command, **{_FOLDER: str(self._folder)})


class WorkerProcess(Process):
    """`requite worker` as a process."""

    def await_start(self) -> None:
        """Wait until it says that it serves: it has registered."""
        line = self.line()
        assert line.startswith("serving "), line


def _note(what: str, request: requite.Request) -> None:
    (Path(os.environ[_FOLDER]) / f"{what}.{request.body.decode()}.{os.getpid()}").touch()


@requite.service("gated")
async def gated(request: requite.Request) -> list[bytes]:
    """Answer, once the gate is open, with the body and the id of the process."""
    _note("started", request)
    try:
        while not (Path(os.environ[_FOLDER]) / "open").exists():  # noqa: ASYNC110 - has no event
            await asyncio.sleep(_LOOK_EVERY_S)
    except asyncio.CancelledError:
        _note("given-up", request)
        raise
    _note("ended", request)
    return [request.body, b"%d" % os.getpid()]


@requite.service("plain")
async def plain(request: requite.Request) -> bytes:
    """Answer, gate or no gate, with the body."""
    await asyncio.sleep(_PLAIN_TAKES_S)
    return request.body


@requite.service("crash")
async def crash(request: requite.Request) -> bytes:
    """Take the process down with it."""
    _note("started", request)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
