"""Managers read queues back: they name each difference from the configuration."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import quote

import pytest
from tests.pool.live import RabbitTestbed, ask, eventually, until
from tests.pool.test_manager import answering_worker

from requite.pool.config import Limits
from requite.pool.manager.verification import flaws_of

WANTED = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "core-dl-xchg",
    "x-delivery-limit": 5,
    "x-message-ttl": 600_000,
    "x-max-length": 100_000,
}


def found(
    policy: dict[str, Any] | None = None, kind: str = "quorum", **arguments: Any
) -> dict[str, Any]:
    """Return a queue as the management API describes it; an argument of None is left out."""
    reported = WANTED | {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return {
        "type": kind,
        "arguments": {name: value for name, value in reported.items() if value is not None},
        "effective_policy_definition": policy,
    }


def texts(queue: dict[str, Any], *, fatal: bool = False) -> list[str]:
    """Return the texts of the fatal flaws of a queue, or those of the others."""
    return [flaw.text for flaw in flaws_of("core-req-42", queue, WANTED) if flaw.fatal is fatal]


# --- comparison -----------------------------------------------------------------------------------
def test_a_queue_as_declared_has_no_flaw() -> None:
    assert flaws_of("core-req-42", found(), WANTED) == []
    higher = {"message-ttl": 700_000, "delivery-limit": 20, "max-length": 1_000_000}
    assert flaws_of("core-req-42", found(higher), WANTED) == []
    assert flaws_of("core-req-42", found({"dead-letter-exchange": "other"}), WANTED) == []


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (found(kind="classic"), "of type 'classic'"),
        (found(dead_letter_exchange=None), "the dead letter exchange None"),
        (found(dead_letter_exchange="other"), "it must be 'core-dl-xchg'"),
        (found(delivery_limit=None), "limits.delivery_limit asks for 5"),
    ],
)
def test_a_flaw_that_loses_requests_is_fatal(queue: dict[str, Any], text: str) -> None:
    [flaw] = texts(queue, fatal=True)
    assert flaw.startswith("the queue core-req-42 ")
    assert text in flaw


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (found(message_ttl=1000), "has 1000 (x-message-ttl) where limits.message_ttl asks"),
        (found({"message-ttl": 1000}), "has 1000 (by the policy in force, message-ttl)"),
        (found({"delivery-limit": 2}), "where limits.delivery_limit asks for 5"),
        (found(max_length=None), "has none where limits.queue_length asks for 100000"),
        (found({"max-length": 10}), "where limits.queue_length asks for 100000"),
        (found({"expires": 60_000}), "while it has no consumers (expires)"),
        (found(overflow="reject-publish"), "beyond limits.queue_length are refused"),
    ],
)
def test_other_limits_are_named_with_their_setting(queue: dict[str, Any], text: str) -> None:
    assert not texts(queue, fatal=True)
    [flaw] = texts(queue)
    assert text in flaw


def test_a_limit_that_is_not_configured_is_a_flaw() -> None:
    wanted = {name: value for name, value in WANTED.items() if name != "x-max-length"}
    [flaw] = flaws_of("core-req-42", found(), wanted)
    assert "limits.queue_length asks for none" in flaw.text


# --- at a RabbitMQ --------------------------------------------------------------------------------
async def flaws(testbed: RabbitTestbed, url: str) -> list[str]:
    """Return the flaws in the status of the group of the key `42`."""
    rows = (await ask(f"{url}/status"))[1]["groups"]
    return [text for row in rows if row["key"] == "42" for text in row["flaws"]]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long  # RabbitMQ reports policies with its statistics
async def test_a_policy_that_shortens_a_limit_is_reported(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"pattern": "^core-req-", "definition": {"message-ttl": 30_000}, "apply-to": "queues"}
    testbed.rabbit.api("PUT", f"/policies/{quote(testbed.rabbit.vhost, safe='')}/short", body)
    manager = await testbed.active()
    assert await answering_worker(await testbed.client())  # the queue is used nevertheless
    flaw = (
        "the queue core-req-42 has 30000 (by the policy in force, message-ttl)"
        " where limits.message_ttl asks for 600000"
    )

    async def reported() -> bool:
        return await flaws(testbed, manager.url) == [flaw]

    await eventually(reported, "the flaw")
    assert caplog.text.count(flaw) == 1


@pytest.mark.e2e
@pytest.mark.slow
async def test_a_queue_that_loses_requests_is_reported_and_not_bound(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    place = f"/queues/{quote(testbed.rabbit.vhost, safe='')}/core-req-42"
    testbed.rabbit.api("PUT", place, {"durable": True})
    manager = await testbed.active()
    client = await testbed.client()
    call = asyncio.ensure_future(answering_worker(client))

    async def reported() -> bool:
        return len(await flaws(testbed, manager.url)) >= 3

    await eventually(reported, "the flaws")
    assert "the queue core-req-42 is of type 'classic'" in caplog.text
    assert "the dead letter exchange None" in caplog.text
    assert "limits.delivery_limit" in caplog.text
    assert not call.done()  # it waits as an orphan
    testbed.rabbit.delete_queue("core-req-42")
    assert await call
    await until(lambda: testbed.rabbit.queue("core-req-42") is not None, "its queue")


@pytest.mark.e2e
@pytest.mark.slow
async def test_an_unreachable_management_api_is_named_and_delays_no_request(
    testbed: RabbitTestbed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    config = testbed.config(limits=Limits(message_ttl_s=30.0))
    off = "http://guest:guest@127.0.0.1:1"
    section = config.rabbitmq.__class__(config.rabbitmq.url, off)
    await testbed.active(testbed.config(rabbitmq=section))
    assert await answering_worker(await testbed.client())
    assert "cannot verify the queue of '42': rabbitmq.management_url" in caplog.text
