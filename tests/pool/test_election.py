"""Election of the leading manager at an MDP broker, the broker's listing, and the leader's driver.

Also: the environment of workers, and refusals of keys and URLs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from requite.errors import ConfigurationError, RemoteViolation
from requite.pool.config import BrokerSection, DriverSection, HttpSection, PoolConfig, PoolSection
from requite.pool.drivers.base import DriverError
from requite.pool.drivers.noop import NoopDriver
from requite.pool.inputs import ServiceCounts
from requite.pool.manager.broker_carrier import check_driver, check_url
from requite.pool.manager.choice import check_key
from requite.pool.manager.election import LEASE_S, Election, LeaderDriver
from requite.pool.manager.environment import environment_of
from requite.pool.manager.manager import PoolManager
from requite.pool.manager.refusals import refusal
from requite.pool.manager.services import Services, read_listing
from requite.worker.environment import place_of

CONFIG = PoolConfig(PoolSection("core"), broker=BrokerSection("mdp://a:5555"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test advances: one element, 100 s at first."""
    at = [100.0]
    monkeypatch.setattr("requite.shell.clock.now", lambda: at[0])
    return at


async def test_a_leader_driver_acts_only_during_its_lease(
    clock: list[float],
) -> None:
    election = Election("mdp://a:5555", "core", dict)
    driver = LeaderDriver(NoopDriver(), election)
    with pytest.raises(DriverError, match="another manager may be active"):
        await driver.start("42")
    assert not election.confirm(("another", election.name), 100.0)
    assert not election.confirm((), 100.0)
    with pytest.raises(DriverError, match="another manager may be active"):
        await driver.stop("42")
    assert election.confirm((election.name, "another"), 100.0)
    await driver.start("42")
    clock[0] += LEASE_S + 0.1
    with pytest.raises(DriverError, match=r"broker\.url"):
        await driver.stop("42")
    assert (await driver.list()).keys() == {"42"}
    assert not election.confirm(("another", election.name), clock[0])
    await election.leave()
    assert not election.confirm((election.name,), clock[0])
    await driver.stop("42")  # a manager that left may still stop its own groups
    assert await driver.list() == {}


def test_a_listing_is_parsed() -> None:
    def row(name: str, *workers: str) -> dict[str, Any]:
        return {
            "service": name,
            "workers": list(workers),
            "queued": 1,
            "in_progress": 2,
            "accepted": 3,
        }

    rows = [row("core/!managers", "b", "a"), row("core/a%2Fb", "w"), row("core/"), row("core/a/b")]
    listing = read_listing([*rows, row("core/%00")], "core")
    assert listing.managers == ("b", "a")
    assert listing.groups == {"a/b": ServiceCounts(1, 2, 3, 1), "": ServiceCounts(1, 2, 3, 0)}
    assert listing.others.keys() == {"core/a/b", "core/%00"}


@pytest.mark.parametrize(
    "rows", [[1], [{}], [{"service": "core/1", "workers": 1}], {"a": 1}, None, 5]
)
def test_a_malformed_listing_is_refused(rows: Any) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        read_listing(rows, "core")


@pytest.mark.parametrize("body", [b"501", b"", b"{", b"[1]", b'"text"'])
async def test_a_broker_without_listings_is_reported(body: bytes) -> None:
    """Another broker's reply to `mmi.under` raises `RemoteViolation`; a stub returns the reply."""

    class StubClient:
        async def call(self, *_: Any, **__: Any) -> Any:
            class Reply:
                pass

            reply: Any = Reply()
            reply.body = body
            return reply

    services = Services(CONFIG)
    services._client = StubClient()  # type: ignore[assignment, misc]
    with pytest.raises(RemoteViolation, match=r"mmi\.under"):
        await services.fetch()


def test_a_refusal_states_the_reason() -> None:
    assert "'core/a%2Fb'" in refusal("core", "core/a/b")
    assert "no key has this service name" in refusal("core", "core/%FF")
    assert "no key has this service name" in refusal("core", "core/" + "é" * 120)
    assert "NUL" in refusal("core", "core/%00")


def test_invalid_keys_are_refused() -> None:
    check_key(CONFIG, "a/b" * 40)
    for config in (CONFIG, PoolConfig(PoolSection("core"))):
        for key in ("\0", "x" * 300, "\ud800"):
            with pytest.raises(ConfigurationError):
                check_key(config, key)


def test_the_environment_of_workers() -> None:
    environment = environment_of(CONFIG)("a/b", "w1")
    assert environment == {
        "WORKER_POOL": "core",
        "WORKER_BROKER_URL": "mdp://a:5555",
        "WORKER_PREFETCH": "1",
        "WORKER_ID": "w1",
        "WORKER_KEY": "a/b",
        "WORKER_SERVICE": "core/a%2Fb",
    }
    assert place_of(environment).url == "mdp://a:5555?pool=core&key=a%2Fb"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://localhost", "use the mdp:// URL of a broker; for RabbitMQ, set rabbitmq.url"),
        ("mdp://localhost/core", "remove the service core; pool.name names the services"),
        ("mdp://localhost?pool=core&key=1", "remove the service core/1; pool.name names"),
        ("mdp://localhost?dialect=0.2", "managers need MDP 0.3"),
        ("mdp+inproc://here", "workers are other processes"),
        ("mdp://localhost:no", "'no' is not a port"),
        ("localhost:5555", "did you mean mdp://localhost:5555"),
    ],
)
def test_invalid_broker_urls_are_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=r"broker\.url: ") as refused:
        check_url(url)
    assert why in str(refused.value)


def test_a_driver_that_needs_rabbitmq_is_refused() -> None:
    check_driver(CONFIG)
    keda = DriverSection("kubernetes", settings={"scaling": "keda"})
    with pytest.raises(ConfigurationError, match=r"driver\.scaling"):
        check_driver(replace(CONFIG, driver=keda))


async def test_a_manager_without_endpoints_has_no_url() -> None:
    config = replace(CONFIG, http=HttpSection(enabled=False))
    manager = PoolManager(config, driver=NoopDriver())
    assert manager.url == ""
    await manager.close()
