"""Run the command `requite` in forks of a process that has already loaded it.

To start Python and to load the command takes most of the processor time of a short command. The
process is started at the first use, has a single thread, and forks twice for each command: the
first fork waits for the second one, which becomes the command, and tells its exit code. The command
runs as `python -m requite.cli` does: its own arguments, variables, folder and standard streams, and
the usual end of a process of Python's.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_LARGEST: Final = 1 << 17  # bytes of a message, which are sent at once
_END_S: Final = 10.0
# Modules that most commands load.
_LOADED: Final = (
    "asyncio",
    "requite.access.file",
    "requite.broker",
    "requite.cli.app",
    "requite.cli.broker",
    "requite.cli.call",
    "requite.cli.worker",
    "requite.client.aio",
    "requite.protocols.majordomo.broker",
    "requite.protocols.majordomo.client",
    "requite.protocols.majordomo.worker",
    "requite.shell.aio",
    "requite.shell.daemon",
    "requite.speaks.curve",
    "requite.speaks.mdp",
    "requite.speaks.tls",
    "requite.storage.log",
    "requite.worker",
    "tomllib",
    "uvloop",
)


class _Server:
    """The process that forks, and the socket on which it is asked to."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, message: bytes, fds: Sequence[int]) -> None:
        """Ask for a command with these files: for its answers, and its standard streams."""
        assert len(message) < _LARGEST
        socket.send_fds(self._control, [message], fds)

    def end(self) -> None:
        """End the process, so that the processor time of all commands counts for this one."""
        self._control.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_running: list[_Server] = []


def end() -> None:
    """End the process that forks, if there is one."""
    while _running:
        _running.pop().end()


def run(
    words: Sequence[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], within_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run the command until it exits. Raises `TimeoutExpired`, and kills it, if it does not."""
    if not _running:
        _running.append(_Server())
    pipes = [os.pipe() for _ in range(4)]  # answers, stdin, stdout, stderr
    answers, inwards, out, err = pipes
    theirs = [answers[1], inwards[0], out[1], err[1]]
    try:
        asked = {"words": list(words), "cwd": str(cwd), "env": dict(env)}
        _running[0].ask(json.dumps(asked).encode(), theirs)
    finally:
        for fd in theirs:
            os.close(fd)
    with open(answers[0], "rb") as told, ThreadPoolExecutor(4) as threads:
        pid = int(told.readline())
        threads.submit(_write, inwards[1], stdin)
        outputs = [threads.submit(_read, pipe[0]) for pipe in (out, err)]
        try:
            code = threads.submit(told.readline).result(within_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # the threads end with it
            if isinstance(error, TimeoutError):
                raise subprocess.TimeoutExpired(list(words), within_s) from None
            raise
        stdout, stderr = (output.result() for output in outputs)
    return subprocess.CompletedProcess(list(words), int(code), stdout, stderr)


def _write(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as file:
        file.write(data)


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


# --- in the process that forks, and in its forks --------------------------------------------------
def _await_command(control: socket.socket) -> tuple[bytes, list[int]]:
    """Fork for each message, until the socket is closed; return, in the fork, the message and its
    files."""
    while True:
        message, fds, _flags, _address = socket.recv_fds(control, _LARGEST, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not message:
            sys.exit()
        if os.fork() == 0:
            control.close()
            return message, list(fds)
        for fd in fds:
            os.close(fd)


def _become_command(message: bytes, fds: Sequence[int]) -> None:
    """Fork once more, and wait for the fork; return, in the fork, as the command."""
    answers, *streams = fds
    pid = os.fork()
    if pid:
        for fd in streams:
            os.close(fd)
        os.write(answers, f"{pid}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(answers, f"{code}\n".encode())
        os._exit(0)
    os.close(answers)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    asked = json.loads(message)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["", *asked["words"]]  # `runpy` sets the first one
    sys.path[0] = asked["cwd"]
    sys.path_importer_cache.clear()
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin.errors)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout.errors)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr.errors)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _stream(fd: int, mode: str, errors: str) -> Any:
    """Return a standard stream as Python makes it; stdout to a pipe is not flushed by line."""
    buffering = 1 if fd == 2 else -1
    return open(fd, mode, buffering, encoding=sys.stdout.encoding, errors=errors, closefd=False)


def main() -> None:
    """Load the command, and fork for each that is asked for."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in _LOADED:
        import_module(name)
    gc.collect()
    _become_command(*_await_command(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("requite.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
