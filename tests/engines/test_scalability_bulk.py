"""The SP engines give the same effects for batches of inputs as for single inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sp_engines import tag, way

from requite.engine import (
    Cancel,
    CancelHandler,
    Deliver,
    DeliverAll,
    Effect,
    Finished,
    Input,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Produced,
    Received,
    Send,
    SendAll,
    Submit,
    Wake,
)
from requite.errors import LocalViolation
from requite.protocols.scalability.policy import RepPolicy, ReqPolicy
from requite.protocols.scalability.rep import ScalabilityWorker
from requite.protocols.scalability.req import ScalabilityClient
from requite.request import RetryPolicy, Status

PEERS = ["a", "b", "c"]


def by_receiver(effects: Iterable[Effect], names: dict[Any, Any]) -> dict[Any, list[Any]]:
    """Group effects by receiver, in order. Receivers without effects are omitted."""
    grouped: dict[Any, list[Any]] = defaultdict(list)
    for effect in effects:
        match effect:
            case Send(peer, message):
                grouped["to", peer].append(b"".join(message))
            case SendAll(peer, messages):
                grouped["to", peer] += [b"".join(message) for message in messages]
            case Deliver(token, what):
                grouped["user"].append((names.setdefault(token, len(names)), what.body))
            case DeliverAll(pairs):
                grouped["user"] += [
                    (names.setdefault(token, len(names)), what.body) for token, what in pairs
                ]
            case _:
                grouped["other"].append((type(effect), getattr(effect, "token", None)))
    return {receiver: things for receiver, things in grouped.items() if things}


# --- the client -----------------------------------------------------------------------------------
CLIENT_EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from([5.0, 0.0]), st.booleans()),
    st.tuples(st.just("submit"), st.just(9.0), st.just(True)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("answer"), st.sampled_from(PEERS), st.lists(st.integers(-1, 20), max_size=4)),
)
BACK_PRESSURE = st.one_of(
    st.none(),
    st.tuples(st.sampled_from([PeerBlocked, PeerWritable]), st.sampled_from(PEERS)),
)


@given(st.lists(st.tuples(st.lists(CLIENT_EVENTS, max_size=8), BACK_PRESSURE), max_size=8))
def test_a_client_handles_batches_like_single_inputs(turns: list[Any]) -> None:
    one_by_one, in_bulk = (ScalabilityClient(ReqPolicy(slots=6), first_id=3) for _ in range(2))
    for engine in (one_by_one, in_bulk):
        for peer in PEERS:
            engine.handle([PeerJoined(peer)], 0.0)
    tokens = 0
    for events, back_pressure in turns:
        inputs: list[Input] = []
        for event in events:
            match event:
                case ("submit", deadline, idempotent):
                    body = b"%d" % tokens
                    inputs.append(Submit(tokens, "echo", (body,), deadline, idempotent))
                    tokens += 1
                case ("cancel", token):
                    inputs.append(Cancel(token))
                case ("answer", peer, ids):
                    replies = [[tag(3 + n) + b"re %d" % n] for n in ids]
                    inputs.append(Received(peer, replies))
        singly = [effect for each in inputs for effect in one_by_one.handle([each], 1.0)]
        at_once = list(in_bulk.handle(inputs, 1.0))
        assert by_receiver(at_once, {}) == by_receiver(singly, {})
        if back_pressure is not None:
            kind, peer = back_pressure
            both = [list(each.handle([kind(peer)], 1.0)) for each in (one_by_one, in_bulk)]
            assert by_receiver(both[0], {}) == by_receiver(both[1], {})
        assert in_bulk.snapshot() == one_by_one.snapshot()
        assert in_bulk.deadline() == one_by_one.deadline()


def test_messages_to_one_peer_are_one_effect() -> None:
    client = ScalabilityClient(first_id=3)
    client.handle([PeerJoined("a")], 0.0)
    calls = [Submit(token, "", (b"x",), 9.0) for token in range(3)]
    (sent,) = client.handle(calls, 0.0)
    assert isinstance(sent, SendAll)
    assert [b"".join(message) for message in sent.messages] == [tag(3 + n) + b"x" for n in range(3)]
    (delivered,) = client.handle([Received("a", [[tag(3)], [tag(4) + b"y"]])], 0.0)
    assert isinstance(delivered, DeliverAll)
    assert [(token, reply.body) for token, reply in delivered.pairs] == [(0, b""), (1, b"y")]


def test_an_invalid_call_in_a_batch_does_not_affect_the_others() -> None:
    client = ScalabilityClient(first_id=3)
    client.handle([PeerJoined("a")], 0.0)
    calls = [Submit(token, "", (b"x",), 9.0) for token in (1, 2, 1, 3)]
    with pytest.raises(LocalViolation):
        client.handle(calls, 0.0)
    assert client.snapshot().sent == 3
    sent = list(client.handle([Submit(4, "", (b"x",), 9.0)], 0.0))
    assert [type(effect) for effect in sent] == [SendAll, Send, Send]
    assert len(sent[0].messages) == 2


# --- the worker -----------------------------------------------------------------------------------
WORKER_EVENTS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(PEERS), st.lists(st.integers(0, 3), max_size=5)),
    st.tuples(st.just("finish"), st.integers(0, 9), st.sampled_from(list(Status)[:2])),
    st.tuples(st.just("produce"), st.integers(0, 9)),
)


class Worker:
    """A worker, and the jobs that it has delivered."""

    def __init__(self) -> None:
        policy = RepPolicy(capacity=3, hops=3, queue_max=4, backlog_size_max=20)
        self.engine = ScalabilityWorker(policy, first_id=1)
        self.names: dict[Any, Any] = {}
        for peer in PEERS:
            self.engine.handle([PeerJoined(peer)], 0.0)

    def inputs(self, events: list[Any], bodies: list[bytes]) -> list[Input]:
        """Return the inputs of events, which refer to the jobs delivered so far."""
        jobs = list(self.names)
        inputs: list[Input] = []
        for event in events:
            match event:
                case ("ask", peer, depths):
                    stacks = [way(*range(depth)) + tag(7) for depth in depths]
                    inputs.append(Received(peer, [[stack + bodies.pop()] for stack in stacks]))
                case ("finish", n, status) if n < len(jobs):
                    inputs.append(Finished(jobs[n], (b"done",), status))
                case ("produce", n) if n < len(jobs):
                    inputs.append(Produced(jobs[n], (b"part ",)))
        return inputs


@given(st.lists(st.tuples(st.lists(WORKER_EVENTS, max_size=8), BACK_PRESSURE), max_size=8))
def test_a_worker_handles_batches_like_single_inputs(turns: list[Any]) -> None:
    one_by_one, in_bulk = Worker(), Worker()
    for events, back_pressure in turns:
        bodies = [b"%d" % n for n in range(100)]
        singly = [
            effect
            for each in one_by_one.inputs(events, list(bodies))
            for effect in one_by_one.engine.handle([each], 1.0)
        ]
        at_once = in_bulk.engine.handle(in_bulk.inputs(events, list(bodies)), 1.0)
        assert by_receiver_of(at_once, in_bulk) == by_receiver_of(singly, one_by_one)
        if back_pressure is not None:
            kind, peer = back_pressure
            both = [(list(w.engine.handle([kind(peer)], 1.0)), w) for w in (one_by_one, in_bulk)]
            assert by_receiver_of(*both[0]) == by_receiver_of(*both[1])
        assert in_bulk.engine.snapshot() == one_by_one.engine.snapshot()


def by_receiver_of(effects: Iterable[Effect], worker: Worker) -> dict[Any, list[Any]]:
    """Group effects as `by_receiver` does, with jobs numbered in order of delivery."""
    groups = by_receiver(effects, worker.names)
    groups["other"] = [(kind, worker.names.get(token)) for kind, token in groups.get("other", [])]
    return groups


def test_a_request_is_delivered_before_it_is_cancelled() -> None:
    worker = ScalabilityWorker(first_id=1)
    worker.handle([PeerJoined("a")], 0.0)
    effects = worker.handle([Received("a", [[tag(3) + b"x"]]), PeerLost("a")], 0.0)
    assert [type(effect) for effect in effects] == [Deliver, CancelHandler]


def test_a_resent_request_follows_earlier_messages() -> None:
    client = ScalabilityClient(ReqPolicy(retry=RetryPolicy(attempt_timeout=1.0)), first_id=3)
    client.handle([PeerJoined("a"), Submit(1, "", (b"old",), 9.0)], 0.0)
    effects = client.handle([Submit(2, "", (b"new",), 9.0), Wake()], 2.0)
    assert by_receiver(effects, {}) == {("to", "a"): [tag(4) + b"new", tag(3) + b"old"]}
