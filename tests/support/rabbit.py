"""A real RabbitMQ for tests: one server per session, one virtual host per test.

A test that takes the fixture `rabbit` gets the server with a virtual host and a user of its own:

    def test_echo(rabbit: Rabbit) -> None:
        rabbit.url              # amqp://test-1:secret@127.0.0.1:23456/test-1
        rabbit.management_url   # http://test-1:secret@127.0.0.1:23457
        rabbit.kill()           # SIGKILL; `start` brings it back with its data
        rabbit.restart()        # SIGTERM and again

The report of a failed test has the server's log.
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
_TEST_S: Final = 180  # what a test may take, of which the server's start may be a good part
_TLS: Final = """\
listeners.ssl.default = 127.0.0.1:{port}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_none
"""


class Rabbit(RabbitServer):
    """The server. `vhost` and `user` are those of the running test; a `user` is also its own
    vhost's administrator, and may do everything at the management API."""

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
        self._log_from = 0  # where the part of the running test begins

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

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


# --- fixtures -------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def rabbit_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    """The server of the session; it is started by the first test that needs it."""
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
    """The server, running, with a virtual host and a user for this test alone."""
    rabbit_server.open_space()
    yield rabbit_server
    rabbit_server.close_space()


def allow_time(item: pytest.Item) -> None:
    """Give a test with the server time for its start, which is most of what such a test takes."""
    if "rabbit" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(_TEST_S))


def add_log(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put the end of the server's log into the report of a test that failed with it."""
    server = getattr(item, "funcargs", {}).get("rabbit")
    if report.failed and isinstance(server, Rabbit):
        report.sections.append(("RabbitMQ's log", server.log_tail()))
