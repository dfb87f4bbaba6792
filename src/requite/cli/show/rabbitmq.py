"""A RabbitMQ of one's own: on free ports of the loopback, with its data in a folder.

Ports, data, cookie and Erlang's port mapper (epmd) are the server's own. All of it ends with the
process that started it, even if that is killed: on Linux the kernel ends the children then.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import ClassVar, Final

from requite.cli.show import leash
from requite.cli.show.processes import ShowFailed
from requite.errors import ConfigurationError

WAIT_S: Final = 120.0  # a busy machine takes half a minute for its start
SERVER_VARIABLE: Final = "REQUITE_RABBITMQ_SERVER"
_SERVER: Final = "rabbitmq-server"
_TOOL: Final = "rabbitmqctl"
_MAPPER: Final = "epmd"
_PAUSE_S: Final = 0.02  # between two looks at what is awaited
_LOG_TAIL_BYTES: Final = 12_000
_STARTED: Final = b"completed with"
# Debian's commands in /usr/sbin change to a user of RabbitMQ's own; those behind them do not.
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


def lack() -> str | None:
    """Return which program is missing to run the server, if any."""
    path = _path()
    needed = (_SERVER, _TOOL, _MAPPER)
    return next((name for name in needed if shutil.which(name, path=path) is None), None)


def require_rabbitmq() -> None:
    """Raise `ConfigurationError` where the server is not installed."""
    missing = lack()
    if missing is not None:
        raise ConfigurationError(
            f"there is no {missing} here, which comes with RabbitMQ (on Debian: apt-get install"
            f" rabbitmq-server); if it is somewhere else, {SERVER_VARIABLE} names its {_SERVER}"
        )


class RabbitServer:
    """The server, its user guest, and, with `management`, its management API, whose figures are
    new every `FIGURES_MS`. `more` are further lines of its rabbitmq.conf.

    It keeps its ports: whoever was connected finds it again after `kill` and `start`. What does
    not start, or end, within `WAIT_S` raises `ShowFailed`.
    """

    FIGURES_MS: ClassVar[int] = 500

    def __init__(self, folder: Path, more: str = "", *, management: bool = True) -> None:
        self._folder = folder
        self._log = folder / "rabbit.log"
        self._more = more
        self._has_management = management
        # Children are bound to the thread that starts them (PR_SET_PDEATHSIG): one that stays.
        self._starter = ThreadPoolExecutor(1, "rabbit")
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.port, self.management_port, *ports = free_ports(4)
        self._mapper_port, self._dist_port = ports

    # --- the process ------------------------------------------------------------------------------
    @property
    def pid(self) -> int:
        """The process of the server, Erlang's virtual machine."""
        assert self._server is not None, "it was never started"
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there; `start` has waited until it serves."""
        return self._server is not None and self._server.poll() is None

    def start(self) -> None:
        """Start it, with the data that it had; return when it serves."""
        if self.is_running:
            return
        if self._mapper is None:
            self._configure()
            self._mapper = self._spawn(_MAPPER, "-port", str(self._mapper_port))
            self._until(lambda: _is_listened_at(self._mapper_port), "epmd does not listen")
        said = self._log.stat().st_size if self._log.exists() else 0
        self._server = self._spawn(_SERVER)
        self._until(lambda: self._has_started(said), "RabbitMQ has not started")

    def stop(self) -> None:
        """End it in order (SIGTERM): connections are closed with a reason."""
        self._end(signal.SIGTERM)

    def kill(self, *, settled: bool = True) -> None:
        """End it at once (SIGKILL): connections break, what was not on the disk is gone.

        `settled` has what is declared written first (see `settle`), as if they had been
        there for a while.
        """
        if settled and self.is_running:
            self.settle()
        self._end(signal.SIGKILL)

    def settle(self) -> None:
        """Write what is declared to the disk: Mnesia's log, and the names of quorum queues (Ra's
        directory, a table of `dets`).

        RabbitMQ 3.10 does so some time later. Of what was declared just before the server is
        killed, durable queues may be lost, and quorum queues may be listed and not work.
        """
        self.evaluate("begin mnesia:sync_log(), [dets:sync(T) || T <- dets:all()] end")

    def evaluate(self, expression: str) -> None:
        """Have the server evaluate an expression of Erlang."""
        self._control("eval", f"{expression}.")

    def close(self) -> None:
        """End everything that was started."""
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
                management_port=self.management_port, figures_ms=self.FIGURES_MS
            )
            plugins = "rabbitmq_management"
        (self._folder / "rabbitmq.conf").write_text(settings + self._more)
        (self._folder / "plugins").write_text(f"[{plugins}].\n")

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        return self._starter.submit(self._spawn_here, command).result()

    def _spawn_here(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        # By its file: with another home, the package may not be found by its name.
        leashed = [sys.executable, "-P", leash.__file__, str(os.getpid()), leash.PROGRAM, *command]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                leashed,
                env=os.environ | self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C is for who started it
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
            # The script becomes the server then, in place of waiting for it.
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
            raise ShowFailed(f"{error}\n{self.log_tail()}") from error

    def _has_started(self, said: int) -> bool:
        if not self.is_running:
            raise ShowFailed(f"RabbitMQ ended:\n{self.log_tail()}")
        with self._log.open("rb") as log:
            log.seek(said)
            return _STARTED in log.read()

    def _end(self, number: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(WAIT_S)

    def _until(self, look: Callable[[], bool], flaw: str) -> None:
        end = monotonic() + WAIT_S
        while not look():
            if monotonic() > end:
                raise ShowFailed(f"{flaw} within {WAIT_S:g} s\n{self.log_tail()}")
            sleep(_PAUSE_S)


# --- the operating system -------------------------------------------------------------------------
def free_ports(count: int) -> list[int]:
    """Return free ports that the system gives to nobody by itself: after a kill, the server has to
    find them free again."""
    draw = random.SystemRandom()  # others that start one at the same time may have our seed
    found: list[int] = []
    while len(found) < count:
        port = draw.randrange(15_000, 32_000)
        if port in found:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def _path() -> str:
    """Return the folders to look in, that of the variable's first."""
    named = os.environ.get(SERVER_VARIABLE)
    places = (named and str(Path(named).parent), _BEFORE, os.environ.get("PATH"), _AFTER)
    return os.pathsep.join(place for place in places if place)


def _found(program: str) -> str:
    return shutil.which(program, path=_path()) or program


def _is_listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
