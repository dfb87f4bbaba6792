"""A real RabbitMQ for tests: one server per session, one virtual host per test.

The fixture `rabbit` provides the server with a new virtual host and a new user:

    def test_echo(rabbit: Rabbit) -> None:
        rabbit.url              # amqp://test-1:secret@127.0.0.1:23456/test-1
        rabbit.management_url   # http://test-1:secret@127.0.0.1:23457
        rabbit.kill()           # SIGKILL; `start` brings it back with its data
        rabbit.restart()        # SIGTERM, then a new start

The report of a failed test has the last part of the server's log.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from tests.support.certificates import Certificates

from requite.testing.processes import free_ports
from requite.testing.rabbitmq import RabbitServer, unavailable

PASSWORD: Final = "secret"
_LOG_TAIL_BYTES: Final = 12_000
_TEST_S: Final = 180  # the time limit of a test, including the start of the server
_TLS: Final = """\
listeners.ssl.default = 127.0.0.1:{port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_none
"""


class Rabbit(RabbitServer):
    """The server. `vhost` and `user` are those of the running test. The user is an administrator
    with all permissions on the virtual host and full access to the management API."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder)
        [self.tls_port] = free_ports(1)
        settings = _TLS.format(
            port=self.tls_port,
            ca=self.certificates.ca,
            certificate=self.certificates.server.certificate,
            key=self.certificates.server.key,
        )
        super().__init__(folder, settings)
        self.vhost = "/"
        self.user = "guest"
        self.password = "guest"
        self._made = 0
        self._log_from = 0  # offset of the running test's part of the log

    def restart(self) -> None:
        """Stop the server and start it again."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """Return the end of the server's log, at most what it wrote during the running test."""
        if not self._log.exists():
            return "(no log)"
        said = self._log.read_bytes()[self._log_from :]
        return said[-_LOG_TAIL_BYTES:].decode(errors="replace")

    # --- addresses --------------------------------------------------------------------------------
    @property
    def url(self) -> str:
        """The AMQP URL of the test's virtual host, with user and password."""
        return self.url_of()

    def url_of(
        self, user: str | None = None, password: str | None = None, vhost: str | None = None
    ) -> str:
        """Return an AMQP URL; by default, with user, password and virtual host of the test."""
        user = self.user if user is None else user
        password = self.password if password is None else password
        vhost = self.vhost if vhost is None else vhost
        credentials = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"amqp://{credentials}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    @property
    def tls_url(self) -> str:
        """The URL of the test's virtual host over TLS. `certificates.ca` signed the server's
        certificate."""
        plain = self.url.replace("amqp://", "amqps://", 1)
        return plain.replace(f":{self.port}/", f":{self.tls_port}/", 1)

    @property
    def management_url(self) -> str:
        """The root of the management API, with the test's user and password."""
        return f"http://{self.user}:{self.password}@127.0.0.1:{self.management_port}"

    # --- management API ---------------------------------------------------------------------------
    def api(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the management API (`path` without /api) as guest; return the JSON.

        Raises `LookupError` for status 404, `RuntimeError` for any other error.
        """
        # One connection per request: a persistent one would not survive a restart of the server.
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
        """Create a virtual host on which guest has all permissions; return its name."""
        self.api("PUT", f"/vhosts/{quote(name, safe='')}", {})
        self.permit("guest", vhost=name)
        return name

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host and its contents, if it exists; its connections are closed."""
        with suppress(LookupError):
            self.api("DELETE", f"/vhosts/{quote(name, safe='')}")

    def make_user(self, name: str, password: str = PASSWORD, tags: str = "") -> str:
        """Create a user without permissions (see `permit`); return the name."""
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
        """Set a user's permissions on a virtual host (default: the test's) to these patterns."""
        place = quote(self.vhost if vhost is None else vhost, safe="")
        body = {"configure": configure, "write": write, "read": read}
        self.api("PUT", f"/permissions/{place}/{quote(user, safe='')}", body)

    def delete_user(self, name: str) -> None:
        """Delete a user, if it exists."""
        with suppress(LookupError):
            self.api("DELETE", f"/users/{quote(name, safe='')}")

    def queue(self, name: str) -> dict[str, Any] | None:
        """Return the management API's data on a queue of the test's virtual host; None if the queue
        does not exist."""
        place = f"/queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}"
        try:
            found: dict[str, Any] = self.api("GET", place)
        except LookupError:
            return None
        return found

    def delete_queue(self, name: str) -> None:
        """Delete a queue of the test's virtual host, even if it has messages or consumers."""
        self.api("DELETE", f"/queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}")

    # --- for one test -----------------------------------------------------------------------------
    def open_space(self) -> None:
        """Start the server if needed, and create the virtual host and user of the next test."""
        self.start()
        self._log_from = self._log.stat().st_size
        self._made += 1
        name = f"test-{self._made}"
        self.vhost = self.make_vhost(name)
        self.user, self.password = self.make_user(name, tags="administrator"), PASSWORD
        self.permit(name)

    def close_space(self) -> None:
        """Delete the test's virtual host and user. Starts the server first if the test left it
        stopped."""
        self.start()
        self.delete_vhost(self.vhost)
        self.delete_user(self.user)
        self.vhost, self.user, self.password = "/", "guest", "guest"


# --- fixtures -------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """The server of the session; starts with the first test that needs it."""
    if unavailable():
        pytest.skip("no RabbitMQ here; get it with: sudo scripts/setup test")
    server = Rabbit(tmp_path_factory.mktemp("rabbit"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def rabbit(rabbit_server: Rabbit) -> Iterator[Rabbit]:
    """The running server, with a virtual host and a user for this test alone."""
    rabbit_server.open_space()
    yield rabbit_server
    rabbit_server.close_space()


def allow_time(item: pytest.Item) -> None:
    """Raise the time limit of a test that uses the server to 180 s, unless it has its own: the
    start of the server may take most of that."""
    if "rabbit" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(_TEST_S))


def add_log(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add the end of the server's log to the report of a failed test that uses the server."""
    server = getattr(item, "funcargs", {}).get("rabbit")
    if report.failed and isinstance(server, Rabbit):
        report.sections.append(("RabbitMQ's log", server.log_tail()))
