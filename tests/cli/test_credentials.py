"""Missing, wrong and unexpected credentials: the call fails at once, and both sides say why."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Running, requite, running, running_broker, write_users

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

PASSWORD = "s3cret"
TIMEOUT_S = "20"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A credentials file with one user."""
    return write_users(tmp_path / "users", f"ann:{PASSWORD}\n")


@pytest.fixture
def guarded(users: Path) -> Iterator[tuple[Running, str]]:
    """A broker that requires a user name and password, and its URL without them."""
    with running_broker("--credentials-file", str(users)) as (broker, url):
        yield broker, url


@pytest.mark.parametrize(
    ("credentials", "message", "logged"),
    [
        ("", "the broker requires a user name and password", "this broker requires a user name"),
        (
            f"ann:not-{PASSWORD}@",
            "the broker refused the user name or password of 'ann'",
            "refused the credentials of user 'ann'",
        ),
    ],
    ids=["none", "wrong"],
)
def test_a_refused_call_fails_at_once_with_advice(
    credentials: str, message: str, logged: str, guarded: tuple[Running, str]
) -> None:
    broker, url = guarded
    began = time.monotonic()
    place = url.replace("mdp://", f"mdp://{credentials}")
    ended = requite("call", f"{place}/echo", "x", "--timeout", TIMEOUT_S)
    assert time.monotonic() - began < float(TIMEOUT_S) / 2
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert message in ended.err
    assert "`--credentials-file`" in ended.err
    assert "the request has not run" in ended.err
    broker.process.terminate()
    code, _out, log = broker.end()
    assert code == 0
    assert logged in log
    assert "`--credentials-file`" in log
    assert PASSWORD not in ended.err + log
    assert "b'" not in ended.err + log


def test_the_json_status_of_a_refused_call_is_no_connection(
    guarded: tuple[Running, str],
) -> None:
    _broker, url = guarded
    ended = requite("call", f"{url}/echo", "x", "--timeout", TIMEOUT_S, "--json")
    assert ended.record["status"] == "NO_CONNECTION"
    assert ended.record["may_have_executed"] is False


def test_unexpected_credentials_fail_the_call(users: Path) -> None:
    with running_broker() as (broker, url):
        ended = requite(
            *("call", f"{url}/echo", "x", "--timeout", TIMEOUT_S),
            *("--credentials-file", str(users)),
        )
        broker.process.terminate()
        _code, _out, log = broker.end()
    assert ended.code == ExitCode.NO_CONNECTION
    assert "the broker does not use credentials" in ended.err
    assert "the peer sends a user name and password, but this broker has no users" in log
    assert PASSWORD not in ended.err + log


@pytest.mark.parametrize("verb", ["services", "bench"])
def test_other_commands_fail_at_once_too(verb: str, guarded: tuple[Running, str]) -> None:
    _broker, url = guarded
    began = time.monotonic()
    ended = requite(verb, f"{url}/echo" if verb == "bench" else url, "--timeout", TIMEOUT_S)
    assert time.monotonic() - began < float(TIMEOUT_S) / 2
    assert ended.code == ExitCode.NO_CONNECTION
    assert "the broker requires a user name and password" in ended.err


def test_a_file_that_others_can_read_is_refused(users: Path) -> None:
    users.chmod(0o640)
    for words in (("broker",), ("call", "mdp://127.0.0.1:1/echo", "x", "--timeout", "1")):
        ended = requite(*words, "--credentials-file", str(users))
        assert ended.code == ExitCode.USAGE
        assert f"other users of this machine may use {users} (mode 0640)" in ended.err
        assert f"run `chmod 600 {users}`" in ended.err
        assert PASSWORD not in ended.err + ended.out


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_output_and_no_command_line_shows_the_password(log_format: str, users: Path) -> None:
    logging = ("-vv", "--log-format", log_format)
    with running_broker("--credentials-file", str(users), *logging) as (broker, url):
        place = url.replace("mdp://", f"mdp://ann:{PASSWORD}@")
        file = ("--credentials-file", str(users))
        with running("worker", "requite.examples:echo", "--connect", url, *file, *logging) as one:
            printed = one.line()
            told = [
                requite("call", f"{place}/echo", "x", "--timeout", TIMEOUT_S, "-vv"),
                requite("call", f"{place}/nothing", "x", "--timeout", "1", "-vv"),
                requite("call", f"{place.replace('mdp', 'sp+tcp')}/echo", "x"),
                requite("call", f"{place.replace('ann', 'ann@home')}/echo", "x", "--timeout", "1"),
                requite("call", f"{place}/echo", "x", "y", "z"),
                requite(place, "x"),
                requite("pool", "status", "--manager", place),
            ]
            lines = [
                Path(f"/proc/{running.process.pid}/cmdline").read_text()
                for running in (one, broker)
            ]
            one.send(signal.SIGTERM)
            code, *rest = one.end()
        broker.send(signal.SIGTERM)
        _code, out, log = broker.end()
    assert (code, told[0].out) == (0, "x")
    assert [ended.code for ended in told[1:]] == [4, 2, 2, 2, 2, 2]
    shown = [printed, *rest, out, log, *lines, *(ended.out + ended.err for ended in told)]
    assert [text for text in shown if PASSWORD in text] == []
