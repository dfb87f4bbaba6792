"""The RabbitMQ of the tests: one virtual host per test; durable data survives a kill."""

import socket

import pytest
from tests.support.rabbit import Rabbit

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_each_test_has_a_virtual_host_and_a_user_of_its_own(rabbit: Rabbit) -> None:
    vhosts = {vhost["name"] for vhost in rabbit.api("GET", "/vhosts")}

    assert vhosts == {"/", rabbit.vhost}
    assert rabbit.user in rabbit.url
    assert rabbit.url.endswith(f":{rabbit.port}/{rabbit.vhost}")


def test_a_durable_queue_survives_a_kill(rabbit: Rabbit) -> None:
    rabbit.api("PUT", f"/queues/{rabbit.vhost}/kept", {"durable": True})
    killed = rabbit.pid

    rabbit.kill()

    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", rabbit.port)) != 0
    rabbit.start()
    assert rabbit.pid != killed
    assert rabbit.queue("kept") is not None


def test_permit_sets_the_permissions_of_a_user(rabbit: Rabbit) -> None:
    rabbit.make_user("reader")
    rabbit.permit("reader", configure="", write="")

    found = rabbit.api("GET", f"/permissions/{rabbit.vhost}/reader")

    assert (found["configure"], found["write"], found["read"]) == ("", "", ".*")
    rabbit.delete_user("reader")
