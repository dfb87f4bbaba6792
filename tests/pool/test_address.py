"""Where RabbitMQ is: one URL, read alike by managers, workers and clients."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from aiormq.exceptions import InvalidFrameError
from tests.pool.live import Floor
from tests.support.certificates import Certificates

from requite.errors import ConfigurationError
from requite.pool.config import PoolConfig, PoolSection, RabbitSection
from requite.pool.manager.address import Place
from requite.pool.manager.errors import refusal
from requite.pool.manager.management import Management


def config_of(url: str, management_url: str = "http://localhost:1") -> PoolConfig:
    return PoolConfig(PoolSection("core"), rabbitmq=RabbitSection(url, management_url))


@pytest.mark.parametrize(
    ("url", "told", "vhost"),
    [
        ("amqp://h", "amqp://guest:guest@h:5672/%2F", "/"),
        ("amqp://u:p%40%2F@h:1/shop", "amqp://u:p%40%2F@h:1/shop", "shop"),
        ("amqp://[::1]/a%2Fb", "amqp://guest:guest@[::1]:5672/a%2Fb", "a/b"),
        ("amqps://h/%C3%A9", "amqps://guest:guest@h:5671/%C3%A9", "é"),
    ],
)
def test_what_aiormq_is_told(url: str, told: str, vhost: str) -> None:
    place = Place(config_of(url))
    assert str(place.url) == f"{told}?heartbeat=10"
    assert place.vhost == vhost


def test_options_of_tls(tmp_path_factory: pytest.TempPathFactory) -> None:
    certificates = Certificates(tmp_path_factory.mktemp("tls"))
    ca = quote(str(certificates.ca), safe="")
    place = Place(config_of(f"amqps://h/?ca={ca}&server_name=rabbit"))
    assert place.options == {"context": place.context, "server_hostname": "rabbit"}
    assert place.context is not None
    assert [each["subject"] for each in place.context.get_ca_certs()]
    assert Place(config_of("amqp://h")).options == {}


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://h", "the scheme is none of"),
        ("mdp://h", "amqp:// or amqps://"),
        ("amqp://h/?pool=core&key=1", "the option 'pool'"),
        ("amqps://h/?no_verify_ssl=1", "'no_verify_ssl'"),
        ("amqp://me:secret@/", "the host is missing"),
    ],
)
def test_what_is_no_place_is_refused_by_the_name_of_the_setting(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^rabbitmq\.url: ") as caught:
        Place(config_of(url))
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_virtual_host_that_is_not_there_is_told_in_plain_words() -> None:
    closed = InvalidFrameError("Expected one of ['Connection.OpenOk'], got <object at 0x7f>")
    text = "rabbitmq.url (amqp://h/v): there is no such virtual host, or the user may not use it"
    assert refusal(closed, "amqp://h/v") == text


async def test_a_file_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="/nowhere"):
        Management(config_of("amqps://h/?ca=/nowhere"))


async def test_the_management_api_speaks_http() -> None:
    with pytest.raises(ConfigurationError, match=r"rabbitmq\.management_url: .*http://"):
        Management(config_of("amqp://h", "ftp://h"))


@pytest.mark.e2e
@pytest.mark.slow
async def test_a_pool_over_tls_with_an_authority_of_its_own(floor: Floor) -> None:
    rabbit = floor.rabbit
    url = f"{rabbit.tls_url}?ca={quote(str(rabbit.certificates.ca), safe='')}"
    section = RabbitSection(url, rabbit.management_url)
    await floor.active(floor.config(rabbitmq=section))
    client = await floor.client()
    assert (await client.call(b"who")).body  # the worker has been given the same URL
