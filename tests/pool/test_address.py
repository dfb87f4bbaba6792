"""RabbitMQ's URL: managers read it like workers and clients, and invalid URLs are refused."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from tests.pool.live import RabbitTestbed
from tests.support.certificates import Certificates

from requite.errors import ConfigurationError, TransportError
from requite.pool.config import PoolConfig, PoolSection, RabbitSection
from requite.pool.manager.address import ConnectionSettings
from requite.pool.manager.errors import FAILURES, ConnectionRefused, Refused, is_taken, refusal
from requite.pool.manager.management import Management


def config_of(url: str, management_url: str = "http://localhost:1") -> PoolConfig:
    return PoolConfig(PoolSection("core"), rabbitmq=RabbitSection(url, management_url))


@pytest.mark.parametrize(
    ("url", "address", "credentials"),
    [
        ("amqp://h", "tcp://h:5672", ("guest", "guest", "/")),
        ("amqp://u:p%40%2F@h:1/shop", "tcp://h:1", ("u", "p@/", "shop")),
        ("amqp://[::1]/a%2Fb", "tcp://[::1]:5672", ("guest", "guest", "a/b")),
        ("amqps://h/%C3%A9", "tls://h:5671", ("guest", "guest", "é")),
    ],
)
def test_a_url_gives_the_address_and_the_credentials(
    url: str, address: str, credentials: tuple[str, ...]
) -> None:
    settings = ConnectionSettings(config_of(url))
    assert str(settings.address) == address
    assert (settings.amqp.user, settings.amqp.password, settings.amqp.vhost) == credentials
    assert settings.vhost == settings.amqp.vhost
    assert settings.amqp.heartbeat_s == 10


def test_tls_options(tmp_path_factory: pytest.TempPathFactory) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    ca = quote(str(certificates.ca), safe="")
    settings = ConnectionSettings(config_of(f"amqps://h/?ca={ca}&server_name=rabbit"))
    assert settings.tls is not None
    assert settings.tls.server_name == "rabbit"
    assert settings.context is not None
    assert [each["subject"] for each in settings.context.get_ca_certs()]
    assert ConnectionSettings(config_of("amqp://h")).context is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h", "the scheme must be one of"),
        ("mdp://h", "amqp:// or amqps://"),
        ("amqp://h/?pool=core&key=1", "the option 'pool'"),
        ("amqps://h/?no_verify_ssl=1", "'no_verify_ssl'"),
        ("amqp://me:secret@/", "the host is missing"),
    ],
)
def test_an_invalid_url_is_refused_with_the_name_of_the_setting(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^rabbitmq\.url: ") as caught:
        ConnectionSettings(config_of(url))
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ConnectionRefused(530, "NOT_ALLOWED - vhost v not found"),
            "the virtual host does not exist, or the user has no access to it",
        ),
        (
            ConnectionRefused(403, "ACCESS_REFUSED"),
            "RabbitMQ refused the user name or password: ACCESS_REFUSED",
        ),
        (
            ConnectionRefused(0, "the server does not speak AMQP 0.9.1, but 0.1.0.0"),
            "the connection was refused: the server does not speak AMQP 0.9.1, but 0.1.0.0",
        ),
        (
            ConnectionRefused(
                0, "RabbitMQ does not accept passwords (PLAIN); it offers ['EXTERNAL']"
            ),
            "RabbitMQ refused the user name or password: RabbitMQ does not accept passwords"
            " (PLAIN); it offers ['EXTERNAL']",
        ),
        (Refused(403, "ACCESS"), "the user lacks permissions that a manager requires: ACCESS"),
        (
            Refused(406, "PRECONDITION_FAILED"),
            "an exchange or queue of the pool exists with other arguments: PRECONDITION_FAILED",
        ),
    ],
)
def test_permanent_refusals_have_plain_messages(error: Exception, message: str) -> None:
    assert refusal(error, "amqp://u:secret@h/v") == f"rabbitmq.url (amqp://u:***@h/v): {message}"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefused(320, "CONNECTION_FORCED"),
        Refused(404, "NOT_FOUND"),
        TransportError("cannot connect"),
        TimeoutError(),
    ],
)
def test_temporary_failures_are_not_refusals(error: Exception) -> None:
    assert refusal(error, "amqp://h") is None
    assert isinstance(error, FAILURES)


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        (Refused(403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"), True),
        (Refused(405, "RESOURCE_LOCKED"), True),
        (Refused(403, "ACCESS_REFUSED - access to queue 'q'"), False),
        (ConnectionRefused(403, "exclusive use"), False),
    ],
)
def test_is_taken_recognizes_a_queue_with_an_exclusive_consumer(
    error: Exception, taken: bool
) -> None:
    assert is_taken(error) is taken


async def test_a_missing_ca_file_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="/nowhere"):
        Management(config_of("amqps://h/?ca=/nowhere"))


async def test_the_management_url_must_be_http() -> None:
    with pytest.raises(ConfigurationError, match=r"rabbitmq\.management_url: .*http://"):
        Management(config_of("amqp://h", "ftp://h"))


@pytest.mark.e2e
@pytest.mark.slow
async def test_a_pool_over_tls_with_a_private_authority(testbed: RabbitTestbed) -> None:
    rabbit = testbed.rabbit
    url = f"{rabbit.tls_url}?ca={quote(str(rabbit.certificates.ca), safe='')}"
    section = RabbitSection(url, rabbit.management_url)
    await testbed.active(testbed.config(rabbitmq=section))
    client = await testbed.client()
    assert (await client.call(b"who")).body  # the worker gets the same URL
