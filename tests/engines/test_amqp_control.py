"""What reaches workers of pools beside requests, drains, and what names a call all the way: its
trace."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pamqp import commands
from tests.engines.test_amqp_caller import ORIGIN, caller
from tests.engines.test_amqp_responder import Side, servant, worker
from tests.support.amqp_engines import SIDE, CallerSide

from requite.chronicle import Chronicle
from requite.engine import CancelHandler, Finished, PeerLost, Produced, Stopped
from requite.protocols.amqp import methods
from requite.protocols.amqp.caller import AmqpCaller
from requite.protocols.amqp.reports import ACTIVITY
from requite.protocols.amqp.wire import concerns, traceparent_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # the example of the W3C's text


# --- drains ---------------------------------------------------------------------------------------
def drain(rabbit: Side, **whom: Any) -> None:
    """Send a drain; `x_key` and `x_worker_id` select workers."""
    named = {name.replace("_", "-"): value for name, value in whom.items()}
    rabbit.deliver(b"", channel=SIDE, headers={"x-control": "drain", **named})


@pytest.mark.parametrize(
    "whom", [{}, {"x_key": "a/b"}, {"x_worker_id": "w1"}, {"x_key": "a/b", "x_worker_id": "w1"}]
)
def test_a_worker_that_is_told_to_drain_finishes_what_it_has_and_ends(whom: Any) -> None:
    rabbit = worker()
    rabbit.consume()
    job, _ = rabbit.request()
    drain(rabbit, **whom)
    assert "BASIC_CANCEL" in rabbit.sent(methods.channel(1))  # it takes nothing new
    [(_, _, report, _)] = rabbit.published(ACTIVITY)
    assert report.headers["x-event"] == "stopping"
    assert not any(isinstance(each, CancelHandler) for each in rabbit.effects)

    rabbit.say(commands.Basic.CancelOk("requests"))
    rabbit.feed(Finished(job, [b"done"]))
    assert rabbit.answer()[1] == b"done"
    rabbit.say(commands.Basic.Ack(1))
    assert rabbit.raw("BASIC_ACK") == [methods.ack(1)]
    assert rabbit.effects[-1] == Stopped()


@pytest.mark.parametrize(
    "whom",
    [
        {"x_key": "a"},
        {"x_worker_id": "w2"},
        {"x_key": "a/b", "x_worker_id": "w2"},
        {"x_key": "a", "x_worker_id": "w1"},
        {"x_key": 5},
        {"x_worker_id": None},
    ],
)
def test_a_drain_of_others_is_none_of_its_business(whom: Any) -> None:
    rabbit = worker()
    rabbit.consume()
    drain(rabbit, **whom)
    assert not rabbit.effects
    assert not rabbit.engine.snapshot().draining


def test_a_worker_without_a_pool_has_nobody_who_may_drain_it() -> None:
    rabbit = servant()
    rabbit.consume()
    drain(rabbit)
    assert not rabbit.effects


def test_a_drain_that_is_repeated_changes_nothing() -> None:
    rabbit = worker()
    rabbit.consume()
    rabbit.request()
    drain(rabbit)
    drain(rabbit, x_key="a/b")
    assert not rabbit.effects


def test_what_a_control_message_does_not_name_means_all() -> None:
    assert concerns({}, "k", "w")
    assert concerns({"x-key": ""}, "", "w")
    assert not concerns({"x-key": ""}, "k", "w")


# --- traces ---------------------------------------------------------------------------------------
def trace(rabbit: CallerSide) -> str:
    """Return the traceparent of the one request that was published last."""
    [(_, _, asked, _)] = rabbit.published()
    return str(asked.headers["traceparent"])


def test_each_call_begins_a_trace_which_its_tries_share() -> None:
    rabbit = caller()
    rabbit.get_ready()
    rabbit.submit("a")
    first = trace(rabbit)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-00", first)
    rabbit.feed(PeerLost(rabbit.peer, "reset"))
    rabbit.get_ready()
    assert trace(rabbit) == first
    rabbit.submit("b")
    ids = first.split("-"), trace(rabbit).split("-")
    assert ids[0][1] != ids[1][1]
    assert ids[0][2] != ids[1][2]


def test_a_trace_that_a_journal_tells_of_is_sampled() -> None:
    chronicle = Chronicle()
    rabbit = CallerSide(AmqpCaller(origin=ORIGIN, chronicle=chronicle))
    rabbit.get_ready()
    rabbit.submit("a")
    assert trace(rabbit).endswith("-01")


def test_clients_begin_traces_of_different_names() -> None:
    seen = set()
    for number in range(20):
        rabbit = CallerSide(AmqpCaller(origin=bytes([number]) * 8))
        rabbit.get_ready()
        rabbit.submit("a")
        seen.add(trace(rabbit))
    assert len(seen) == 20


def test_handlers_replies_and_reports_have_the_trace_of_their_request() -> None:
    rabbit = worker()
    rabbit.consume()
    rabbit.deliver(b"", reply_to="replies", correlation_id="c", headers={"traceparent": TRACE})
    [(job, request)] = rabbit.delivered()
    assert request.traceparent == TRACE
    [(_, _, report, _)] = rabbit.published(ACTIVITY)
    assert (report.headers["x-event"], report.headers["traceparent"]) == (
        "request-received",
        TRACE,
    )
    rabbit.feed(Produced(job, [b"part"]))
    assert rabbit.answer()[0]["traceparent"] == TRACE
    rabbit.feed(Finished(job, [b"done"]))
    assert rabbit.answer()[0]["traceparent"] == TRACE


@pytest.mark.parametrize("headers", [{}, {"traceparent": 5}, {"traceparent": None}])
def test_without_a_trace_there_is_none(headers: dict[str, Any]) -> None:
    assert traceparent_of(headers) == ""
    rabbit = worker()
    rabbit.consume()
    rabbit.deliver(b"", reply_to="replies", correlation_id="c", headers=headers)
    [(_, request)] = rabbit.delivered()
    assert request.traceparent == ""
    [(_, _, report, _)] = rabbit.published(ACTIVITY)
    assert "traceparent" not in report.headers
