"""A real RabbitMQ for tests: one server per session, one virtual host per test.

A test that takes the fixture `rabbit` gets the server with a virtual host and a user of its own:

    def test_echo(rabbit: Rabbit) -> None:
        rabbit.url              # amqp://test-1:secret@127.0.0.1:23456/test-1
        rabbit.management_url   # http://test-1:secret@127.0.0.1:23457
        rabbit.kill()           # SIGKILL; `start` brings it back with its data
        rabbit.restart()        # SIGTERM and again

Ports, data, cookie and Erlang's port mapper (epmd) are the server's own. All of it ends with the
test process, even if that is killed: the kernel ends the children then. The log is part of the
report of a test that fails.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import quote

import pytest
from tests.support.certificates import Certificates

WAIT_S: Final = 50.0
PASSWORD: Final = "secret"
_PAUSE_S: Final = 0.02  # between two looks at what is awaited
_LOG_TAIL_BYTES: Final = 12_000
_STARTED: Final = b"completed with"
# Debian's command in /usr/sbin changes to a user of RabbitMQ's own; the one behind it does not.
_PATH: Final = f"/usr/lib/rabbitmq/bin:{os.environ.get('PATH', '')}:/usr/sbin"
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)
_LIBC: Final = ctypes.CDLL(None)
_SETTINGS: Final = """\
listeners.tcp.default = 127.0.0.1:{port}
listeners.ssl.default = 127.0.0.1:{tls_port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_none
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
collect_statistics_interval = 500
disk_free_limit.absolute = 10MB
"""


def lack() -> str | None:
    """Return what is missing to run the server, if anything."""
    if shutil.which("rabbitmq-server", path=_PATH) is None:
        return "no RabbitMQ here; get it with: sudo scripts/setup test"
    return None


class Rabbit:
    """The server. `vhost` and `user` are those of the running test; a `user` is also its own
    vhost's administrator, and may do everything at the management API."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "rabbit.log"
        # Children are bound to the thread that starts them (PR_SET_PDEATHSIG): one that stays.
        self._starter = ThreadPoolExecutor(1, "rabbit")
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self.port, self.tls_port, self.management_port, *ports = _free_ports(5)
        self._mapper_port, self._dist_port = ports
        self.certificates = Certificates(folder)
        self.vhost = "/"
        self.user = "guest"
        self.password = "guest"
        self._made = 0
        self._log_from = 0  # where the part of the running test begins

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
            self._mapper = self._spawn(["epmd", "-port", str(self._mapper_port)])
            _until(lambda: _is_listened_at(self._mapper_port), "epmd listens")
        said = self._log.stat().st_size if self._log.exists() else 0
        self._server = self._spawn(["rabbitmq-server"])
        _until(lambda: self._has_started(said), "RabbitMQ has started", self.log_tail)

    def stop(self) -> None:
        """End it in order (SIGTERM): connections are closed with a reason."""
        self._end(signal.SIGTERM)

    def kill(self, *, settled: bool = True) -> None:
        """End it at once (SIGKILL): connections break, what was not on the disk is gone.

        RabbitMQ 3.10 writes the names of quorum queues to the disk every three minutes only, and
        one that was younger when the server was killed never works again. `settled` has them
        written first, as if the queues had been there for a while.
        """
        if settled and self.is_running:
            self._ctl("eval", "[dets:sync(T) || T <- dets:all()].")
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End everything that was started."""
        self._end(signal.SIGKILL)
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()
        self._starter.shutdown()

    def log_tail(self) -> str:
        """Return the last lines of its log, of the running test's part."""
        if not self._log.exists():
            return "(no log)"
        said = self._log.read_bytes()[self._log_from :]
        return said[-_LOG_TAIL_BYTES:].decode(errors="replace")

    # --- where it is ------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """The AMQP URL of the test's virtual host, with user and password."""
        return self.url_of()

    def url_of(
        self, user: str | None = None, password: str | None = None, vhost: str | None = None
    ) -> str:
        """Return an AMQP URL; what is left out is the test's own."""
        user = self.user if user is None else user
        password = self.password if password is None else password
        vhost = self.vhost if vhost is None else vhost
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{credentials}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    @property
    def tls_url(self) -> str:
        """The same over TLS; `certificates.ca` is who signed the server's certificate."""
        plain = self.url.replace("amqp://", "amqps://", 1)
        return plain.replace(f":{self.port}/", f":{self.tls_port}/", 1)

    @property
    def management_url(self) -> str:
        """The root of the management API, with the test's user and password."""
        return f"http://{self.user}:{self.password}@127.0.0.1:{self.management_port}"

    # --- its management API -----------------------------------------------------------------------
    def api(self, method: str, path: str, body: object = None) -> Any:
        """Ask the management API (`path` without /api) as guest; return what its JSON says.

        Raises `LookupError` where there is no such thing, `RuntimeError` for any other refusal.
        """
        # A connection per question: one that was kept would not survive a restart.
        connection = HTTPConnection("127.0.0.1", self.management_port, timeout=20)
        credentials = b64encode(b"guest:guest").decode()
        try:
            connection.request(
                method,
                f"/api{path}",
                json.dumps(body) if body is not None else None,
                {"Authorization": f"Basic {credentials}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status == 404:
            raise LookupError(f"{method} {path}: {text.decode()}")
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {text.decode()}")
        return json.loads(text) if text else None

    def make_vhost(self, name: str) -> str:
        """Make a virtual host that guest may use as well; return its name."""
        self.api("PUT", f"/vhosts/{quote(name, safe='')}", {})
        self.permit("guest", vhost=name)
        return name

    def delete_vhost(self, name: str) -> None:
        """Remove a virtual host with all that is in it; its connections are closed."""
        with suppress(LookupError):
            self.api("DELETE", f"/vhosts/{quote(name, safe='')}")

    def make_user(self, name: str, password: str = PASSWORD, tags: str = "") -> str:
        """Make a user who may do nothing yet (see `permit`); return the name."""
        body = {"password": password, "tags": tags}
        self.api("PUT", f"/users/{quote(name, safe='')}", body)
        return name

    def permit(
        self,
        user: str,
        configure: str = ".*",
        write: str = ".*",
        read: str = ".*",
        vhost: str | None = None,
    ) -> None:
        """Let a user configure, write and read what the patterns match, by default everything."""
        place = quote(self.vhost if vhost is None else vhost, safe="")
        body = {"configure": configure, "write": write, "read": read}
        self.api("PUT", f"/permissions/{place}/{quote(user, safe='')}", body)

    def delete_user(self, name: str) -> None:
        """Remove a user."""
        with suppress(LookupError):
            self.api("DELETE", f"/users/{quote(name, safe='')}")

    def queue(self, name: str) -> dict[str, Any] | None:
        """Return what the management API knows of a queue of the test's virtual host, if any."""
        place = f"/queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}"
        try:
            found: dict[str, Any] = self.api("GET", place)
        except LookupError:
            return None
        return found

    def delete_queue(self, name: str) -> None:
        """Remove a queue under whoever consumes from it."""
        self.api("DELETE", f"/queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}")

    # --- for one test -----------------------------------------------------------------------------
    def open_space(self) -> None:
        """Make a virtual host and a user, its administrator, and make them the current ones."""
        self.start()
        self._log_from = self._log.stat().st_size
        self._made += 1
        name = f"test-{self._made}"
        self.vhost = self.make_vhost(name)
        self.user, self.password = self.make_user(name, tags="administrator"), PASSWORD
        self.permit(name)

    def close_space(self) -> None:
        """Remove what `open_space` has made; the server runs afterwards, whatever a test did."""
        self.start()
        self.delete_vhost(self.vhost)
        self.delete_user(self.user)
        self.vhost, self.user, self.password = "/", "guest", "guest"

    # --- inside -----------------------------------------------------------------------------------
    def _configure(self) -> None:
        settings = _SETTINGS.format(
            port=self.port,
            tls_port=self.tls_port,
            ca=self.certificates.ca,
            certificate=self.certificates.server.certificate,
            key=self.certificates.server.key,
            management_port=self.management_port,
        )
        (self._folder / "rabbitmq.conf").write_text(settings)
        (self._folder / "plugins").write_text("[rabbitmq_management].\n")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        return self._starter.submit(self._spawn_here, command).result()

    def _spawn_here(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                env=os.environ | self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )

    def _environment(self) -> dict[str, str]:
        nowhere = str(self._folder / "none")
        return {
            "PATH": _PATH,
            "HOME": str(self._folder),  # the cookie
            "RABBITMQ_NODENAME": f"requite-test-{self.port}@localhost",
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

    def _ctl(self, *words: str) -> None:
        environment = os.environ | self._environment()
        subprocess.run(
            ["rabbitmqctl", "--quiet", *words],
            env=environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        )

    def _has_started(self, said: int) -> bool:
        if not self.is_running:
            raise AssertionError(f"RabbitMQ ended:\n{self.log_tail()}")
        with self._log.open("rb") as log:
            log.seek(said)
            return _STARTED in log.read()

    def _end(self, number: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(WAIT_S)


# --- fixtures -------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """The server of the session; it is started by the first test that needs it."""
    if flaw := lack():
        pytest.skip(flaw)
    server = Rabbit(tmp_path_factory.mktemp("rabbit"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def rabbit(rabbit_server: Rabbit) -> Iterator[Rabbit]:
    """The server, running, with a virtual host and a user for this test alone."""
    rabbit_server.open_space()
    yield rabbit_server
    rabbit_server.close_space()


def add_log(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the end of the server's log into the report of a test that failed with it."""
    server = getattr(item, "funcargs", {}).get("rabbit")
    if report.failed and isinstance(server, Rabbit):
        report.sections.append(("RabbitMQ's log", server.log_tail()))


# --- the operating system -------------------------------------------------------------------------
def _free_ports(count: int) -> list[int]:
    """Return free ports that the system gives to nobody by itself: after a kill, the server has to
    find them free again."""
    draw = random.SystemRandom()  # others that test at the same time may have our seed
    found: list[int] = []
    while len(found) < count:
        port = draw.randrange(15_000, 32_000)
        if port in found:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def _is_listened_at(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(look: Any, what: str, tell: Any = str) -> None:
    end = monotonic() + WAIT_S
    while not look():
        assert monotonic() < end, f"{what}: not within {WAIT_S:g} s\n{tell()}"
        sleep(_PAUSE_S)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
