"""The parts of the command that need no process: codes, sentences, logs, latencies, credentials."""

from __future__ import annotations

import json
import logging
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.command import write_users

from requite import errors
from requite.cli.credentials import read_one_user, read_users, with_user
from requite.cli.exit_codes import ExitCode, exit_code_of
from requite.cli.failures import advised, is_brokerless, kind_of, place_of, sentence
from requite.cli.latency import bar, histogram, in_ms, percentile
from requite.cli.logs import JsonLines, TextLines
from requite.cli.output import complain, printable
from requite.cli.titanic.ls import _line
from requite.cli.titanic.stats import _say_all
from requite.errors import (
    CallError,
    CallTimeout,
    ConfigurationError,
    RemoteFailure,
    RequiteError,
    TransportError,
)
from requite.shell.warnings import Warnings
from requite.speaks.registry import parse_url

URL = "mdp://127.0.0.1:5555/echo"


def kinds_of(root):
    """Return a class and all below it."""
    return [root, *(each for child in root.__subclasses__() for each in kinds_of(child))]


PUBLIC = [kind for kind in kinds_of(RequiteError) if kind.__module__ == errors.__name__]


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind", [kind for kind in PUBLIC if kind not in (RequiteError, errors.ProtocolViolation)]
)
def test_every_error_has_an_exit_code_of_its_own_kind(kind):
    assert exit_code_of(kind("what happened")) not in (ExitCode.OK, ExitCode.INTERNAL)


@pytest.mark.parametrize("kind", [kind for kind in kinds_of(CallError) if kind is not CallError])
def test_every_failed_call_says_whether_it_may_have_run(kind):
    if kind.__module__ != errors.__name__:
        pytest.skip("a test's own error")
    for may_have_run in (True, False):
        error = kind("what happened", may_have_executed=may_have_run, attempts=1)
        with pytest.raises(kind), advised(URL):
            raise error
        told = sentence(error)
        if kind is errors.RemoteFailure:
            assert told == "the handler failed: what happened"
        else:
            assert ("may have run" if may_have_run else "has not run") in told
        assert "\n" not in told
        assert kind_of(error).name.isupper()


def test_a_timeout_without_a_connection_is_no_connection():
    unsent = CallTimeout("late", may_have_executed=False, attempts=0)
    assert exit_code_of(unsent) == ExitCode.NO_CONNECTION
    assert kind_of(unsent).name == "NO_CONNECTION"
    assert exit_code_of(CallTimeout("late", attempts=1)) == ExitCode.TIMEOUT


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (URL, "mdp://127.0.0.1:5555"),
        ("mdp://a:1,b:2/echo?dialect=0.2", "mdp://a:1,b:2"),
        ("mdp://me:secret@host/echo", "mdp://me:***@host"),
        ("mdp+ipc:///run/b.sock?service=echo", "mdp+ipc:///run/b.sock"),
        ("mdp+inproc://name/echo", "mdp+inproc://name"),
        ("sp+tcp://a:1,b:2?resend=5", "sp+tcp://a:1,b:2"),
        ("sp+ipc:///run/s.sock", "sp+ipc:///run/s.sock"),
        ("sp+wss://host/path/to/it?ca=/x", "sp+wss://host/path/to/it"),
    ],
)
def test_the_place_of_a_url(url, place):
    assert place_of(url) == place


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        (URL, "check that a broker listens at mdp://127.0.0.1:5555"),
        ("sp+tcp://h:1?resend=5", "check that a service or device is reachable at sp+tcp://h:1"),
        ("inproc://name", "check that a service or device is reachable at inproc://name"),
    ],
)
def test_what_to_do_without_a_connection_depends_on_who_should_be_there(url, advice):
    assert is_brokerless(url) == (parse_url(url).protocol == "sp")
    with pytest.raises(CallTimeout) as failed, advised(url):
        raise CallTimeout("it has not run", may_have_executed=False)
    assert sentence(failed.value) == f"it has not run; {advice}"


def test_what_rabbitmq_refuses_it_says_itself():
    url = "amqp://me:secret@host/vhost?queue=echo"
    with pytest.raises(CallTimeout) as unsent, advised(url):
        raise CallTimeout("it has not run", may_have_executed=False)
    advice = "check that RabbitMQ listens at amqp://me:***@host/vhost"
    assert sentence(unsent.value) == f"it has not run; {advice}"
    with pytest.raises(TransportError) as refused, advised(url):
        raise TransportError("RabbitMQ refuses; it has not run", may_have_executed=False)
    assert sentence(refused.value) == "RabbitMQ refuses; it has not run"


# --- credentials ----------------------------------------------------------------------------------
@given(st.text(min_size=1).filter(lambda text: ":" not in text), st.text(min_size=1))
def test_credentials_survive_the_url(name, password):
    try:
        (name + password).encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text
    parsed = parse_url(with_user(URL, (name, password)))
    assert (parsed.user, parsed.password, parsed.service) == (name, password, "echo")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no credentials"),
        ("# only\n\n", "no credentials"),
        ("a:b\nsecret\n", "line 2"),
        (":secret\n", "line 1 of .* is not `user:password`"),
        ("a:secret\nb:\n", "line 2 of .* empty password"),
    ],
)
def test_a_bad_file_of_credentials_is_told_without_its_content(tmp_path, text, told):
    path = write_users(tmp_path / "users", text)
    with pytest.raises(ConfigurationError, match=told) as raised:
        read_users(path)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620])
def test_a_file_of_credentials_belongs_to_one_user(mode, tmp_path):
    path = write_users(tmp_path / "users", "me:secret\n")
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"mode {mode:04o}.*chmod 600") as raised:
        read_users(path)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "Unused Tokens: ['mdp://me:secret@host/echo'].",
        "amqp://me@home:secret@host and mdp://:secret@[::1]:5555",
        "no answer at http://me:sec/secret@host:1/status: refused",
    ],
)
def test_neither_errors_nor_logs_show_a_password(text, capsys):
    complain(text)
    line = logging.makeLogRecord({"msg": "%s", "args": (text,), "url": text})
    shown = [capsys.readouterr().err, TextLines().format(line), JsonLines().format(line)]
    assert [each for each in shown if "secret" in each or "***@" not in each] == []
    assert json.loads(shown[2])["message"].endswith(text.rpartition("@")[2])


def test_who_connects_is_one_user(tmp_path):
    path = write_users(tmp_path / "users", "a:b:c\n")
    assert read_one_user(path) == ("a", "b:c")
    path.write_text("a:b\nc:d\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="names 2 users"):
        read_one_user(path)
    assert read_one_user(None) is None


def test_credentials_are_given_once():
    with pytest.raises(ConfigurationError, match="remove one of them"):
        with_user("mdp://me:secret@host/echo", ("a", "b"))


def test_credentials_spoil_no_hint_at_a_missing_scheme() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean mdp://host/echo\?$"):
        parse_url(with_user("host/echo", ("me", "secret")))


# --- logs -----------------------------------------------------------------------------------------
def record(**facts):
    made = logging.makeLogRecord(
        {
            "name": "requite.x",
            "levelno": logging.INFO,
            "levelname": "INFO",
            "msg": "took %d",
            "args": (3,),
            "created": 0.5,
        }
    )
    vars(made).update(facts)
    return made


def test_a_text_line_ends_with_its_facts():
    line = TextLines().format(record(peer="a b"))
    assert line.endswith(".500 info requite.x: took 3 peer='a b'")


def test_a_json_line_holds_its_facts_and_cannot_be_made_to_lie():
    told = json.loads(JsonLines().format(record(peer="a\nb", level="critical", odd={1})))
    assert told == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "info",
        "logger": "requite.x",
        "message": "took 3",
        "peer": "a\nb",
        "odd": "{1}",
    }


def test_both_show_where_an_exception_came_from():
    try:
        raise ValueError("no")
    except ValueError:
        failed = record(exc_info=sys.exc_info())
    assert "ValueError: no" in TextLines().format(failed)
    assert "ValueError: no" in json.loads(JsonLines().format(failed))["exception"]


# --- latencies ------------------------------------------------------------------------------------
def test_percentiles_are_values_that_occurred():
    ordered = [n / 10 for n in range(1, 11)]
    assert percentile(ordered, 0.5) == 0.5
    assert percentile(ordered, 0.9) == 0.9
    assert percentile(ordered, 0.91) == 1.0
    assert percentile(ordered, 1.0) == 1.0
    assert percentile([7.0], 0.01) == 7.0
    assert math.isnan(percentile([], 0.5))


@given(st.lists(st.floats(1e-6, 100), min_size=1))
def test_a_histogram_counts_every_value_once_and_in_its_place(values):
    buckets = histogram(values)
    assert sum(bucket.size for bucket in buckets) == len(values)
    assert buckets[0].size
    assert buckets[-1].size
    floor = 0.0
    for bucket in buckets:
        inside = [
            value for value in values if floor * 1.0000001 < value < bucket.upto_s * 0.9999999
        ]
        assert len(inside) <= bucket.size
        floor = bucket.upto_s


def test_a_bar_shows_whatever_is_not_nothing():
    assert bar(0, 10) == ""
    assert bar(1, 1_000_000) == "▏"
    assert bar(10, 10) == "█" * 40
    assert bar(5, 10) == "█" * 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0001234, "0.123"), (0.0015, "1.5"), (0.0995, "99.5"), (1.5, "1,500"), (math.nan, "–")],
)
def test_latencies_have_three_digits(seconds, text):
    assert in_ms(seconds) == text


def test_text_from_others_cannot_steer_the_terminal() -> None:
    assert printable("no\x1b[31m\nway\u009b ü ✓ \\") == "no\\x1b[31m\\nway\\x9b ü ✓ \\"


_EVIL = "no\x1b[2J\n10:00:00.000 warning requite.fake: forged\u202e"


def test_errors_of_others_stay_on_their_line(capsys) -> None:
    complain(sentence(RemoteFailure(_EVIL)))
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.rstrip("\n").isprintable()
    assert "\\n10:00:00.000 warning" in told


def test_text_of_others_in_a_log_line_stays_there() -> None:
    heard: list[str] = []
    logger = logging.getLogger("requite.test_parts")
    handler = logging.Handler()
    handler.emit = lambda entry: heard.append(TextLines().format(entry))
    logger.addHandler(handler)
    try:
        Warnings(logger, lambda: 0.0).warn("poisoned", _EVIL)
        logger.warning("a peer says %s", _EVIL)
    finally:
        logger.removeHandler(handler)
    assert len(heard) == 2
    assert all(line.isprintable() for line in heard)


def test_a_traceback_is_indented_so_that_none_of_its_lines_looks_like_ours() -> None:
    try:
        raise ValueError(_EVIL)
    except ValueError:
        failed = logging.LogRecord("n", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    first, *rest = TextLines().format(failed).splitlines()
    assert first.endswith("n: it failed")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_what_a_titanic_tells_of_its_requests_and_its_replica_stays_on_its_line(capsys) -> None:
    row = dict.fromkeys(("submitted_us", "attempts", "size", "reply_size"), 0)
    texts = dict.fromkeys(("ticket", "state", "service", "reason"), _EVIL)
    assert _line({**row, **texts}).isprintable()
    _say_all({"replicating": _EVIL, "store": {"why": _EVIL}})
    assert [line.isprintable() for line in capsys.readouterr().out.splitlines()] == [True] * 2
