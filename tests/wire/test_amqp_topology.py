"""Names of exchanges and queues, for any routing key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite.errors import ConfigurationError
from requite.protocols.amqp.topology import (
    Pool,
    RequestQueueLimits,
    check_queue,
)


def test_names_match_the_specification() -> None:
    pool = Pool("core")

    assert [exchange.name for exchange in pool.exchanges()] == [
        "core-orphan-xchg",
        "core-dl-xchg",
        "core-activity-xchg",
        "core-control-xchg",
        "core-drain-xchg",
        "core-req-xchg",
    ]
    names = ["core-orphan", "core-dl", "core-activity", "core-poison"]
    assert [queue.name for queue in pool.queues()] == names
    bounds = pool.queues()[2].arguments
    assert (bounds["x-max-length"], bounds["x-message-ttl"]) == (10_000, 60_000)
    assert pool.request_queue("42") == "core-req-42"
    assert pool.exchanges()[-1].kind == "direct"
    assert pool.exchanges()[-1].arguments == {"alternate-exchange": "core-orphan-xchg"}


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        ("", "core-req-"),
        ("a/b", "core-req-a%2Fb"),
        ("100%", "core-req-100%25"),
        ("infra=42,timetable=24", "core-req-infra%3D42%2Ctimetable%3D24"),
        ("Köln", "core-req-K%C3%B6ln"),
        ("\0\n", "core-req-%00%0A"),
    ],
)
def test_queue_names_contain_the_encoded_key(key: str, queue: str) -> None:
    assert Pool("core").request_queue(key) == queue


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_the_key_can_be_decoded_from_a_queue_name(key: str) -> None:
    pool = Pool("core")
    try:
        queue = pool.request_queue(key)
    except ConfigurationError:
        assert len(key.encode()) > 80
        return
    assert queue.isascii()
    assert pool.key_of(queue) == key


def test_other_queues_have_no_key() -> None:
    pool = Pool("core")
    for name in ("core-dl", "other-req-1", "core-req-%FF"):
        assert pool.key_of(name) is None


def test_request_queues_are_declared_with_a_dead_letter_exchange() -> None:
    queue = Pool("core").request_queue_to_declare("1", RequestQueueLimits(3, 60.0, 1000))

    assert queue.arguments == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "core-dl-xchg",
        "x-delivery-limit": 3,
        "x-message-ttl": 60_000,
        "x-max-length": 1000,
    }


@pytest.mark.parametrize(
    ("name", "why"), [("", "pool=NAME"), ("p" * 300, "pool=...")], ids=["empty", "long"]
)
def test_invalid_pool_names_are_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Pool(name)


def test_invalid_keys_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"key=\.\.\..*in AMQP is 255"):
        Pool("core").check_key("k" * 300)
    with pytest.raises(ConfigurationError, match=r"key=\.\.\."):
        Pool("core").request_queue("/" * 100)
    with pytest.raises(ConfigurationError, match="NUL"):
        Pool("core").check_key("a\0")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        Pool("core").check_key("\ud800")


@pytest.mark.parametrize("name", ["", "amq.mine", "q" * 256, "\ud800", "a\nb", "a\r"])
def test_invalid_queue_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        check_queue(name)
