"""`requite call`: bodies in, bytes out, and what failures look like to people and to scripts."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import signal
import subprocess

import pytest
import zmq
from tests.cli.command import COMMAND, ENVIRONMENT, WAIT_S, requite, running

from requite import CallTimeout, Client, HeartbeatPolicy
from requite.cli.exit_codes import ExitCode
from requite.cli.failures import advised, sentence
from requite.journal.reader import events

pytestmark = pytest.mark.e2e

NOT_UTF8 = bytes(range(256))
NOBODY = "mdp://127.0.0.1:1"  # nothing listens at port 1 (tcpmux)


def test_the_reply_is_on_stdout_as_it_came(url):
    ended = requite("call", f"{url}/echo", "hello, world")
    assert (ended.code, ended.stdout, ended.err) == (0, b"hello, world", "")


@pytest.mark.parametrize("word", [("-",), ()])
def test_the_body_is_read_from_stdin(url, word):
    ended = requite("call", f"{url}/echo", *word, stdin=NOT_UTF8)
    assert (ended.code, ended.stdout) == (0, NOT_UTF8)


def test_a_body_may_begin_with_a_hyphen(url):
    assert requite("call", f"{url}/echo", "-5").stdout == b"-5"


def test_an_argument_that_is_not_utf8_is_sent_as_it_is(url):
    assert requite("call", f"{url}/echo", os.fsdecode(b"\xff\xfe")).stdout == b"\xff\xfe"


def test_the_service_may_be_named_apart(url):
    assert requite("call", url, "x", "--service", "echo").stdout == b"x"


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
def test_every_dialect_gets_its_reply(url, dialect):
    assert requite("call", f"{url}/echo", "x", "--dialect", dialect).stdout == b"x"


def test_partial_replies_are_joined_unless_they_are_asked_for(url):
    assert requite("call", f"{url}/count", "3").stdout == b"123"


def test_a_stream_is_printed_as_it_comes(url):
    with running("call", f"{url}/count", "100000", "--stream") as call:
        assert [call.line() for _ in range(3)] == ["1", "2", "3"]  # long before the last one
        call.send(signal.SIGINT)
        assert call.end()[0] == ExitCode.INTERRUPTED


def test_a_stream_ends_without_an_empty_line(url):
    assert requite("call", f"{url}/count", "2", "--stream").stdout == b"1\n2\n"


def test_json_ends_with_one_object(url):
    record = requite("call", f"{url}/echo", "grüße", "--json").record
    assert record.pop("elapsed_ms") > 0
    assert record == {"status": "OK", "body": "grüße", "encoding": "utf-8", "attempts": 1}


def test_json_carries_any_bytes(url):
    record = requite("call", f"{url}/echo", "--json", stdin=NOT_UTF8).record
    assert record["encoding"] == "base64"
    assert base64.b64decode(record["body"]) == NOT_UTF8


def test_a_stream_as_json_is_an_object_per_reply(url):
    lines = requite("call", f"{url}/count", "2", "--stream", "--json").out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [(each["status"], each["body"]) for each in told] == [
        ("PARTIAL", "1"),
        ("PARTIAL", "2"),
        ("OK", ""),
    ]
    assert [each.get("index") for each in told] == [0, 1, None]


# --- failures -------------------------------------------------------------------------------------
def failure(*arguments):
    """Return the run as people see it and the object that scripts get; both exit the same."""
    plain, for_scripts = requite("call", *arguments), requite("call", *arguments, "--json")
    assert plain.code == for_scripts.code
    assert plain.out == for_scripts.err == ""
    assert re.fullmatch(r"requite: [^\n]+\n", plain.err)
    return plain, for_scripts.record


def test_a_handler_that_refuses(url):
    plain, record = failure(f"{url}/fail", "out of stock")
    assert plain.code == ExitCode.FAILED
    assert plain.err == "requite: the handler failed: ValueError: out of stock\n"
    assert (record["status"], record["may_have_executed"]) == ("FAILED", True)
    assert record["message"] == "ValueError: out of stock"


def test_a_timeout_says_that_the_request_may_have_run(url):
    plain, record = failure(f"{url}/slow", "30", "--timeout", "1.5")
    assert plain.code == ExitCode.TIMEOUT
    assert "may have run" in plain.err
    assert f"`requite services {url}`" in plain.err
    assert (record["status"], record["may_have_executed"]) == ("TIMEOUT", True)
    assert record["elapsed_ms"] >= 1500


@pytest.fixture
def silent():
    """The URL of a broker of RFC 7: it takes connections, and drops what it cannot understand."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        yield f"mdp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}/echo"


def test_a_broker_that_is_silent_for_long_may_speak_another_dialect(silent):
    heartbeat = HeartbeatPolicy(0.05)
    with (
        Client(silent, heartbeat=heartbeat) as client,
        pytest.raises(CallTimeout) as caught,
        advised(silent),
    ):
        client.call(b"x", timeout=0.4)
    told = sentence(caught.value)
    assert "may have run" in told
    assert "if it supports only 0.2 (RFC 18) or 0.1 (RFC 7), set that dialect: --dialect" in told
    assert "requite services" not in told  # it would hear nothing, either


def test_a_broker_that_has_had_little_time_to_answer_is_not_suspected(silent):
    ended = requite("call", silent, "x", "--timeout", "1.2")  # a heartbeat was sent after 1 s
    assert ended.code == ExitCode.TIMEOUT
    assert "dialect" not in ended.err
    assert "requite services" in ended.err


def test_a_service_that_nobody_serves(url):
    plain, record = failure(f"{url}/nope", "x", "--timeout", "1.5")
    assert plain.code == ExitCode.UNAVAILABLE
    assert "no worker serves 'nope'" in plain.err
    assert "has not run" in plain.err
    assert (record["status"], record["may_have_executed"]) == ("NO_SERVICE", False)


def test_a_journal_has_the_users_calls_and_no_others(url, tmp_path):
    requite("call", f"{url}/nope", "x", "--timeout", "1.5", "--journal", str(tmp_path))
    told = [event for event in events(tmp_path) if event.request_id]
    assert [(event.service, event.kind, event.outcome) for event in told] == [
        ("nope", "accepted", None),
        ("nope", "answered", "NO_SERVICE"),
    ]
    assert (told[1].error_class, told[0].bytes) == ("NoService", 1)
    assert told[0].deadline >= told[1].ts

    requite("call", f"{url}/echo", "x", "--journal", str(tmp_path))
    assert {event.service for event in events(tmp_path) if event.request_id} == {"nope", "echo"}


def test_a_journal_that_cannot_be_kept_is_told_before_anything_is_sent(url, tmp_path):
    (tmp_path / "mine").write_text("mine")
    ended = requite("call", f"{url}/nope", "x", "--journal", str(tmp_path), "--timeout", "30")
    assert (ended.code, "is not a journal" in ended.err) == (ExitCode.USAGE, True)


def test_no_broker():
    plain, record = failure(f"{NOBODY}/echo", "x", "--timeout", "1")
    assert plain.code == ExitCode.NO_CONNECTION
    assert "connection refused" in plain.err
    assert "has not run" in plain.err
    assert f"check that a broker listens at {NOBODY}" in plain.err
    assert (record["status"], record["attempts"]) == ("NO_CONNECTION", 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("http://127.0.0.1/echo", "x"), "mdp://"),
        (
            (NOBODY, "x"),
            f"the service is missing: add it to the URL ({NOBODY}/SERVICE), or give --service NAME",
        ),
        (("127.0.0.1:5555/echo", "x"), "did you mean mdp://127.0.0.1:5555/echo?"),
        ((f"{NOBODY}/echo", "x", "--timeout", "0"), "timeout"),
        ((f"{NOBODY}/echo", "x", "--once", "--dialect", "0.2"), "MDP 0.2"),
    ],
)
def test_what_cannot_work_is_refused_at_once(arguments, told):
    ended = requite("call", *arguments)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert told in ended.err


def test_a_password_in_the_url_is_not_printed():
    ended = requite("call", "mdp://me:secret@127.0.0.1:1/echo", "x", "--timeout", "0.2")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "secret" not in ended.err


def test_a_reader_that_leaves_is_no_error(url):
    with running("call", f"{url}/count", "100000", "--stream") as call:
        assert call.line() == "1"
        call.process.stdout.close()
        assert call.process.wait(20) == 0
        assert call.process.stderr.read() == ""


def test_in_a_terminal_the_reply_ends_its_line(url):
    """Bytes without a newline would otherwise run into the prompt."""
    terminal, inside = pty.openpty()
    words = [*COMMAND, "call", f"{url}/echo", "x"]
    ended = subprocess.run(words, stdout=inside, env=ENVIRONMENT, timeout=WAIT_S, check=False)
    assert ended.returncode == 0
    assert os.read(terminal, 100) == b"x\r\n"
    os.close(inside)
    os.close(terminal)
