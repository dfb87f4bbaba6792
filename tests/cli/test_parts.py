"""Parts of the command that are tested in this process: exit codes, error texts, credentials.

Also log lines, latencies, and escaped text.
"""

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
    """Return a class and all of its subclasses."""
    return [root, *(each for child in root.__subclasses__() for each in kinds_of(child))]


PUBLIC = [kind for kind in kinds_of(RequiteError) if kind.__module__ == errors.__name__]


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind", [kind for kind in PUBLIC if kind not in (RequiteError, errors.ProtocolViolation)]
)
def test_every_error_has_a_specific_exit_code(kind):
    assert exit_code_of(kind("what happened")) not in (ExitCode.OK, ExitCode.INTERNAL)


@pytest.mark.parametrize(
    "kind",
    # Those whose names begin with an underscore are bases, of which no error is raised.
    [
        kind
        for kind in dict.fromkeys(kinds_of(CallError))
        if kind is not CallError and not kind.__name__.startswith("_")
    ],
)
def test_every_failed_call_says_whether_it_may_have_run(kind):
    if kind.__module__ != errors.__name__:
        pytest.skip("a test's own error")
    for may_have_run in (True, False):
        error = kind("what happened", may_have_executed=may_have_run, attempts=1)
        with pytest.raises(kind), advised(URL):
            raise error
        text = sentence(error)
        if kind is errors.RemoteFailure:
            assert text == "the handler failed: what happened"
        else:
            assert ("may have run" if may_have_run else "has not run") in text
        assert "\n" not in text
        assert kind_of(error).name.isupper()


def test_a_timeout_before_the_first_attempt_has_the_code_no_connection():
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
def test_the_advice_without_a_connection_depends_on_the_protocol(url, advice):
    assert is_brokerless(url) == (parse_url(url).protocol == "sp")
    with pytest.raises(CallTimeout) as failed, advised(url):
        raise CallTimeout("it has not run", may_have_executed=False)
    assert sentence(failed.value) == f"it has not run; {advice}"


def test_a_refusal_by_rabbitmq_gets_no_advice():
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
        return  # a lone surrogate cannot be encoded
    parsed = parse_url(with_user(URL, (name, password)))
    assert (parsed.user, parsed.password, parsed.service) == (name, password, "echo")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no credentials"),
        ("# only\n\n", "no credentials"),
        ("a:b\nsecret\n", "line 2"),
        (":secret\n", "line 1 of .* is not `user:password`"),
        ("a:secret\nb:\n", "line 2 of .* empty password"),
    ],
)
def test_errors_about_a_credentials_file_hide_its_content(tmp_path, text, message):
    path = write_users(tmp_path / "users", text)
    with pytest.raises(ConfigurationError, match=message) as raised:
        read_users(path)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620])
def test_a_credentials_file_that_others_may_use_is_refused(mode, tmp_path):
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


def test_a_client_has_one_user(tmp_path):
    path = write_users(tmp_path / "users", "a:b:c\n")
    assert read_one_user(path) == ("a", "b:c")
    path.write_text("a:b\nc:d\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="names 2 users"):
        read_one_user(path)
    assert read_one_user(None) is None


def test_credentials_in_both_url_and_file_are_refused():
    with pytest.raises(ConfigurationError, match="remove one of them"):
        with_user("mdp://me:secret@host/echo", ("a", "b"))


def test_a_missing_scheme_is_suggested_with_credentials_too() -> None:
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


def test_facts_do_not_overwrite_the_fields_of_a_json_line():
    fields = json.loads(JsonLines().format(record(peer="a\nb", level="critical", odd={1})))
    assert fields == {
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


def test_a_bar_shows_every_count_above_zero():
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


def test_control_characters_are_escaped() -> None:
    assert printable("no\x1b[31m\nway\u009b ü ✓ \\") == "no\\x1b[31m\\nway\\x9b ü ✓ \\"


_EVIL = "no\x1b[2J\n10:00:00.000 warning requite.fake: forged\u202e"


def test_remote_errors_are_printed_on_one_line(capsys) -> None:
    complain(sentence(RemoteFailure(_EVIL)))
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()
    assert "\\n10:00:00.000 warning" in text


def test_remote_text_stays_on_its_log_line() -> None:
    lines: list[str] = []
    logger = logging.getLogger("requite.test_parts")
    handler = logging.Handler()
    handler.emit = lambda entry: lines.append(TextLines().format(entry))
    logger.addHandler(handler)
    try:
        Warnings(logger, lambda: 0.0).warn("poisoned", _EVIL)
        logger.warning("a peer says %s", _EVIL)
    finally:
        logger.removeHandler(handler)
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_the_lines_of_a_traceback_are_indented_and_escaped() -> None:
    try:
        raise ValueError(_EVIL)
    except ValueError:
        failed = logging.LogRecord("n", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    first, *rest = TextLines().format(failed).splitlines()
    assert first.endswith("n: it failed")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_text_from_a_titanic_stays_on_its_line(capsys) -> None:
    row = dict.fromkeys(("submitted_us", "attempts", "size", "reply_size"), 0)
    texts = dict.fromkeys(("ticket", "state", "service", "reason"), _EVIL)
    assert _line({**row, **texts}).isprintable()
    _say_all({"replicating": _EVIL, "store": {"why": _EVIL}})
    assert [line.isprintable() for line in capsys.readouterr().out.splitlines()] == [True] * 2
