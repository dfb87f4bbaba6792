"""The real command in processes of its own, for the tests of the verbs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.live import eventually

from requite import Client

WAIT_S: Final = 30.0
COMMAND: Final = (sys.executable, "-m", "requite.cli")
# Wide enough that no line is folded; no variable of the developer's changes what is tested.
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if not name.startswith("REQUITE_")},
    "COLUMNS": "200",
    "NO_COLOR": "1",
}


def write_users(path: Path, text: str) -> Path:
    """Write a file for `--credentials-file`, which only its user may read."""
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


class Ended:
    """A run of the command that has ended."""

    def __init__(self, process: subprocess.CompletedProcess[bytes]) -> None:
        self.code = process.returncode
        self.stdout = process.stdout
        self.out = process.stdout.decode(errors="replace")
        self.err = process.stderr.decode(errors="replace")

    @property
    def record(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        record: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return record


def requite(
    *arguments: str,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    within_s: float = WAIT_S,
) -> Ended:
    """Run the command to its end. Without `stdin` it has none to read."""
    source: Any = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return Ended(
        subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            timeout=within_s,
            cwd=cwd,
            env=ENVIRONMENT | (env or {}),
            check=False,
            **source,
        )
    )


class Running:
    """A run of the command that goes on; its stdout is read by the line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """Return its next line on stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def error_line(self) -> str:
        """Return its next line on stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, the rest of stdout, and stderr."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


def _take_interrupts() -> None:
    """Undo what a shell does to its background jobs, of which the tests may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Iterator[Running]:
    """Start the command; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=ENVIRONMENT | (env or {}),
        preexec_fn=_take_interrupts,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def running_broker(
    *options: str, env: dict[str, str] | None = None
) -> Iterator[tuple[Running, str]]:
    """Start a broker on a free port; yield it and its URL."""
    with running("broker", "--bind", "tcp://127.0.0.1:0", *options, env=env) as broker:
        address = broker.line().removeprefix("listening on tcp://")
        assert address.startswith("127.0.0.1:"), broker.end()
        yield broker, f"mdp://{address}"


@contextmanager
def running_worker(*arguments: str, cwd: Path | None = None) -> Iterator[Running]:
    """Start a worker; the broker has registered it when this yields."""
    with running("worker", *arguments, cwd=cwd) as worker:
        line = worker.line()
        assert line.startswith("serving "), worker.end()
        yield worker


# --- looking at a broker --------------------------------------------------------------------------
def state(url: str) -> dict[str, Any]:
    """Return what the broker says about itself."""
    with Client(url, service="mmi.stats", timeout=WAIT_S) as client:
        told: dict[str, Any] = json.loads(client.call(b"").body)
        return told


def await_running(url: str, service: str) -> None:
    """Wait until a worker has a request to the service in hand."""

    def is_running() -> bool:
        return any(
            each["service"] == service and each["in_progress"] for each in state(url)["services"]
        )

    eventually(is_running, f"a request to {service} is in progress")


def await_draining(url: str) -> None:
    """Wait until the broker has begun to drain."""
    eventually(lambda: state(url)["draining"], "the broker drains")
