"""Missing, wrong and unwanted credentials: what either end says, and that nobody waits in vain."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import Running, requite, running_broker

from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

PASSWORD = "s3cret"
TIMEOUT_S = "20"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The file of a broker that knows one user."""
    path = tmp_path / "users"
    path.write_text(f"ann:{PASSWORD}\n", encoding="utf-8")
    return path


@pytest.fixture
def guarded(users: Path) -> Iterator[tuple[Running, str]]:
    """A broker that asks for a user name and a password, and its URL without either."""
    with running_broker("--credentials-file", str(users)) as (broker, url):
        yield broker, url


@pytest.mark.parametrize(
    ("credentials", "told", "logged"),
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
def test_a_call_that_is_refused_fails_at_once_and_says_what_to_do(
    credentials: str, told: str, logged: str, guarded: tuple[Running, str]
) -> None:
    broker, url = guarded
    began = time.monotonic()
    place = url.replace("mdp://", f"mdp://{credentials}")
    ended = requite("call", f"{place}/echo", "x", "--timeout", TIMEOUT_S)
    assert time.monotonic() - began < float(TIMEOUT_S) / 2
    assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
    assert told in ended.err
    assert "`--credentials-file`" in ended.err
    assert "the request has not run" in ended.err
    broker.process.terminate()
    code, _out, log = broker.end()
    assert code == 0
    assert logged in log
    assert "`--credentials-file`" in log
    assert PASSWORD not in ended.err + log
    assert "b'" not in ended.err + log


def test_with_json_a_refused_call_is_one_that_found_no_connection(
    guarded: tuple[Running, str],
) -> None:
    _broker, url = guarded
    ended = requite("call", f"{url}/echo", "x", "--timeout", TIMEOUT_S, "--json")
    assert ended.record["status"] == "NO_CONNECTION"
    assert ended.record["may_have_executed"] is False


def test_credentials_that_nobody_asked_for_are_told_at_once(users: Path) -> None:
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
def test_other_verbs_do_not_wait_either(verb: str, guarded: tuple[Running, str]) -> None:
    _broker, url = guarded
    began = time.monotonic()
    ended = requite(verb, f"{url}/echo" if verb == "bench" else url, "--timeout", TIMEOUT_S)
    assert time.monotonic() - began < float(TIMEOUT_S) / 2
    assert ended.code == ExitCode.NO_CONNECTION
    assert "the broker requires a user name and password" in ended.err
