"""What a monitor reads of a broker."""

from __future__ import annotations

import asyncio

from tests.metrics.test_brokers import NEW

from requite.broker import Broker
from requite.metrics.families import text_of
from requite.metrics.watched import WatchedBroker
from requite.protocols.majordomo.census import Census, Traffic, traffic_of
from requite.protocols.majordomo.parties import Service


class OneService:
    """A broker with one service, which nobody may count."""

    trouble, titanic, pair = "", None, None

    def census(self) -> Census:
        raise AssertionError("a census takes a time that grows with the services and peers")

    def traffic(self, service: str) -> Traffic | None:
        return traffic_of(Service(b"echo")) if service == "echo" else None


class Counted(OneService):
    """A broker that notes whether the loop turns after its census."""

    has_turned = False

    def census(self) -> Census:
        asyncio.get_running_loop().call_soon(setattr, self, "has_turned", True)
        return NEW

    @property
    def titanic(self) -> None:  # asked for next
        assert self.has_turned


async def test_the_loop_turns_after_a_census() -> None:
    broker = Counted()
    assert await WatchedBroker(broker, 100).read()
    assert broker.has_turned


async def test_one_service_is_read_without_a_census() -> None:
    watched = WatchedBroker(OneService(), 100)
    families = await watched.read_service("echo")
    assert families is not None
    assert b'requite_requests_queued{service="echo"} 0.0' in await text_of(families)
    assert await watched.read_service("absent") is None


def test_a_broker_without_a_service_has_no_numbers_of_it() -> None:
    assert Broker("tcp://127.0.0.1:0").traffic("ä\N{SNOWMAN}") is None
