"""`requite broker`: its endpoints, settings, credentials, drain and log lines."""

from __future__ import annotations

import json
import signal
import socket
from contextlib import ExitStack

import pytest
from tests.cli.command import (
    await_draining,
    await_running,
    requite,
    running,
    running_broker,
    running_worker,
    write_users,
)
from tests.support.gate import Gate

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e


def test_it_prints_a_line_per_endpoint(tmp_path):
    binds = ("--bind", "tcp://127.0.0.1:0", "--bind", f"ipc://{tmp_path}/broker.sock")
    with running("broker", *binds) as broker:
        assert broker.line().startswith("listening on tcp://127.0.0.1:")
        assert broker.line() == f"listening on ipc://{tmp_path}/broker.sock"
        url = f"mdp+ipc://{tmp_path}/broker.sock"
        assert requite("call", url, "--service", "mmi.ping").code == 0
        broker.send(signal.SIGTERM)
        assert broker.end() == (0, "", "")


def test_a_port_in_use_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ended = requite("broker", "--bind", address)
    assert (ended.code, ended.out) == (ExitCode.CANNOT_LISTEN, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"requite: cannot listen at {address}")
    assert "in use" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bind", "5555"), "tcp://host:port"),
        (("--heartbeat-interval", "60"), "heartbeat interval"),
        (("--attempts", "0"), "attempts_max"),
        (("--legacy-busy-timeout", "0"), "legacy_busy_timeout_s"),
        (("--credentials-file", "/nonexistent"), "/nonexistent"),
    ],
)
def test_invalid_settings_are_refused(options, message):
    ended = requite("broker", *options)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_broker_exits_on_the_first_signal(stop):
    with running_broker() as (broker, _url):
        broker.send(stop)
        assert broker.end() == (ExitCode.OK, "", "")


def test_after_sigterm_a_running_call_gets_its_reply(tmp_path):
    gate = Gate(tmp_path)
    with running_broker() as (broker, url), ExitStack() as stack:
        worker = gate.worker(url)
        stack.callback(worker.dispose)
        worker.await_start()
        with running("call", f"{url}/gated", "early", "--timeout", "30") as call:
            gate.await_run("early")
            broker.send(signal.SIGTERM)
            await_draining(url)
            late = requite("call", f"{url}/gated", "late", "--timeout", "1.5")
            # A draining broker accepts no new request; the call waits for another broker.
            assert late.code == ExitCode.TIMEOUT
            gate.open()
            code, out, err = call.end()
        assert (code, out, err) == (0, f"early{worker.pid}", "")
        code, out, err = broker.end()
        assert (code, out) == (ExitCode.OK, "")
        # The late call is disconnected and reconnects; it may exit during a handshake.
        assert all("handshake failed" in line for line in err.splitlines()), err
    assert not gate.runs("late")


def test_a_second_sigterm_stops_at_once():
    with (
        running_broker() as (broker, url),
        running_worker("requite.examples:slow", "--connect", url),
        running("call", f"{url}/slow", "60", "--timeout", "60"),
    ):
        await_running(url, "slow")
        broker.send(signal.SIGTERM)
        await_draining(url)
        broker.send(signal.SIGTERM)
        code, out, err = broker.end()
        assert (code, out) == (ExitCode.STOPPED, "")
        assert "stopped before draining finished" in err


def test_a_drain_has_a_time_limit():
    with (
        running_broker("--drain-timeout", "0.3") as (broker, url),
        running_worker("requite.examples:slow", "--connect", url),
        running("call", f"{url}/slow", "60", "--timeout", "60", "--once") as call,
    ):
        await_running(url, "slow")
        broker.send(signal.SIGTERM)
        assert broker.end()[0] == ExitCode.OK
        # Without `--once`, the call would wait for another broker and retry.
        assert call.end()[0] != 0


def test_clients_without_the_right_password_are_refused(tmp_path):
    users, mine, others = tmp_path / "users", tmp_path / "mine", tmp_path / "others"
    write_users(users, "# who may come\nme:p@ss/word:1\nyou:secret\n")
    write_users(mine, "me:p@ss/word:1\n")
    write_users(others, "me:wrong\n")
    with running_broker(env={"REQUITE_CREDENTIALS_FILE": str(users)}) as (_broker, url):
        ask = ("call", f"{url}/mmi.ping", "--timeout")
        assert requite(*ask, "20", "--credentials-file", str(mine)).code == 0
        ended = requite(*ask, "1", "--credentials-file", str(others))
        assert ended.code == ExitCode.NO_CONNECTION
        assert requite(*ask, "1").code == ExitCode.NO_CONNECTION


def test_log_lines_can_be_json_objects():
    with running_broker("-v", "--log-format", "json") as (broker, _url):
        broker.send(signal.SIGTERM)
        code, _out, err = broker.end()
    entries = [json.loads(line) for line in err.splitlines()]
    assert code == 0
    assert {"time", "level", "logger", "message"} <= set(entries[0])
    assert [(each["message"], each.get("signal")) for each in entries][-2:] == [
        ("draining; a second signal stops at once", "SIGTERM"),
        ("drained", None),
    ]
