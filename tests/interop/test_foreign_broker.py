"""Requite's clients and workers of MDP 0.1 and 0.2 with a broker written on pyzmq."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from tests.support.live import InBackground, Live, eventually
from tests.support.zmq_broker import INTERVAL_S, HandBroker
from tests.support.zmq_peers import RFC7, RFC18, Rfc, Sockets

import requite
from requite.core.liveness import HeartbeatPolicy

pytestmark = pytest.mark.interop

HEARTBEAT = HeartbeatPolicy(interval_s=INTERVAL_S, liveness=3)
# Limit for a disconnected worker to register again; it backs off before it reconnects.
BACK_S = 30.0

MakeForeign = Callable[..., HandBroker]


@requite.service("echo")
async def echo(request: requite.Request) -> Sequence[bytes]:
    """Return the frames of the request."""
    return request.frames


@requite.service("parts")
async def parts(request: requite.Request):  # type: ignore[no-untyped-def]
    """Yield two partial replies, and an empty final one."""
    yield b"one"
    yield request.body


@requite.service("fails")
async def fails(request: requite.Request) -> bytes:
    """Fail every request."""
    raise requite.RemoteFailure("out of paper")


@pytest.fixture(params=[RFC7, RFC18], ids=["0.1", "0.2"])
def rfc(request: pytest.FixtureRequest) -> Rfc:
    """The dialect of all peers."""
    rfc: Rfc = request.param
    return rfc


@pytest.fixture
def make_foreign(sockets: Sockets) -> Iterator[MakeForeign]:
    """A function that makes foreign brokers. The fixture stops them after the test."""
    made: list[HandBroker] = []

    def make(*arguments: object) -> HandBroker:
        made.append(HandBroker(sockets, *arguments))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def foreign(make_foreign: MakeForeign, rfc: Rfc) -> HandBroker:
    """A foreign broker."""
    return make_foreign(rfc)


def serve(broker: HandBroker, workers: list[Live], *services: requite.worker.Service) -> Live:
    """Start a requite worker, and wait until it has registered."""
    known = len(broker.said("ready"))
    worker = Live(
        requite.Worker(
            broker.url,
            *(services or [echo]),
            dialect=broker.rfc.version,
            heartbeat=HEARTBEAT,
        )
    )
    workers.append(worker)
    eventually(lambda: len(broker.said("ready")) > known, "the worker says READY")
    return worker


def client(broker: HandBroker, **settings: object) -> requite.Client:
    """Return a requite client."""
    settings = {"dialect": broker.rfc.version, "timeout": 20.0} | settings
    return requite.Client(f"{broker.url}/echo", **settings)  # type: ignore[arg-type]


# --- requests and replies -------------------------------------------------------------------------
@pytest.mark.parametrize("body", [[b"x"], [b""], [b"a", b"", b"c"], [bytes(1 << 20)]], ids=len)
def test_client_and_worker_understand_the_broker(
    body: list[bytes], foreign: HandBroker, workers: list[Live]
) -> None:
    serve(foreign, workers)
    with client(foreign) as caller:
        for _ in range(3):
            assert caller.call(body).frames == body


def test_the_broker_sees_the_frames_of_the_rfc(foreign: HandBroker, workers: list[Live]) -> None:
    """`HandBroker` fails on invalid frames; this test checks their order."""
    worker = serve(foreign, workers)
    with client(foreign) as caller:
        caller.call([b"a", b"b"])
    worker.drain()
    eventually(lambda: foreign.said("disconnect"), "a drained worker says DISCONNECT")
    [(caller_address, request)] = foreign.said("client_request")
    assert request == [b"echo", b"a", b"b"]
    [(worker_address, ready)] = foreign.said("ready")
    assert ready == [b"echo"]
    assert foreign.said("worker_final") == [(worker_address, [caller_address, b"", b"a", b"b"])]
    assert foreign.said("disconnect") == [(worker_address, [])]


def test_many_calls_at_a_time_are_not_mixed_up(foreign: HandBroker, workers: list[Live]) -> None:
    """These dialects have no request ids, so each call in flight has its own connection."""
    for _ in range(3):
        serve(foreign, workers)
    bodies = [b"%d" % number for number in range(200)]
    with client(foreign, connections=8) as caller:
        assert [reply.body for reply in caller.map(bodies, concurrency=16)] == bodies
    assert 1 < len({who for who, _ in foreign.said("client_request")}) <= 8


async def test_the_client_for_event_loops(foreign: HandBroker, workers: list[Live]) -> None:
    serve(foreign, workers)
    async with requite.AsyncClient(f"{foreign.url}/echo", dialect=foreign.rfc.version) as caller:
        bodies = [b"%d" % number for number in range(50)]
        assert [reply.body async for reply in caller.map(bodies, concurrency=8)] == bodies


def test_partials_reach_the_client(make_foreign: MakeForeign, workers: list[Live]) -> None:
    broker = make_foreign(RFC18)
    serve(broker, workers, parts)
    with client(broker, service="parts") as caller:
        assert [each.body for each in caller.stream(b"two")] == [b"one", b"two", b""]
        assert caller.call(b"two").frames == [b"one", b"two", b""]


def test_partials_of_a_handler_are_joined_where_there_are_none(
    make_foreign: MakeForeign, workers: list[Live]
) -> None:
    broker = make_foreign(RFC7)
    serve(broker, workers, parts)
    with client(broker, service="parts") as caller:
        assert caller.call(b"two").frames == [b"one", b"two", b""]
        with pytest.raises(requite.ConfigurationError, match=r"0\.1 has no partial replies"):
            list(caller.stream(b"two"))


# --- liveness -------------------------------------------------------------------------------------
def test_the_worker_heartbeats(foreign: HandBroker, workers: list[Live]) -> None:
    serve(foreign, workers)
    eventually(lambda: len(foreign.said("heartbeat")) >= 5, "five heartbeats")
    assert len(foreign.said("ready")) == 1  # so the broker's heartbeats were received


def test_a_worker_of_a_silent_broker_starts_a_new_conversation(
    foreign: HandBroker, workers: list[Live]
) -> None:
    serve(foreign, workers)
    foreign.beats = False
    eventually(lambda: len(foreign.said("ready")) >= 2, "the worker registers again", BACK_S)
    foreign.beats = True
    addresses = [who for who, _ in foreign.said("ready")]
    assert len(set(addresses)) == len(addresses), "READY came twice on one connection"


def test_a_worker_that_is_sent_away_registers_on_a_new_connection(
    foreign: HandBroker, workers: list[Live]
) -> None:
    serve(foreign, workers)
    [(first, _)] = foreign.said("ready")
    foreign.send(first, *foreign.rfc.disconnect)
    eventually(lambda: len(foreign.said("ready")) == 2, "the worker registers again", BACK_S)
    second = foreign.said("ready")[1][0]
    assert second != first
    with client(foreign, retry=requite.RetryPolicy(attempt_timeout=1.5)) as caller:
        assert caller.call(b"x").body == b"x"


def test_a_worker_whose_handler_fails_leaves_like_one_that_crashed(
    foreign: HandBroker, workers: list[Live]
) -> None:
    """There is no negative reply. DISCONNECT lets the broker redeliver the request."""
    serve(foreign, workers, fails)
    with client(foreign, service="fails", timeout=1.0) as caller:
        with pytest.raises(requite.CallTimeout) as caught:
            caller.call(b"x")
        assert caught.value.may_have_executed
    eventually(lambda: foreign.said("disconnect"), "the worker says DISCONNECT")
    eventually(lambda: len(foreign.said("ready")) >= 2, "and registers again", BACK_S)
    assert not foreign.said("worker_final")


@pytest.mark.parametrize(
    "message",
    [(b"hello",), (b"", b""), (b"MDPW03\x05\x00\x00\x00\x64",), (b"MDPW02", b"\x63", b"x")],
    ids=["noise", "empty", "0.3", "unknown command"],
)
def test_a_worker_survives_a_broker_out_of_its_mind(
    message: tuple[bytes, ...], foreign: HandBroker, workers: list[Live]
) -> None:
    serve(foreign, workers)
    [(worker, _)] = foreign.said("ready")
    foreign.send(worker, *message)
    eventually(lambda: len(foreign.said("ready")) == 2, "the worker registers again", BACK_S)
    with client(foreign, retry=requite.RetryPolicy(attempt_timeout=1.5)) as caller:
        assert caller.call(b"x").body == b"x"


@pytest.mark.parametrize(
    "message",
    [(b"hello",), (b"", b""), (b"MDPC03\x03" + bytes(10), b"x"), (b"MDPC02", b"\x63", b"a", b"x")],
    ids=["noise", "empty", "0.3", "unknown command"],
)
def test_a_client_survives_a_broker_out_of_its_mind(
    message: tuple[bytes, ...], foreign: HandBroker, workers: list[Live]
) -> None:
    """The request in flight is retried over a new connection, and answered once."""

    def upset() -> None:
        [(address, _)] = eventually(lambda: foreign.said("client_request"), "the request")
        foreign.send(address, *message)
        eventually(lambda: len(foreign.said("client_request")) == 2, "it comes again")
        serve(foreign, workers)

    with client(foreign) as caller, InBackground(upset):
        assert caller.call(b"x").body == b"x"


# --- brokers that go and come back ----------------------------------------------------------------
def test_a_swallowed_request_is_sent_again_on_a_new_connection(
    foreign: HandBroker, workers: list[Live]
) -> None:
    """The ZeroMQ Guide's Lazy Pirate: without a reply in time, close, reconnect and retry."""
    serve(foreign, workers)
    foreign.swallow = 2
    with client(foreign, retry=requite.RetryPolicy(attempts=3, attempt_timeout=0.8)) as caller:
        reply = caller.call(b"x")
    assert (reply.body, reply.attempts) == (b"x", 3)
    addresses = [who for who, _ in foreign.said("client_request")]
    assert len(set(addresses)) == 3


def test_a_client_gives_up_after_its_attempts(foreign: HandBroker, workers: list[Live]) -> None:
    foreign.swallow = 100
    with client(foreign, retry=requite.RetryPolicy(attempts=3, attempt_timeout=0.5)) as caller:
        with pytest.raises(requite.CallTimeout, match=r"3 attempts of 0\.5 s") as caught:
            caller.call(b"x")
        assert caught.value.attempts == 3
        foreign.swallow = 0
        serve(foreign, workers)
        assert caller.call(b"y").body == b"y"


def test_a_late_reply_is_not_taken_for_that_of_the_next_request(
    foreign: HandBroker, workers: list[Live]
) -> None:
    foreign.swallow = 1
    policy = requite.RetryPolicy(attempts=1, attempt_timeout=0.8)
    with client(foreign, retry=policy) as caller:
        with pytest.raises(requite.CallTimeout):
            caller.call(b"first")
        [(address, _)] = foreign.said("client_request")
        foreign.send(address, *foreign.rfc.client_final, b"echo", b"late")
        serve(foreign, workers)
        assert caller.call(b"second", timeout=20.0).body == b"second"


def test_everybody_comes_back_to_a_broker_that_was_restarted(
    rfc: Rfc, make_foreign: MakeForeign, workers: list[Live]
) -> None:
    """A call in flight during the restart is retried, and answered once."""
    first = make_foreign(rfc)
    serve(first, workers)
    with client(first) as caller:
        assert caller.call(b"before").body == b"before"
        first.swallow = 1
        restarted: list[HandBroker] = []

        def restart() -> None:
            eventually(lambda: len(first.said("client_request")) == 2, "the request is out")
            first.stop()
            restarted.append(make_foreign(rfc, first.endpoint))

        with InBackground(restart):
            assert caller.call(b"during").body == b"during"
        assert caller.call(b"after").body == b"after"
    [again] = restarted
    assert [rest for _, rest in again.said("ready")] == [[b"echo"]]
    assert [rest[1] for _, rest in again.said("client_request")] == [b"during", b"after"]


def test_a_call_waits_for_a_broker_that_is_away(
    rfc: Rfc, make_foreign: MakeForeign, workers: list[Live]
) -> None:
    gone = make_foreign(rfc)
    gone.stop()
    with (
        client(gone) as caller,
        InBackground(lambda: serve(make_foreign(rfc, gone.endpoint), workers)),
    ):
        assert caller.call(b"x").body == b"x"


def test_a_call_says_when_there_was_nobody_to_send_it_to(
    rfc: Rfc, make_foreign: MakeForeign
) -> None:
    gone = make_foreign(rfc)
    gone.stop()
    with (
        client(gone, timeout=0.3) as caller,
        pytest.raises(requite.CallTimeout, match="never sent") as caught,
    ):
        caller.call(b"x")
    assert not caught.value.may_have_executed
    assert caught.value.attempts == 0
