"""`requite call`: request bodies, replies, and errors as text and as JSON."""

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
UNREACHABLE = "mdp://127.0.0.1:1"  # nothing listens at port 1 (tcpmux)


def test_the_reply_is_written_to_stdout_unchanged(url):
    ended = requite("call", f"{url}/echo", "hello, world")
    assert (ended.code, ended.stdout, ended.err) == (0, b"hello, world", "")


@pytest.mark.parametrize("word", [("-",), ()])
def test_the_body_is_read_from_stdin(url, word):
    ended = requite("call", f"{url}/echo", *word, stdin=NOT_UTF8)
    assert (ended.code, ended.stdout) == (0, NOT_UTF8)


def test_a_body_may_begin_with_a_hyphen(url):
    assert requite("call", f"{url}/echo", "-5").stdout == b"-5"


def test_an_argument_that_is_not_utf8_is_sent_unchanged(url):
    assert requite("call", f"{url}/echo", os.fsdecode(b"\xff\xfe")).stdout == b"\xff\xfe"


def test_the_service_may_be_given_as_an_option(url):
    assert requite("call", url, "x", "--service", "echo").stdout == b"x"


@pytest.mark.parametrize("dialect", ["0.1", "0.2", "0.3"])
def test_every_dialect_gets_its_reply(url, dialect):
    assert requite("call", f"{url}/echo", "x", "--dialect", dialect).stdout == b"x"


def test_partial_replies_are_joined_without_stream(url):
    assert requite("call", f"{url}/count", "3").stdout == b"123"


def test_a_stream_is_printed_without_delay(url):
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
    records = [json.loads(line) for line in lines]
    assert [(each["status"], each["body"]) for each in records] == [
        ("PARTIAL", "1"),
        ("PARTIAL", "2"),
        ("OK", ""),
    ]
    assert [each.get("index") for each in records] == [0, 1, None]


# --- failures -------------------------------------------------------------------------------------
def failure(*arguments):
    """Run a call that fails, without and with `--json`; return the first run and the JSON object.

    Both runs must have the same exit code.
    """
    plain, for_scripts = requite("call", *arguments), requite("call", *arguments, "--json")
    assert plain.code == for_scripts.code
    assert plain.out == for_scripts.err == ""
    assert re.fullmatch(r"requite: [^\n]+\n", plain.err)
    return plain, for_scripts.record


def test_a_handler_that_raises_an_error(url):
    plain, record = failure(f"{url}/fail", "out of stock")
    assert plain.code == ExitCode.FAILED
    reason, request_id = plain.err.rstrip("\n").split("; request ID ")
    assert reason == "requite: the handler failed: ValueError: out of stock"
    assert re.fullmatch(r"[0-9a-f]{32}", request_id)
    assert request_id != record["request_id"]  # each run has a request of its own
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
def silent_broker():
    """The URL of a stub broker that accepts connections and never answers.

    A broker of RFC 7 behaves like this to clients of MDP 0.3.
    """
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        yield f"mdp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}/echo"


def test_a_timeout_at_a_silent_broker_suggests_another_dialect(silent_broker):
    heartbeat = HeartbeatPolicy(0.05)
    with (
        Client(silent_broker, heartbeat=heartbeat) as client,
        pytest.raises(CallTimeout) as caught,
        advised(silent_broker),
    ):
        client.call(b"x", timeout=0.4)
    message = sentence(caught.value)
    assert "may have run" in message
    assert "if it supports only 0.2 (RFC 18) or 0.1 (RFC 7), set that dialect: --dialect" in message
    assert "requite services" not in message  # it would not get an answer, either


def test_a_timeout_soon_after_a_heartbeat_suggests_no_dialect(silent_broker):
    # The client sends its first heartbeat after 1 s.
    ended = requite("call", silent_broker, "x", "--timeout", "1.2")
    assert ended.code == ExitCode.TIMEOUT
    assert "dialect" not in ended.err
    assert "requite services" in ended.err


def test_a_service_without_workers(url):
    plain, record = failure(f"{url}/nope", "x", "--timeout", "1.5")
    assert plain.code == ExitCode.UNAVAILABLE
    assert "no worker serves 'nope'" in plain.err
    assert "has not run" in plain.err
    assert (record["status"], record["may_have_executed"]) == ("NO_SERVICE", False)


def test_a_journal_holds_only_the_calls_of_the_user(url, tmp_path):
    requite("call", f"{url}/nope", "x", "--timeout", "1.5", "--journal", str(tmp_path))
    recorded = [event for event in events(tmp_path) if event.request_id]
    assert [(event.service, event.kind, event.outcome) for event in recorded] == [
        ("nope", "accepted", None),
        ("nope", "answered", "NO_SERVICE"),
    ]
    assert (recorded[1].error_class, recorded[0].bytes) == ("NoService", 1)
    assert recorded[0].deadline >= recorded[1].ts

    requite("call", f"{url}/echo", "x", "--journal", str(tmp_path))
    assert {event.service for event in events(tmp_path) if event.request_id} == {"nope", "echo"}


def test_an_unusable_journal_folder_is_refused_before_the_call(url, tmp_path):
    (tmp_path / "mine").write_text("mine")
    ended = requite("call", f"{url}/nope", "x", "--journal", str(tmp_path), "--timeout", "30")
    assert (ended.code, "is not a journal" in ended.err) == (ExitCode.USAGE, True)


def test_no_broker():
    plain, record = failure(f"{UNREACHABLE}/echo", "x", "--timeout", "1")
    assert plain.code == ExitCode.NO_CONNECTION
    assert "connection refused" in plain.err
    assert "has not run" in plain.err
    assert f"check that a broker listens at {UNREACHABLE}" in plain.err
    assert (record["status"], record["attempts"]) == ("NO_CONNECTION", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("http://127.0.0.1/echo", "x"), "mdp://"),
        (
            (UNREACHABLE, "x"),
            f"the service is missing: add it to the URL ({UNREACHABLE}/SERVICE), or give --service"
            " NAME",
        ),
        (("127.0.0.1:5555/echo", "x"), "did you mean mdp://127.0.0.1:5555/echo?"),
        ((f"{UNREACHABLE}/echo", "x", "--timeout", "0"), "timeout"),
        ((f"{UNREACHABLE}/echo", "x", "--once", "--dialect", "0.2"), "MDP 0.2"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    ended = requite("call", *arguments)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert message in ended.err


def test_a_password_in_the_url_is_not_printed():
    ended = requite("call", "mdp://me:secret@127.0.0.1:1/echo", "x", "--timeout", "0.2")
    assert ended.code == ExitCode.NO_CONNECTION
    assert "secret" not in ended.err


def test_a_closed_stdout_is_not_an_error(url):
    with running("call", f"{url}/count", "100000", "--stream") as call:
        assert call.line() == "1"
        call.process.stdout.close()
        assert call.process.wait(20) == 0
        assert call.process.stderr.read() == ""


def test_in_a_terminal_the_reply_ends_with_a_newline(url):
    """The newline keeps the reply apart from the shell's prompt."""
    terminal, inside = pty.openpty()
    words = [*COMMAND, "call", f"{url}/echo", "x"]
    ended = subprocess.run(words, stdout=inside, env=ENVIRONMENT, timeout=WAIT_S, check=False)
    assert ended.returncode == 0
    assert os.read(terminal, 100) == b"x\r\n"
    os.close(inside)
    os.close(terminal)
