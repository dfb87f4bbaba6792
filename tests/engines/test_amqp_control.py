"""Control messages of RPC over AMQP: which ones a worker obeys, and the cancels that it stores."""

from __future__ import annotations

from typing import Any

import pytest

from requite.engine import Drain
from requite.protocols.amqp import wire
from requite.protocols.amqp.assignment import Assignment, pool_assignment, service_assignment
from requite.protocols.amqp.control import Cancels, read_control
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.protocols.amqp.topology import Pool
from requite.protocols.amqp.wire import Control

ALONE = service_assignment("echo", "w1")
DRAINS = "core-drain-xchg"
OF_POOL = pool_assignment(Pool("core"), "42", "w1")


def header(**headers: Any) -> bytes:
    """Return the content header of a control message."""
    named = {getattr(wire, name): value for name, value in headers.items()}
    properties = Properties(message_id="m", correlation_id="c", headers=named)
    return encode_properties(properties, 0)


@pytest.mark.parametrize("assignment", [ALONE, OF_POOL])
def test_a_cancel_names_its_request(assignment: Assignment) -> None:
    exchange = assignment.control_exchange
    assert read_control(header(CONTROL=Control.CANCEL), exchange, assignment) == ("m", "c")


@pytest.mark.parametrize(
    ("headers", "applies"),
    [
        ({}, True),
        ({"KEY": "42"}, True),
        ({"KEY": "42", "WORKER_ID": "w1"}, True),
        ({"KEY": "43"}, False),
        ({"KEY": "42", "WORKER_ID": "w2"}, False),
    ],
)
def test_a_drain_applies_to_the_workers_that_it_names(
    headers: dict[str, str], applies: bool
) -> None:
    found = read_control(header(CONTROL=Control.DRAIN, **headers), DRAINS, OF_POOL)
    assert found == (Drain() if applies else None)


@pytest.mark.parametrize("exchange", ["core-control-xchg", "", "core-drain-xchg2"])
def test_a_drain_over_another_exchange_is_ignored(exchange: str) -> None:
    """Callers may write to the exchange of cancels, and to any queue over the default exchange."""
    assert read_control(header(CONTROL=Control.DRAIN), exchange, OF_POOL) is None


@pytest.mark.parametrize("exchange", ["requite-control-xchg", ""])
def test_a_worker_without_a_pool_ignores_drains(exchange: str) -> None:
    assert read_control(header(CONTROL=Control.DRAIN), exchange, ALONE) is None


@pytest.mark.parametrize("content", [header(), header(CONTROL="dance"), b"\0\x3cnot a header"])
def test_other_control_messages_are_ignored(content: bytes) -> None:
    assert read_control(content, DRAINS, OF_POOL) is None


def test_the_oldest_cancel_is_dropped_if_there_are_too_many() -> None:
    cancels = Cancels(2)
    for name in (("1", ""), ("2", ""), ("1", ""), ("3", "")):
        cancels.add(name)
    assert len(cancels) == 2
    assert ("1", "") not in cancels
    assert ("2", "") in cancels
    assert ("3", "") in cancels
