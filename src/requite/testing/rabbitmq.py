"""A private RabbitMQ on free ports of the loopback, with its data in a folder.

It shares neither ports, data, cookie nor Erlang's port mapper (epmd) with another RabbitMQ. It ends
with the process that started it; on Linux also if SIGKILL ends that one.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Self

from requite.testing import lifetime
from requite.testing.processes import ProcessFailed, free_ports

WAIT_S: Final = 120.0  # on a busy machine it starts within 30 s
SERVER_VARIABLE: Final = "REQUITE_RABBITMQ_SERVER"
_SERVER: Final = "rabbitmq-server"
_TOOL: Final = "rabbitmqctl"
_MAPPER: Final = "epmd"
_POLL_S: Final = 0.02
_LOG_TAIL_BYTES: Final = 12_000
_STARTED: Final = b"completed with"
# Debian's wrappers in /usr/sbin change to the user rabbitmq; the scripts that they call do not.
_BEFORE: Final = "/usr/lib/rabbitmq/bin"
_AFTER: Final = "/usr/local/sbin:/usr/sbin:/opt/homebrew/sbin"
_SETTINGS: Final = """\
listeners.tcp.default = 127.0.0.1:{port}
disk_free_limit.absolute = 10MB
"""
_MANAGEMENT: Final = """\
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
collect_statistics_interval = {figures_ms}
"""


def unavailable() -> str | None:
    """Return why RabbitMQ cannot run on this machine and how to install it, or None if it can."""
    path = _path()
    for name in (_SERVER, _TOOL, _MAPPER):
        if shutil.which(name, path=path) is None:
            return (
                f"cannot find {name}, which is part of RabbitMQ (on Debian: apt-get install"
                f" rabbitmq-server); if it is installed elsewhere, set {SERVER_VARIABLE} to"
                f" the path of its {_SERVER}"
            )
    return None


class RabbitServer:
    """The server, with user guest; leaving a `with` block ends it.

    With `management`, its management API runs at `management_port` and updates its figures every
    `figures_ms`. `settings` are more lines of its rabbitmq.conf. It keeps its ports and data
    between `kill` and `start`. Raises `ProcessFailed` if it does not start or end within `WAIT_S`.
    """

    def __init__(
        self, folder: Path, settings: str = "", *, management: bool = True, figures_ms: int = 500
    ) -> None:
        self._folder = folder
        self._log = folder / "rabbit.log"
        self._settings = settings
        self._has_management = management
        self._figures_ms = figures_ms
        # On Linux a child ends with the thread that started it (PR_SET_PDEATHSIG): keep one thread.
        self._starter = ThreadPoolExecutor(1, "rabbit")
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.port, self.management_port, *ports = free_ports(4)
        self._mapper_port, self._dist_port = ports

    def __enter__(self) -> Self:
        try:
            self.start()
        except ProcessFailed:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Its AMQP URL, for user guest and virtual host `/`."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    # --- the process ------------------------------------------------------------------------------
    @property
    def pid(self) -> int:
        """The process id of Erlang's virtual machine."""
        assert self._server is not None, "RabbitMQ was not started"
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> None:
        """Start it with its former data; return when it accepts connections."""
        if self.is_running:
            return
        if self._mapper is None:
            self._configure()
            self._mapper = self._spawn(_MAPPER, "-port", str(self._mapper_port))
            self._until(lambda: _is_listened_at(self._mapper_port), "epmd does not listen")
        log_size = self._log.stat().st_size if self._log.exists() else 0
        self._server = self._spawn(_SERVER)
        self._until(lambda: self._has_started(log_size), "RabbitMQ has not started")

    def stop(self) -> None:
        """Shut it down with SIGTERM: it closes connections with a reason."""
        self._end(signal.SIGTERM)

    def kill(self, *, settled: bool = True) -> None:
        """End it with SIGKILL: connections break, unwritten data is lost.

        If `settled`, declarations are written to disk first (see `settle`).
        """
        if settled and self.is_running:
            self.settle()
        self._end(signal.SIGKILL)

    def settle(self) -> None:
        """Write declarations to disk: Mnesia's log, and Ra's directory of quorum queues (`dets`).

        RabbitMQ 3.10 delays this. A kill right after a declaration may lose a durable queue, and
        leave a quorum queue that is listed but does not work.
        """
        self.evaluate("begin mnesia:sync_log(), [dets:sync(T) || T <- dets:all()] end")

    def evaluate(self, expression: str) -> None:
        """Evaluate an Erlang expression in the server."""
        self._control("eval", f"{expression}.")

    def close(self) -> None:
        """End the server and the port mapper."""
        self._end(signal.SIGKILL)
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
        self._starter.shutdown()

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        if not self._log.exists():
            return "(no log)"
        return self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    # --- inside -----------------------------------------------------------------------------------
    def _configure(self) -> None:
        settings, plugins = _SETTINGS.format(port=self.port), ""
        if self._has_management:
            settings += _MANAGEMENT.format(
                management_port=self.management_port, figures_ms=self._figures_ms
            )
            plugins = "rabbitmq_management"
        (self._folder / "rabbitmq.conf").write_text(settings + self._settings)
        (self._folder / "plugins").write_text(f"[{plugins}].\n")

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        return self._starter.submit(self._spawn_here, command).result()

    def _spawn_here(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        # By file name: with another HOME, Python may not find the package.
        bound = [sys.executable, "-P", lifetime.__file__, "--parent", str(os.getpid()), *command]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                bound,
                env=os.environ | self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C reaches the parent only
            )

    def _environment(self) -> dict[str, str]:
        nowhere = str(self._folder / "none")
        return {
            "PATH": _path(),
            "HOME": str(self._folder),  # the cookie
            "RABBITMQ_NODENAME": f"requite-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": nowhere,
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": nowhere,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script then execs the server instead of starting a child.
            "RUNNING_UNDER_SYSTEMD": "1",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
        }

    def _control(self, *words: str) -> None:
        try:
            subprocess.run(
                [_found(_TOOL), "--quiet", *words],
                env=os.environ | self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=WAIT_S,
            )
        except subprocess.SubprocessError as error:
            raise ProcessFailed(f"{error}\n{self.log_tail()}") from error

    def _has_started(self, log_size: int) -> bool:
        if not self.is_running:
            raise ProcessFailed(f"RabbitMQ ended:\n{self.log_tail()}")
        with self._log.open("rb") as log:
            log.seek(log_size)
            return _STARTED in log.read()

    def _end(self, number: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(WAIT_S)

    def _until(self, is_done: Callable[[], bool], failure: str) -> None:
        end = monotonic() + WAIT_S
        while not is_done():
            if monotonic() > end:
                raise ProcessFailed(f"{failure} within {WAIT_S:g} s\n{self.log_tail()}")
            sleep(_POLL_S)


# --- the operating system -------------------------------------------------------------------------
def _path() -> str:
    """Return the PATH to search; the folder that `SERVER_VARIABLE` names comes first."""
    named = os.environ.get(SERVER_VARIABLE)
    places = (named and str(Path(named).parent), _BEFORE, os.environ.get("PATH"), _AFTER)
    return os.pathsep.join(place for place in places if place)


def _found(program: str) -> str:
    return shutil.which(program, path=_path()) or program


def _is_listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
