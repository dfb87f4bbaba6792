"""Functions that run the command `requite` in child processes."""

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

from tests.support import forks
from tests.support.live import eventually

from requite import Client

WAIT_S: Final = 30.0
COMMAND: Final = (sys.executable, "-m", "requite.cli")
# Wide enough that no line is wrapped; without variables that would change the command's behaviour.
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
    """The result of a run of the command."""

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
    """Run the command until it exits. Without `stdin`, its standard input is empty.

    It runs in a fork (`tests.support.forks`), or as a process of its own if Python or a library
    might read one of the variables when they start.
    """
    if all(name.startswith("REQUITE_") for name in env or {}):
        return Ended(
            forks.run(
                arguments,
                stdin=stdin or b"",
                cwd=cwd or Path.cwd(),
                env=ENVIRONMENT | (env or {}),
                within_s=within_s,
            )
        )
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
    """A running command, whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """Return the next line of stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def error_line(self) -> str:
        """Return the next line of stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait until it exits; return the exit code, the rest of stdout, and the rest of stderr."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


def _take_interrupts() -> None:
    """Restore the default action of SIGINT, which shells ignore in background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Iterator[Running]:
    """Start the command; kill it at the end of the block."""
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
    """Start a broker on a free port; yield the process and the broker's URL."""
    with running("broker", "--bind", "tcp://127.0.0.1:0", *options, env=env) as broker:
        address = broker.line().removeprefix("listening on tcp://")
        assert address.startswith("127.0.0.1:"), broker.end()
        yield broker, f"mdp://{address}"


@contextmanager
def running_worker(*arguments: str, cwd: Path | None = None) -> Iterator[Running]:
    """Start a worker; yield it once the broker has registered it."""
    with running("worker", *arguments, cwd=cwd) as worker:
        line = worker.line()
        assert line.startswith("serving "), worker.end()
        yield worker


# --- the state of a broker ------------------------------------------------------------------------
def state(url: str) -> dict[str, Any]:
    """Return the broker's statistics (`mmi.stats`)."""
    with Client(url, service="mmi.stats", timeout=WAIT_S) as client:
        statistics: dict[str, Any] = json.loads(client.call(b"").body)
        return statistics


def await_running(url: str, service: str) -> None:
    """Wait until a worker handles a request to the service."""

    def is_running() -> bool:
        return any(
            each["service"] == service and each["in_progress"] for each in state(url)["services"]
        )

    eventually(is_running, f"a request to {service} is in progress")


def await_draining(url: str) -> None:
    """Wait until the broker is draining."""
    eventually(lambda: state(url)["draining"], "the broker drains")
