"""Trace contexts at the engines of Majordomo (docs/protocols/mdp-0.3.md, [trace])."""

from __future__ import annotations

import random

from tests.spec.requirement import requirement
from tests.support.broker import BrokerBench

from requite.engine import PeerJoined, PeerLost, Received, Send, Submit, Wake
from requite.principal import Principal, Rights
from requite.protocols.majordomo.client import client_engine
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.jobs import WorkerPolicy
from requite.protocols.majordomo.wire import FEATURES, ClientRequest, WorkerRequest
from requite.protocols.majordomo.worker import MajordomoWorker
from requite.trace_context import decode_traceparent, encode_traceparent

SAMPLED = decode_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
NOT_SAMPLED = SAMPLED[:-1] + b"\0"
MDP_03 = by_version("0.3")


def ask(bench: BrokerBench, request_id: int, trace: bytes) -> None:
    request = ClientRequest(b"echo", [b"x"], request_id, trace=trace)
    bench.feed(Received("c", [MDP_03.encode(request)]))


@requirement("mdp03:trace")
def test_a_broker_forwards_a_trace_in_every_attempt() -> None:
    bench = BrokerBench()
    bench.worker("a")
    bench.client("c")
    ask(bench, 1, SAMPLED)
    bench.worker("b")
    bench.lose("a")
    assert [bench.requests(worker)[0].trace for worker in "ab"] == [SAMPLED, SAMPLED]
    assert bench.requests("b")[0].attempt == 2


@requirement("mdp03:trace")
def test_a_trace_travels_with_the_principal() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("c", principal=Principal("shop", Rights(call=("echo",))))
    ask(bench, 1, NOT_SAMPLED)
    assert (bench.requests("w")[0].principal, bench.requests("w")[0].trace) == (
        b"shop",
        NOT_SAMPLED,
    )


@requirement("mdp03:features")
@requirement("mdp03:trace")
def test_a_worker_that_does_not_know_traces_gets_none() -> None:
    bench = BrokerBench()
    bench.worker("w", features=("denied", "principals"))
    bench.client("c")
    ask(bench, 1, SAMPLED)
    assert bench.requests("w")[0].trace == b""


@requirement("mdp03:trace")
def test_an_invalid_trace_counts_as_none() -> None:
    bench = BrokerBench()
    bench.worker("w")
    bench.client("c")
    ask(bench, 1, bytes(16) + SAMPLED[16:])
    assert bench.requests("w")[0].trace == b""
    assert "c" not in bench.disconnected


def test_a_broker_makes_notes_of_sampled_traces_only_and_only_if_told_to() -> None:
    for notes_traces, expected in ((False, []), (True, ["accepted", "dispatched", "answered"])):
        bench = BrokerBench(notes=False, notes_traces=notes_traces)
        bench.worker("w", capacity=3)
        bench.client("c")
        ask(bench, 1, SAMPLED)
        ask(bench, 2, NOT_SAMPLED)
        ask(bench, 3, b"")
        for nth in range(3):
            bench.final("w", nth=nth)
        assert [note.kind for note in bench.notes] == expected
        assert all(note.facts["trace"] == SAMPLED for note in bench.notes)


def client_and_requests(features: tuple[str, ...]) -> list[ClientRequest]:
    """Return the requests that a client sends over two connections, the first of which it loses."""
    engine = client_engine(MDP_03, rng=random.Random(1).random, first_sequence=1)
    effects = list(engine.handle([Submit("t", "echo", [b"x"], 9.0, trace=SAMPLED)], 0.0))
    effects += engine.handle([PeerJoined("p", features=frozenset(features))], 0.1)
    effects += engine.handle([PeerLost("p", "reset")], 0.2)
    effects += engine.handle([Wake()], 2.0)
    effects += engine.handle([PeerJoined("q", features=frozenset(features))], 2.1)
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    decoded = [MDP_03.decode_from_client(list(message)) for message in sent]
    return [command for command in decoded if isinstance(command, ClientRequest)]


@requirement("mdp03:trace")
def test_a_client_sends_the_same_trace_with_all_attempts() -> None:
    assert [each.trace for each in client_and_requests(FEATURES)] == [SAMPLED, SAMPLED]


@requirement("mdp03:features")
def test_a_client_sends_no_trace_to_a_broker_that_does_not_know_them() -> None:
    assert [each.trace for each in client_and_requests(())] == [b"", b""]


@requirement("mdp03:trace")
def test_a_worker_hands_the_trace_to_the_handler() -> None:
    worker = MajordomoWorker(MDP_03, "echo", WorkerPolicy(), rng=random.Random(1).random)
    worker.handle([Wake()], 0.0)
    worker.handle([PeerJoined("p")], 0.0)
    request = WorkerRequest(b"", [b"x"], 7, trace=SAMPLED)
    [delivered] = worker.handle([Received("p", [MDP_03.encode(request)])], 0.1)
    assert delivered.what.traceparent == encode_traceparent(SAMPLED)
