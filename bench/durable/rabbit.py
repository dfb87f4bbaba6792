"""A RabbitMQ of the bench's own: on free ports of the loopback, with its data in a folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.processes import ChildFailed, Children
from requite.cli.show.rabbitmq import SERVER_VARIABLE

SERVER: Final = "rabbitmq-server"
_START_S: Final = 60.0
_STARTED: Final = r"completed with \d+ plugins|Starting broker\.\.\. completed"


def lack() -> str | None:
    """Return what is missing, if anything."""
    if shutil.which(SERVER, path=_path()) is None:
        return "no rabbitmq-server: apt-get install rabbitmq-server"
    return None


class Rabbit:
    """The server; leaving the `with` block ends it, and the port mapper of Erlang with it.

    With `management`, its management API answers at `management_port`.
    """

    def __init__(self, folder: Path, *, management: bool = False) -> None:
        self._folder = folder
        self._children = Children()
        self.port = _free_port()
        self.management_port = _free_port() if management else 0
        self.pid = 0
        self._mapper_port = _free_port()

    def __enter__(self) -> Rabbit:
        if self.management_port:
            self._enable_management()
        # Its own log goes to stdout, where the runner waits for it.
        server = self._children.start(
            ["env", *(f"{name}={value}" for name, value in self._settings().items()), SERVER],
            name="RabbitMQ",
        )
        try:
            server.wait_for(_STARTED, _START_S)
        except ChildFailed as failure:
            self.__exit__(None, None, None)
            raise ChildFailed(f"{failure}\n{server.last_words()}") from None
        self.pid = _erlang_of(server.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._children.__exit__(kind, error, traceback)
        environment = {**os.environ, **self._settings()}
        with suppress(FileNotFoundError):  # it comes with Erlang, and was started by it
            subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)

    def _enable_management(self) -> None:
        (self._folder / "plugins").write_text("[rabbitmq_management].\n")
        (self._folder / "rabbitmq.conf").write_text(
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management_port}\n"
        )

    def _settings(self) -> dict[str, str]:
        config = "rabbitmq.conf" if self.management_port else "none"
        return {
            "PATH": _path(),
            "HOME": str(self._folder),  # the cookie
            "RABBITMQ_NODENAME": f"requite-bench-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / config),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ("-kernel inet_dist_use_interface {127,0,0,1}"),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
        }


def _path() -> str:
    named = os.environ.get(SERVER_VARIABLE)
    # Debian's command in /usr/sbin changes to a user of RabbitMQ's own; the one behind it does not.
    places = (named and str(Path(named).parent), "/usr/lib/rabbitmq/bin", os.environ.get("PATH"))
    return os.pathsep.join([*filter(None, places), "/usr/sbin"])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _erlang_of(pid: int) -> int:
    """Return the process that does the work: the scripts around it only wait."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # processes come and go
            number = int(stat.parent.name)
            if "(beam.smp)" in stat.read_text() and _is_descendant(number, pid):
                return number
    return pid


def _is_descendant(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
