"""`requite worker`: its targets, its settings, its connection, and how it exits."""

from __future__ import annotations

import signal

import pytest
from tests.cli.command import (
    await_running,
    requite,
    running,
    running_broker,
    running_worker,
    state,
    write_users,
)

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

UNREACHABLE = "mdp://127.0.0.1:1"
MODULE = """
import requite

@requite.service("shout")
def shout(request):
    return request.body.upper()

@requite.service("whisper")
async def whisper(request):
    return request.body.lower()

def plain(request):
    return request.body
"""


@pytest.fixture
def here(tmp_path):
    """A folder with modules of services."""
    (tmp_path / "shop.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "lacking.py").write_text("import no_such_package\n", encoding="utf-8")
    return tmp_path


def test_it_serves_functions_of_a_module_in_the_current_directory(here):
    with (
        running_broker() as (_broker, url),
        running_worker("shop:shout", "shop:whisper", "--connect", url, cwd=here),
    ):
        assert requite("call", f"{url}/shout", "Hello").stdout == b"HELLO"
        assert requite("call", f"{url}/whisper", "Hello").stdout == b"hello"


def test_it_prints_what_it_serves_without_the_password(here):
    users = write_users(here / "users", "me:secret")
    with running_broker("--credentials-file", str(users)) as (_broker, url):
        url = url.replace("mdp://", "mdp://me:secret@")
        for stop in (signal.SIGTERM, signal.SIGINT):
            with running("worker", "shop:shout", "--connect", url, cwd=here) as worker:
                shown = url.replace("secret", "***")
                assert worker.line() == f"serving shout for {shown}"
                worker.send(stop)
                assert worker.end() == (0, "", "")


# --- waiting for a connection ---------------------------------------------------------------------
def test_it_reports_a_missing_connection():
    with running("worker", "requite.examples:echo", "--connect", UNREACHABLE) as worker:
        message = worker.error_line()
        assert (
            "waiting to serve echo: cannot connect to tcp://127.0.0.1:1: connection ref" in message
        )
        worker.send(signal.SIGTERM)
        assert worker.end() == (0, "", "")


@pytest.mark.parametrize(
    "url",
    [UNREACHABLE, "sp+tcp://127.0.0.1:1", "pirate://127.0.0.1:1", "amqp://me:secret@127.0.0.1:1/"],
)
def test_without_a_connection_in_time_it_exits_with_5_and_the_reason(url):
    words = ("--connect", url, "--wait-connected", "0.2")
    ended = requite("worker", "requite.examples:echo", *words)
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert ended.err == (
        "requite: not connected within 0.2 s: cannot connect to tcp://127.0.0.1:1: connection"
        " refused\n"
    )


def test_connected_in_time_it_keeps_serving():
    with (
        running_broker() as (_broker, url),
        running_worker(
            "requite.examples:slow", "--connect", url, "--wait-connected", "5"
        ) as worker,
    ):
        assert requite("call", f"{url}/slow", "0").code == 0
        worker.send(signal.SIGTERM)
        assert worker.end() == (0, "", "")


def test_wait_connected_requires_connect_or_pool():
    words = ("--bind", "sp+tcp://127.0.0.1:0", "--wait-connected", "1")
    ended = requite("worker", "requite.examples:echo", *words)
    assert ended.code == ExitCode.USAGE
    assert "--wait-connected requires --connect or --pool" in ended.err


@pytest.mark.parametrize("seconds", ["inf", "nan", "0"])
def test_wait_connected_must_be_positive_and_finite(seconds):
    words = ("--connect", UNREACHABLE, f"--wait-connected={seconds}")
    ended = requite("worker", "requite.examples:echo", *words)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "--wait-connected" in ended.err.splitlines()[0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop", "write MODULE:ATTR"),
        (":shout", "write MODULE:ATTR"),
        ("nothing_here:shout", "no module 'nothing_here'"),
        ("shop.deeper:shout", "no module 'shop.deeper'"),
        ("shop:shot", "shop has no attribute 'shot'; its services are shout, whisper"),
        ("broken:f", "ZeroDivisionError: division by zero"),
        ("lacking:f", "'no_such_package', which is not installed"),
        (
            "shop:plain",
            "it is a function, not a service; decorate it with @requite.service('name')",
        ),
    ],
)
def test_a_target_that_cannot_be_served_is_one_clear_line(here, target, message):
    ended = requite("worker", target, "--connect", UNREACHABLE, cwd=here)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"requite: cannot serve {target}: ")
    assert message in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--connect", "tcp://127.0.0.1:1"), "mdp://"),
        (
            ("--connect", UNREACHABLE, "--capacity", "2", "--dialect", "0.2"),
            "one request at a time",
        ),
        (("--connect", UNREACHABLE, "--heartbeat-interval", "0"), "heartbeat interval"),
    ],
)
def test_invalid_settings_are_refused(options, message):
    ended = requite("worker", "requite.examples:echo", *options)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err


def test_the_airports_need_their_package(here):
    """A module that raises `ImportError` takes the place of the missing package."""
    (here / "airportsdata.py").write_text("raise ImportError('not installed')", encoding="utf-8")
    path = {"PYTHONPATH": str(here)}
    words = ("worker", "requite.examples:nearest", "--connect", UNREACHABLE)
    ended = requite(*words, env=path)
    assert ended.code == ExitCode.USAGE
    assert "pip install 'requite[demo]'" in ended.err


def test_capacity_and_heartbeats_reach_the_broker():
    options = ("--capacity", "3", "--heartbeat-interval", "2")
    with (
        running_broker() as (_broker, url),
        running_worker("requite.examples:echo", "--connect", url, *options),
    ):
        assert requite("call", f"{url}/echo", "x").code == 0
        (worker,) = requite("services", url, "--json").record["workers"]
    assert (worker["capacity"], worker["heartbeat_ms"]) == (3, 2000)


def test_after_sigterm_a_running_handler_answers():
    with (
        running_broker() as (_broker, url),
        running_worker("requite.examples:slow", "--connect", url) as worker,
        running("call", f"{url}/slow", "3") as call,
    ):
        await_running(url, "slow")
        worker.send(signal.SIGTERM)
        assert call.end() == (0, "3", "")
        assert worker.end()[0] == ExitCode.OK
        assert state(url)["services"][0]["redelivered"] == 0


def test_a_second_signal_stops_at_once_and_the_request_is_redelivered():
    with (
        running_broker() as (_broker, url),
        running_worker("requite.examples:slow", "--connect", url) as worker,
        running("call", f"{url}/slow", "3.0") as call,
    ):
        await_running(url, "slow")
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        code, _out, err = worker.end()
        assert code == ExitCode.INTERRUPTED
        assert "stopped before draining finished" in err
        with running_worker("requite.examples:slow", "--connect", url):
            assert call.end() == (0, "3.0", "")
