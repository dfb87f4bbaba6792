"""The public properties of `Reply`, `Partial`, `Request`, inputs and effects."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from math import inf
from typing import Any

import pytest
from tests.support.builds import pure_only

import requite.engine
from requite.engine import Deliver, Received, Send, Submit, Wake
from requite.request import Partial, Reply, Request, Status


# --- values of the API ----------------------------------------------------------------------------
def test_a_reply_is_a_tuple() -> None:
    reply = Reply((b"a", b"b"), Status.OK, 2, 0.5)
    frames, status, attempts, elapsed = reply
    assert (frames, status, attempts, elapsed) == ((b"a", b"b"), 0, 2, 0.5)
    assert reply[2] == 2
    assert reply == Reply((b"a", b"b"), attempts=2, elapsed=0.5)
    assert reply != reply._replace(attempts=3)
    assert reply._replace(frames=(b"c",)).body == b"c"
    assert reply.body == b"ab"


def test_partials_are_values() -> None:
    partial = Partial((b"a",), 3)
    assert partial == Partial((b"a",), 3)
    assert partial != Partial((b"a",), 4)
    assert dataclasses.replace(partial, index=4) == Partial((b"a",), 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        partial.index = 5  # type: ignore[misc]


@pytest.mark.parametrize("value", [Reply((b"a",), elapsed=0.5), Partial((b"a",), 3)])
def test_values_can_be_hashed_copied_and_pickled(value: Any) -> None:
    assert {value: 1}[pickle.loads(pickle.dumps(value))] == 1
    assert copy.deepcopy(value) == value
    assert type(pickle.loads(pickle.dumps(value))) is type(value)


def test_requests_are_compared_by_identity() -> None:
    request = Request("echo", (b"a", b"b"), 2, 1.5, b"key")
    assert {request: 1}[request] == 1
    assert request != Request("echo", (b"a", b"b"), 2, 1.5, b"key")
    again = pickle.loads(pickle.dumps(request))
    assert (again.service, again.body, again.attempt) == ("echo", b"ab", 2)
    assert (again.remaining_s, again.idempotency_key) == (1.5, b"key")
    assert dataclasses.replace(request, service="other").body == b"ab"


# --- inputs and effects of engines ----------------------------------------------------------------
KINDS = [
    kind
    for kind in vars(requite.engine).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    if kind.__module__ == requite.engine.__name__
]


@pytest.mark.parametrize("kind", KINDS)
@pure_only("the test gives fields values of other types, and asks for `__final__`")
def test_inputs_and_effects_are_slotted_and_final(kind: Any) -> None:
    values = list(range(len(dataclasses.fields(kind))))
    event = kind(*values)
    assert event == kind(*values)
    assert not hasattr(event, "__dict__")
    assert kind.__final__
    assert pickle.loads(pickle.dumps(event)) == event


def test_the_list_of_kinds_is_complete() -> None:
    assert {Submit, Received, Wake, Send, Deliver} <= set(KINDS)
    assert len(KINDS) > 20
    assert Submit("t", "s", (b"",), inf) == Submit("t", "s", (b"",), inf, True, b"", False)
