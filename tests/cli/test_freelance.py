"""`worker`, `call` and `bench` with Freelance servers."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.cli.command import requite, running

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

ECHO = "requite.examples:echo"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of two running echo servers."""
    with (
        running("worker", ECHO, "--bind", "flp://127.0.0.1:0") as first,
        running("worker", ECHO, "--bind", "flp://127.0.0.1:0") as second,
    ):
        places = [each.line().removeprefix("serving echo at flp://") for each in (first, second)]
        yield f"flp://{','.join(places)}"


def test_the_reply_is_written_to_stdout_unchanged(url: str) -> None:
    ended = requite("call", url, "-", stdin=bytes(range(256)))
    assert (ended.code, ended.stdout, ended.err) == (0, bytes(range(256)), "")


def test_bench_measures_it(url: str) -> None:
    record = requite("bench", url, "--requests", "200", "--json").record
    assert (record["requests"], record["answered"], record["sent_again"]) == (200, 200, 0)


@pytest.mark.parametrize("model", ["failover", "shotgun"])
def test_other_models_are_part_of_the_url_of_the_server(model: str) -> None:
    with running("worker", ECHO, "--bind", f"flp://127.0.0.1:0?model={model}") as server:
        bound = server.line().removeprefix("serving echo at ")
        assert bound.endswith(f"?model={model}")
        assert requite("call", bound, "hello").out == "hello"
        server.send(signal.SIGTERM)
        assert server.end()[0] == 0


@pytest.mark.parametrize("model", ["agent", "failover", "shotgun"])
def test_a_call_without_a_server_fails_with_advice(model: str) -> None:
    unreachable = f"flp://127.0.0.1:1?model={model}"  # nothing listens at port 1 (tcpmux)
    ended = requite("call", unreachable, "hello", "--timeout", "1")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "connection refused" in ended.err
    assert "has not run" in ended.err
    assert "check that a service or device is reachable at flp://127.0.0.1:1" in ended.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("call", "flp://127.0.0.1:1/echo", "x"), "has no service names"),
        (("call", "flp://127.0.0.1:1", "x", "--service", "echo"), "has no service names"),
        (("call", "flp://127.0.0.1:1", "x", "--stream"), "no partial replies"),
        (("call", "flp://127.0.0.1:1?model=shotgun", "x", "--once"), "runs several times"),
        (("call", "flp://127.0.0.1:0", "x", "--bind"), "connects to its servers"),
        (("call", "flp://127.0.0.1:1?model=quick", "x"), "failover, shotgun, agent"),
        (("worker", ECHO, "--bind", "flp://*:0"), "requires public=tcp://HOST:PORT"),
        (("worker", ECHO, "--connect", "flp://127.0.0.1:1"), "server listens"),
        (("worker", ECHO, "--bind", "flp://127.0.0.1:0", "--liveness", "3"), "clients send pings"),
    ],
)
def test_invalid_arguments_are_refused(arguments: tuple[str, ...], why: str) -> None:
    ended = requite(*arguments)
    assert ended.code == ExitCode.USAGE
    assert why in ended.err


@pytest.mark.parametrize(
    "place", ["flp://127.0.0.1:1", "pirate://127.0.0.1:1", "sp+tcp://127.0.0.1:1"]
)
@pytest.mark.parametrize("command", [("call", "x", "--submit"), ("result", "0" * 32)], ids=repr)
def test_durable_requests_need_a_broker(command: tuple[str, ...], place: str) -> None:
    verb, *rest = command
    ended = requite(verb, place, *rest)
    assert ended.code == ExitCode.USAGE
    assert ended.err == (
        f"requite: {place} cannot store requests: durable requests need a broker with a Titanic"
        " (mdp://HOST:PORT)\n"
    )
