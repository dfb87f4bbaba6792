"""Services whose handlers wait at a gate, so a test can act while they run.

The gate is a folder. A handler creates a file there when it starts, and continues once the test has
created the file `open`. Tests control the gate through `Gate`.
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
_PLAIN_TAKES_S: Final = 0.02  # long enough that a broker always has requests in flight


class Gate:
    """Controls a gate, which is closed at first, and starts its workers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Open the gate: waiting and future handlers continue."""
        (self._folder / "open").touch()

    def close(self) -> None:
        """Close the gate: future handlers wait."""
        (self._folder / "open").unlink()

    def runs(self, body: str = "*", what: str = "started") -> list[int]:
        """Return the process id of each handler that has started for this body.

        `what` is "started", "ended" or "given-up" (cancelled); "*" stands for any body.
        """
        return [int(path.suffix[1:]) for path in self._folder.glob(f"{what}.{body}.*")]

    def await_run(self, body: str, what: str = "started") -> int:
        """Wait until a handler for this body has reached the state `what` (see `runs`); return its
        process id."""
        return eventually(lambda: self.runs(body, what), f"{body} has {what}")[0]

    def worker(self, url: str, *options: str, services: str = "gated") -> WorkerProcess:
        """Start a worker process, without waiting until it is ready."""
        targets = [f"{__name__}:{name}" for name in services.split()]
        command = ["-m", "requite.cli", "worker", *targets, "--connect", url, *options]
        return WorkerProcess(*command, **{_FOLDER: str(self._folder)})


class WorkerProcess(Process):
    """`requite worker` as a process."""

    def await_start(self) -> None:
        """Wait until the worker has registered and prints "serving"."""
        line = self.line()
        assert line.startswith("serving "), line


def _note(what: str, request: requite.Request) -> None:
    (Path(os.environ[_FOLDER]) / f"{what}.{request.body.decode()}.{os.getpid()}").touch()


@requite.service("gated")
async def gated(request: requite.Request) -> list[bytes]:
    """Wait until the gate is open, then return the body and the process id."""
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
    """Return the body after 20 ms, regardless of the gate."""
    await asyncio.sleep(_PLAIN_TAKES_S)
    return request.body


@requite.service("crash")
async def crash(request: requite.Request) -> bytes:
    """Kill the worker process with SIGKILL."""
    _note("started", request)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
