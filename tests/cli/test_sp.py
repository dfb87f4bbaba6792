"""`worker`, `call` and `bench` without a broker, over SP."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Running, requite, running, write_users
from tests.cli.conftest import Refusal
from tests.support.sp_wires import IPC, TCP, TLS, WS, Place, Places, certificates, places

from requite.cli.exit_codes import ExitCode

__all__ = ["certificates", "places"]

pytestmark = pytest.mark.e2e

ECHO = "requite.examples:echo"
UNREACHABLE = "sp+tcp://127.0.0.1:1"  # nothing listens at port 1 (tcpmux)
MODULE = """
import asyncio
import requite

@requite.service("picky")
async def picky(request):
    if request.body == b"bad":
        raise ValueError("no such thing")
    return request.body

@requite.service("dies")
def dies(request):
    import os
    os._exit(3)

@requite.service("slow")
async def slow(request):
    print("begun", flush=True)
    await asyncio.sleep(0.5)
    return request.body
"""


def listening(worker: Running, place: Place) -> Place:
    """Return the place at which a worker listens, from its first line."""
    line = worker.line()
    assert line.startswith("serving "), worker.end()
    return place.as_told(line)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a module of services."""
    (tmp_path / "shop.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of an echo service."""
    with running("worker", ECHO, "--bind", "sp+tcp://127.0.0.1:0") as worker:
        yield worker.line().removeprefix("serving echo at ")


# --- calls ----------------------------------------------------------------------------------------
def test_the_reply_is_written_to_stdout_unchanged(url: str) -> None:
    ended = requite("call", url, "-", stdin=bytes(range(256)))
    assert (ended.code, ended.stdout, ended.err) == (0, bytes(range(256)), "")


def test_json_ends_with_one_object(url: str) -> None:
    record = requite("call", url, "grüße", "--json").record
    assert record.pop("elapsed_ms") > 0
    assert record == {"status": "OK", "body": "grüße", "encoding": "utf-8", "attempts": 1}


def test_a_worker_may_listen_over_several_transports_and_connect(
    places: Places,
) -> None:
    listening = [places.new(wire) for wire in (TCP, IPC, TLS, WS)]
    words = [word for place in listening for word in ("--bind", place.listening())]
    with running("worker", ECHO, *words, "--connect", UNREACHABLE) as worker:
        lines = [worker.line() for _ in listening]
        for place, line in zip(listening, lines, strict=True):
            assert line.startswith(f"serving echo at {place.wire.ours}://")
            assert requite("call", place.as_told(line).dialling(), "x").stdout == b"x"
        worker.send(signal.SIGTERM)
        code, out, _ = worker.end()
        assert (code, out) == (ExitCode.OK, "")


def test_a_call_may_listen_for_a_worker_that_connects(places: Places) -> None:
    place = places.new(IPC)
    with (
        running("worker", ECHO, "--connect", place.dialling()) as worker,
        running("call", place.listening(), "hello", "--bind") as call,
    ):
        assert worker.line() == f"serving echo for {place.dialling()}"
        assert call.end() == (0, "hello", f"requite: listening on {place.listening()}\n")


def test_bench_counts(url: str) -> None:
    ended = requite("bench", url, "--requests", "300", "--concurrency", "8", "--json")
    assert ended.code == 0, ended.err
    assert (ended.record["answered"], ended.record["failures"]) == (300, {})


# --- failures -------------------------------------------------------------------------------------
def test_an_unreachable_service() -> None:
    ended = requite("call", UNREACHABLE, "x", "--timeout", "1")
    assert ended.code == ExitCode.NO_CONNECTION
    (line,) = ended.err.splitlines()
    assert "connection refused" in line
    assert "has not run" in line
    assert line.endswith(f"check that a service or device is reachable at {UNREACHABLE}")


def test_a_peer_with_another_protocol() -> None:
    with running("broker", "--bind", "tcp://127.0.0.1:0") as broker:
        address = broker.line().removeprefix("listening on ")
        ended = requite("call", f"sp+{address}", "x", "--timeout", "1.5", "--json")
    assert ended.code == ExitCode.NO_CONNECTION
    assert ended.record["may_have_executed"] is False
    assert "SP" in ended.record["message"]


def test_a_server_with_the_wrong_certificate(places: Places) -> None:
    place = places.new(TLS)
    with running("worker", ECHO, "--bind", place.listening()) as worker:
        place = listening(worker, place)
        ca = str(places.certificates.other_ca)
        ended = requite("call", place.dialling(ca=ca), "x", "--timeout", "1.5")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "certificate" in ended.err


def test_a_failed_handler_is_logged_and_its_caller_times_out(here: Path) -> None:
    with running("worker", "shop:picky", "--bind", "sp+tcp://127.0.0.1:0", cwd=here) as worker:
        url = worker.line().removeprefix("serving picky at ")
        ended = requite("call", url, "bad", "--timeout", "1.5", "--json")
        assert requite("call", url, "good").stdout == b"good"
        worker.send(signal.SIGTERM)
        _, _, err = worker.end()
    assert ended.code == ExitCode.TIMEOUT
    assert (ended.record["status"], ended.record["may_have_executed"]) == ("TIMEOUT", True)
    assert "no such thing" in err


def test_with_once_a_request_lost_with_its_worker_fails(here: Path) -> None:
    with running("worker", "shop:dies", "--bind", "sp+tcp://127.0.0.1:0", cwd=here) as worker:
        url = worker.line().removeprefix("serving dies at ")
        ended = requite("call", url, "x", "--once")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "may have run" in ended.err


def test_sigterm_lets_a_running_handler_answer(here: Path, places: Places) -> None:
    place = places.new(IPC)
    with running("worker", "shop:slow", "--bind", place.listening(), cwd=here) as worker:
        listening(worker, place)
        with running("call", place.dialling(), "x") as call:
            assert worker.line() == "begun"
            worker.send(signal.SIGTERM)
            assert call.end() == (0, "x", "")
        assert worker.end() == (ExitCode.OK, "", "")


def test_an_address_in_use_ends_it(url: str) -> None:
    for words in (("worker", ECHO, "--bind", url), ("call", url, "x", "--bind")):
        ended = requite(*words)
        assert (ended.code, ended.out) == (ExitCode.CANNOT_LISTEN, "")
        (line,) = ended.err.splitlines()
        assert "in use" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("call", UNREACHABLE, "x", "--service", "echo"), "service"),
        (("call", UNREACHABLE, "x", "--stream"), "partial"),
        (("call", UNREACHABLE, "x", "--dialect", "0.2"), "dialect"),
        (("call", f"{UNREACHABLE}/echo", "x"), "SP has no service names"),
        (("call", "sp+tcp://*:1", "x"), "listening"),
        (("call", "mdp://127.0.0.1:1/echo", "x", "--bind"), "listen"),
        (("call", "sp+tls://127.0.0.1:1?ca=/nowhere", "x"), "/nowhere"),
        (("call", f"{UNREACHABLE}?resend=never", "x"), "resend"),
        (("bench", UNREACHABLE, "--service", "echo"), "service"),
        (("services", UNREACHABLE), "broker"),
        (("worker", ECHO, "requite.examples:slow", "--bind", "sp+tcp://127.0.0.1:0"), "one"),
        (("worker", ECHO, "--bind", "sp+tls://127.0.0.1:0"), "certificate"),
        (("worker", ECHO, "--bind", "mdp://127.0.0.1:0"), "listen"),
        (("worker", ECHO, "--bind", "sp+tcp://127.0.0.1:0", "--connect", "mdp://a"), "mdp and sp"),
        (("worker", ECHO, "--connect", "mdp://a", "--connect", "mdp://b"), "one URL"),
        (("worker", ECHO, "--connect", "mdp://a", "--hops", "3"), "hops"),
        (("worker", ECHO, "--connect", UNREACHABLE, "--dialect", "0.2"), "dialect"),
        (("worker", ECHO, "--connect", UNREACHABLE, "--heartbeat-interval", "1"), "heartbeat"),
        (("worker", ECHO, "--connect", UNREACHABLE, "--handler-timeout", "1"), "handler_timeout"),
    ],
)
def test_invalid_arguments_are_refused(
    words: tuple[str, ...], message: str, refusal: Refusal
) -> None:
    (line,) = refusal(*words).splitlines()
    assert message in line


def test_credentials_are_refused(here: Path, refusal: Refusal) -> None:
    write_users(here / "me", "me:secret\n")
    message = refusal("call", UNREACHABLE, "x", "--credentials-file", str(here / "me"))
    assert "SP has no users and passwords" in message
    assert "secret" not in message


def test_a_stale_socket_file_is_taken_over(places: Places) -> None:
    place = places.new(IPC)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(place.file)
    assert Path(place.file).exists()
    with running("worker", ECHO, "--bind", place.listening()) as worker:
        listening(worker, place)
        assert requite("call", place.dialling(), "x").stdout == b"x"
        worker.send(signal.SIGTERM)
        worker.end()
    assert not Path(place.file).exists()
