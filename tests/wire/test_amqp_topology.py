"""Names of exchanges and queues, for any key."""

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


def test_names_are_those_of_the_document() -> None:
    pool = Pool("core")

    assert [exchange.name for exchange in pool.exchanges()] == [
        "core-orphan-xchg",
        "core-dl-xchg",
        "core-activity-xchg",
        "core-control-xchg",
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
def test_keys_are_encoded_in_names(key: str, queue: str) -> None:
    assert Pool("core").request_queue(key) == queue


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_name_gives_its_key_back(key: str) -> None:
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


def test_request_queues_dead_letter_by_themselves() -> None:
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
def test_names_that_no_pool_can_have(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Pool(name)


def test_keys_that_no_group_can_have() -> None:
    with pytest.raises(ConfigurationError, match=r"key=\.\.\..*in AMQP is 255"):
        Pool("core").check_key("k" * 300)
    with pytest.raises(ConfigurationError, match=r"key=\.\.\."):
        Pool("core").request_queue("/" * 100)
    with pytest.raises(ConfigurationError, match="NUL"):
        Pool("core").check_key("a\0")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        Pool("core").check_key("\ud800")


@pytest.mark.parametrize("name", ["", "amq.mine", "q" * 256, "\ud800", "a\nb", "a\r"])
def test_names_that_no_queue_can_have(name: str) -> None:
    with pytest.raises(ConfigurationError):
        check_queue(name)
