"""Tests of both clients with a real broker and a real worker."""

from __future__ import annotations

import asyncio
import math
import socket
import tempfile
from time import monotonic
from typing import Any

import pytest
from tests.e2e.clients import Make, echo, make, served, serving
from tests.e2e.serving import BlockingMethods, ClientMethods, Serving, eventually
from tests.support.patience import failure

import requite
from requite.core.liveness import HeartbeatPolicy
from requite.errors import (
    CallTimeout,
    Cancelled,
    ConfigurationError,
    NoService,
    Overloaded,
    RemoteFailure,
    TransportError,
)
from requite.request import Partial, Reply, RetryPolicy, Status

__all__ = ["echo", "make", "served", "serving"]

pytestmark = pytest.mark.e2e

UNUSED_PORT = 1  # nothing listens at port 1 (tcpmux), and the system assigns it to no process


# --- call -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b"hello", [b"hello"]),
        (b"", [b""]),
        (bytearray(b"bytes"), [b"bytes"]),
        (memoryview(b"view"), [b"view"]),
        ([b"two", b"frames"], [b"two", b"frames"]),
        ((b"a", bytearray(b"b"), b""), [b"a", b"b", b""]),
        ([], [b""]),
        (b"x" * (1 << 20), [b"x" * (1 << 20)]),
    ],
    ids=["bytes", "empty", "bytearray", "memoryview", "list", "tuple", "no-frames", "1MiB"],
)
def test_a_call_gets_its_reply(echo: ClientMethods, body: Any, frames: list[bytes]) -> None:
    reply = echo.call(body)
    assert list(reply.frames) == frames
    assert reply.body == b"".join(frames)
    assert reply.status is Status.OK
    assert reply.attempts == 1
    assert 0 < reply.elapsed < 10


@pytest.mark.parametrize("body", ["text", ["text"], 7, None, {b"a"}, [b"a", 1]])
def test_a_body_that_is_not_bytes_is_refused(echo: ClientMethods, body: Any) -> None:
    with pytest.raises(TypeError, match="bytes"):
        echo.call(body)
    assert echo.call(b"still works").body == b"still works"


@pytest.mark.parametrize("timeout", [0, -1, math.nan, "soon"])
def test_an_invalid_timeout_is_refused(
    echo: ClientMethods, make: Make, served: Serving, timeout: Any
) -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        echo.call(b"x", timeout=timeout)
    with pytest.raises(ConfigurationError, match="timeout"):
        make(served.url("echo"), timeout=timeout)


def test_a_call_without_a_timeout_uses_the_clients(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=0.2)
    with pytest.raises(CallTimeout):
        client.call(b"x")
    served.handlers.gate.set()
    assert client.call(b"x", timeout=None).body == b"x"


def test_a_call_may_name_another_service(echo: ClientMethods) -> None:
    assert echo.call(b"12345", service="size").body == b"5"
    with pytest.raises(ConfigurationError, match="control characters"):
        echo.call(b"x", service="a\nb")
    with pytest.raises(ConfigurationError, match="service"):
        echo.call(b"x", service="x" * 256)


def test_a_client_without_a_service_raises_an_error_with_advice(
    make: Make, served: Serving
) -> None:
    client = make(served.url())
    with pytest.raises(ConfigurationError, match=r"mdp://host/echo.*service="):
        client.call(b"x")
    assert client.call(b"x", service="echo").body == b"x"
    assert make(served.url(), service="echo").call(b"y").body == b"y"


def test_options_reach_the_handler(echo: ClientMethods, served: Serving) -> None:
    echo.call(b"x", idempotency_key=b"order-17", timeout=5)
    seen = served.handlers.seen[-1]
    assert seen.idempotency_key == b"order-17"
    assert seen.attempt == 1
    assert seen.remaining_s is not None
    assert 4 < seen.remaining_s <= 5
    with pytest.raises(ConfigurationError, match="key"):
        echo.call(b"x", idempotency_key=b"x" * 256)


def test_a_body_over_the_limit_is_refused_by_the_client(make: Make, served: Serving) -> None:
    client = make(served.url("echo"), message_size_max=100)
    with pytest.raises(ConfigurationError, match="message_size_max"):
        client.call([b"x" * 60, b"x" * 41])
    assert client.call(b"x" * 80).body == b"x" * 80


def test_a_body_at_the_limit_is_accepted(make: Make, served: Serving) -> None:
    client = make(served.url("size"), timeout=20)
    size = 64 << 20  # also the limit of the broker and the worker
    reply = client.call(b"x" * size)
    assert (reply.body, reply.attempts) == (b"%d" % size, 1)


def test_a_body_of_too_many_frames_is_refused_by_the_client(echo: ClientMethods) -> None:
    with pytest.raises(ConfigurationError, match="1025 frames"):
        echo.call([b"x"] * 1025)
    reply = echo.call([b"x"] * 1024)
    assert (len(reply.frames), reply.attempts) == (1024, 1)


# --- failures -------------------------------------------------------------------------------------
def test_a_failing_handler_is_a_remote_failure(echo: ClientMethods) -> None:
    with pytest.raises(RemoteFailure, match="it cannot be so") as caught:
        echo.call(b"so", service="fail")
    assert caught.value.may_have_executed is True
    assert caught.value.attempts == 1


def test_calls_share_a_deadline(echo: ClientMethods) -> None:
    deadline = requite.deadline(1.5)
    assert echo.call(b"in time", timeout=deadline).body == b"in time"
    with pytest.raises(CallTimeout):
        echo.call(b"x", service="hold", timeout=deadline)
    with pytest.raises(CallTimeout, match="passed before it was made") as caught:
        echo.call(b"too late", timeout=deadline)
    assert not caught.value.may_have_executed


def test_a_stream_keeps_a_shared_deadline(echo: ClientMethods) -> None:
    deadline = requite.deadline(1.5)
    parts = echo.stream(b"2?", service="count", timeout=deadline)
    assert next(parts).body == b"0"
    with pytest.raises(CallTimeout):
        list(parts)


def test_without_a_deadline_there_is_no_limit(echo: ClientMethods) -> None:
    assert requite.deadline(None).at == math.inf
    assert echo.call(b"x", timeout=requite.deadline(None)).body == b"x"
    with pytest.raises(ConfigurationError, match="positive"):
        requite.deadline(0)


def test_a_slow_handler_is_a_timeout_and_is_interrupted(
    echo: ClientMethods, served: Serving
) -> None:
    echo.call(b"x")  # connect first
    began = monotonic()
    # Either the broker reports the deadline, or the client's timer expires first.
    with pytest.raises(CallTimeout, match=r"deadline passed|no reply from 'hold'") as caught:
        echo.call(b"slow", service="hold", timeout=1.0)
    assert monotonic() - began < 9  # the client's default timeout is 10 s
    assert caught.value.may_have_executed is True
    assert caught.value.attempts == 1
    assert isinstance(caught.value, TimeoutError)
    eventually(lambda: served.handlers.interrupted == [b"slow"], "the handler is interrupted")


def test_an_unused_address_is_reported_with_the_reason(make: Make) -> None:
    port = UNUSED_PORT
    client = make(f"mdp://127.0.0.1:{port}/echo")
    error = failure(
        CallTimeout, "connection refused", lambda timeout: client.call(b"x", timeout=timeout)
    )
    assert f"tcp://127.0.0.1:{port}" in str(error)
    assert "has not run" in str(error)
    assert error.may_have_executed is False
    assert error.attempts == 0


def test_a_listener_without_a_handshake_is_reported(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = make(f"mdp://127.0.0.1:{port}/echo")
        failure(
            CallTimeout,
            "has not completed the handshake",
            lambda timeout: client.call(b"x", timeout=timeout),
        )


def test_a_service_without_workers(make: Make, serving: Serving) -> None:
    client = make(serving.url("nobody"), retry=RetryPolicy(attempts=1))
    with pytest.raises(NoService) as caught:
        client.call(b"x", timeout=10)
    assert caught.value.may_have_executed is False


def test_an_invalid_host_name_is_reported(make: Make) -> None:
    client = make(f"mdp://{'a' * 70}:5555/echo")
    failure(
        CallTimeout, "not a valid host name", lambda timeout: client.call(b"x", timeout=timeout)
    )


def test_more_calls_than_slots_are_refused(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), slots=3, timeout=10)
    calls = [client.start(b"%d" % number) for number in range(4)]
    with pytest.raises(Overloaded, match="all 3 slots") as caught:
        calls[3].result()
    assert caught.value.may_have_executed is False
    served.handlers.gate.set()
    assert [call.result().body for call in calls[:3]] == [b"0", b"1", b"2"]


# --- start and cancel -----------------------------------------------------------------------------
def test_calls_run_concurrently(echo: ClientMethods) -> None:
    calls = [echo.start(b"%d" % number) for number in range(50)]
    assert [call.result().body for call in reversed(calls)] == [
        b"%d" % number for number in reversed(range(50))
    ]


def test_cancel_reaches_the_handler(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=10)
    call = client.start(b"mine")
    other = client.start(b"other")
    client.call(b"round trip", service="echo")  # both have been sent before its reply
    eventually(lambda: len(served.handlers.seen) == 3, "both are held")
    assert call.cancel() is True
    eventually(lambda: served.handlers.interrupted == [b"mine"], "the handler is interrupted")
    with pytest.raises((Cancelled, asyncio.CancelledError)):
        call.result()
    assert call.cancel() is False
    served.handlers.gate.set()
    assert other.result().body == b"other"


def test_close_ends_outstanding_calls(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=10)
    call = client.start(b"x")
    client.call(b"round trip", service="echo")
    if isinstance(client, BlockingMethods):
        client.close()
        with pytest.raises(Cancelled, match="closed") as caught:
            call.result()
        assert caught.value.may_have_executed is True
        with pytest.raises(Cancelled, match="closed") as caught:
            client.call(b"y")
        assert caught.value.may_have_executed is False
    else:
        client.client._loop.run_until_complete(client.client.close())  # type: ignore[attr-defined]
        with pytest.raises(Cancelled, match="closed") as caught:
            call.result()
        assert caught.value.may_have_executed is True
        with pytest.raises(Cancelled, match="closed") as caught:
            client.call(b"y")
        assert caught.value.may_have_executed is False
    eventually(lambda: served.handlers.interrupted == [b"x"], "the handler is interrupted")
    eventually(lambda: served.snapshot.clients == 0, "the broker has seen it leave")


# --- stream ---------------------------------------------------------------------------------------
def test_a_stream_gives_partials_and_then_the_reply(echo: ClientMethods) -> None:
    *partials, reply = echo.stream(b"5", service="count")
    assert partials == [Partial([b"%d" % n], n) for n in range(5)]
    assert isinstance(reply, Reply)
    assert reply.body == b""


def test_a_stream_of_a_plain_service_is_its_reply(echo: ClientMethods) -> None:
    [reply] = echo.stream(b"x")
    assert isinstance(reply, Reply)
    assert reply.body == b"x"


def test_a_call_to_a_streaming_service_joins_the_partials(echo: ClientMethods) -> None:
    assert echo.call(b"5", service="count").body == b"01234"


def test_a_failed_stream_yields_its_earlier_parts_first(echo: ClientMethods) -> None:
    stream = echo.stream(b"3!", service="count")
    assert [next(stream).body for _ in range(3)] == [b"0", b"1", b"2"]
    with pytest.raises(RemoteFailure, match="no more"):
        next(stream)


def test_closing_a_stream_cancels_it(echo: ClientMethods, served: Serving) -> None:
    stream = echo.stream(b"3?", service="count")
    assert [next(stream).body for _ in range(3)] == [b"0", b"1", b"2"]
    stream.close()  # type: ignore[attr-defined]
    eventually(lambda: served.handlers.interrupted == [b"3?"], "the handler is interrupted")
    assert echo.call(b"next").body == b"next"


# --- a broker that restarts -----------------------------------------------------------------------
def test_calls_survive_a_crash_of_the_broker(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=30)
    calls = [client.start(b"%d" % number) for number in range(20)]
    client.call(b"round trip", service="echo")
    eventually(lambda: len(served.handlers.seen) == 21, "all are at the worker")
    served.stop_broker()
    eventually(lambda: len(served.handlers.interrupted) == 20, "the worker has given them up")
    served.handlers.gate.set()
    served.start_broker()
    replies = [call.result() for call in calls]
    assert [reply.body for reply in replies] == [b"%d" % number for number in range(20)]
    assert {reply.attempts for reply in replies} == {2}


def test_calls_wait_for_a_broker_that_starts_later(make: Make, serving: Serving) -> None:
    serving.stop_broker()
    client = make(serving.url("echo"), timeout=30)
    calls = [client.start(b"%d" % number) for number in range(5)]
    serving.start_broker()
    serving.start_worker()
    assert [call.result().body for call in calls] == [b"%d" % number for number in range(5)]


def test_a_non_idempotent_request_is_not_sent_twice(make: Make, served: Serving) -> None:
    client = make(served.url("hold"), timeout=30)
    call = client.start(b"once", idempotent=False)
    client.call(b"round trip", service="echo")
    eventually(lambda: len(served.handlers.seen) == 2, "it is at the worker")
    served.stop_broker()
    with pytest.raises(TransportError, match="not idempotent") as caught:
        call.result()
    assert caught.value.may_have_executed is True
    served.handlers.gate.set()
    served.start_broker()
    assert client.call(b"again", service="echo").body == b"again"
    assert [seen.body for seen in served.handlers.seen].count(b"once") == 1


def test_an_idle_client_notices_a_restart_before_it_sends(make: Make, served: Serving) -> None:
    """A request that is not idempotent succeeds after a restart while no request was in flight."""
    client = make(served.url("echo"), timeout=30)
    client.call(b"first")
    served.stop_broker()
    served.start_broker()
    eventually(lambda: served.snapshot.workers, "the worker is back")
    client.idle(0.2)
    assert client.call(b"second", idempotent=False).body == b"second"


def test_the_next_address_is_tried(make: Make, served: Serving) -> None:
    place = served.endpoint.removeprefix("tcp://")
    client = make(f"mdp://127.0.0.1:{UNUSED_PORT},{place}/echo", timeout=10)
    assert client.call(b"x").body == b"x"


# --- dialects, transports, credentials ------------------------------------------------------------
@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_older_dialects(make: Make, served: Serving, dialect: str) -> None:
    client = make(served.url("echo", f"?dialect={dialect}"), timeout=10)
    assert client.call(b"x").body == b"x"
    bodies = [b"%d" % number for number in range(100)]
    assert [reply.body for reply in client.map(bodies, concurrency=10)] == bodies
    with pytest.raises(ConfigurationError, match=r"as not idempotent; MDP 0\.3 can"):
        client.call(b"x", idempotent=False)
    with pytest.raises(ConfigurationError, match="idempotency keys"):
        client.call(b"x", idempotency_key=b"k")
    with pytest.raises(ConfigurationError, match="no heartbeats"):
        make(served.url("echo"), dialect=dialect, heartbeat=1.0)


def test_streams_in_older_dialects(make: Make, served: Serving) -> None:
    client = make(served.url("count"), dialect="0.2", timeout=10)
    assert [what.body for what in client.stream(b"2")] == [b"0", b"1", b""]
    client = make(served.url("count"), dialect="0.1", timeout=10)
    with pytest.raises(ConfigurationError, match=r"MDP 0\.1 has no partial replies"):
        client.stream(b"2")


def test_invalid_settings_are_refused(make: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"0\.1, 0\.2, 0\.3"):
        make("mdp://localhost/echo", dialect="0.4")
    with pytest.raises(ConfigurationError, match=r"0\.1, 0\.2, 0\.3"):
        make("mdp://localhost/echo?dialect=9")
    with pytest.raises(ConfigurationError, match="slots"):
        make("mdp://localhost/echo", slots=0)
    with pytest.raises(ConfigurationError, match="heartbeat"):
        make("mdp://localhost/echo", heartbeat=0.0)
    with pytest.raises(ConfigurationError, match="255 bytes"):
        make(f"mdp://user:{'x' * 256}@localhost/echo")
    with pytest.raises(ConfigurationError, match="1 to 255 bytes"):
        make("mdp://localhost/" + "x" * 256)
    with pytest.raises(ConfigurationError, match="message_size_max"):
        make("mdp://localhost/echo", message_size_max=0)


def test_a_heartbeat_policy_is_accepted(make: Make, served: Serving) -> None:
    client = make(served.url("echo"), heartbeat=HeartbeatPolicy(0.5, 4), timeout=10)
    assert client.call(b"x").body == b"x"


def test_over_a_unix_socket(make: Make) -> None:
    with tempfile.TemporaryDirectory(prefix="rq") as folder:
        serving = Serving(f"ipc://{folder}/broker.sock")
        try:
            serving.start_worker()
            client = make(serving.url("echo"), timeout=10)
            bodies = [b"%d" % number for number in range(100)]
            assert [reply.body for reply in client.map(bodies)] == bodies
            assert client.call(b"x" * (1 << 20)).body == b"x" * (1 << 20)
        finally:
            serving.close()


def test_credentials(make: Make) -> None:
    serving = Serving(users={"ann": "secret"})
    try:
        serving.start_worker(credentials="ann:secret@")
        right = make(serving.url("echo", credentials="ann:secret@"), timeout=10)
        assert right.call(b"x").body == b"x"
        for credentials in ("ann:wrong-secret@", ""):
            wrong = make(serving.url("echo", credentials=credentials))
            error = failure(
                CallTimeout,
                "the connection to tcp://",
                lambda timeout, wrong=wrong: wrong.call(b"x", timeout=timeout),
            )
            assert "secret" not in f"{error} {wrong.client!r}"  # type: ignore[attr-defined]
    finally:
        serving.close()
