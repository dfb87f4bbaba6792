"""`--config` and `--check`: options of servers in a file, and what is wrong with them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.command import requite, running, state, write_users
from tests.cli.config_page import PAGE, VERBS, main, render
from tests.cli.conftest import Refusal

from requite.cli.app import build
from requite.cli.config import key_of, stands_in_file
from requite.cli.exit_codes import ExitCode

ANY = 'bind = ["tcp://127.0.0.1:0"]\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.toml"


# --- a running server -----------------------------------------------------------------------------
@pytest.mark.e2e
def test_a_broker_reads_its_options(file: Path) -> None:
    write_users(file.parent / "users", "ann:secret\n")
    file.write_text(f'{ANY}log_format = "json"\ncredentials_file = "{file.parent}/users"\n')
    with running("broker", "--config", str(file)) as broker:
        address = broker.line().removeprefix("listening on tcp://")
        assert not state(f"mdp://ann:secret@{address}")["draining"]
        refused = requite("call", f"mdp://{address}", "--service", "mmi.ping")
        assert refused.code == ExitCode.NO_CONNECTION
        assert json.loads(broker.error_line())["logger"] == "requite.broker"


@pytest.mark.e2e
def test_the_command_line_wins_over_the_file(file: Path) -> None:
    path = file.parent / "other.sock"
    file.write_text(ANY)
    with running("broker", "--config", str(file), "--bind", f"ipc://{path}") as broker:
        assert broker.line() == f"listening on ipc://{path}"
        broker.send(signal.SIGTERM)
        assert broker.end() == (ExitCode.OK, "", "")


@pytest.mark.e2e
def test_a_worker_reads_its_targets(file: Path) -> None:
    file.write_text(f'targets = ["requite.examples:echo"]\n{ANY.replace("tcp", "sp+tcp")}')
    with running("worker", "--config", str(file)) as worker:
        assert worker.line().startswith("serving echo at sp+tcp://127.0.0.1:")


# --- one option, one file -------------------------------------------------------------------------
def checked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Check the options of a verb, which must be valid; return what the server would do."""
    from requite.cli import main as command

    assert command([*words, "--check"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_environment_wins_over_the_file(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_users(file.parent / "two", "ann:a\nben:b\n")
    file.write_text('credentials_file = "/nonexistent"\n')
    monkeypatch.setenv("REQUITE_CREDENTIALS_FILE", str(file.parent / "two"))
    assert "2 users of" in checked(capsys, "broker", "--config", str(file))


def test_an_option_of_the_file_is_turned_off(
    file: Path, capsys: pytest.CaptureFixture[str], refusal: Refusal
) -> None:
    file.write_text("primary = true\n")
    assert "--primary" in refusal("broker", "--config", str(file), "--check")
    checked(capsys, "broker", "--config", str(file), "--primary=false")


@pytest.mark.parametrize(
    ("verb", "text", "what_it_would_do"),
    [
        ("broker", ANY, "the broker would listen on tcp://127.0.0.1:0"),
        ("broker", "verbose = 2\ntell_old_clients = true", "the broker would listen on"),
        ("broker", 'partials_for_0_1 = "refuse"', "the broker would listen on"),
        (
            "worker",
            'targets = ["requite.examples:echo", "requite.examples:fail"]\nconnect = ["mdp://h"]',
            "the worker would serve echo, fail for mdp://h",
        ),
        (
            "device",
            'front = ["sp+tcp://127.0.0.1:0"]\nback = ["sp+tcp://h:1", "sp+tcp://i:1"]',
            "would listen on sp+tcp://127.0.0.1:0; and connect to sp+tcp://h:1 and sp+tcp://i:1",
        ),
        ("queue", 'protocol = "simple"', "the simple queue would listen on tcp://127.0.0.1:5555"),
        ("titanic serve", 'broker = "mdp://h"\nmemory = true', "would store requests for mdp://h"),
        ("titanic", 'broker = "mdp://h"\ndir = "d"', "would store requests for mdp://h in d"),
    ],
)
def test_check_says_what_a_server_would_do(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    text: str,
    what_it_would_do: str,
) -> None:
    monkeypatch.chdir(file.parent)
    file.write_text(text)
    out = checked(capsys, *verb.split(), "--config", file.name)
    assert out.startswith("server.toml is valid; ")
    assert what_it_would_do in out
    assert list(file.parent.iterdir()) == [file]  # nothing was created


def test_check_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, "broker").startswith("the options are valid; the broker would listen on")


def test_every_option_of_a_server_has_a_key_of_its_own() -> None:
    for verb in VERBS:
        app: Any = build()
        for word in verb.split():
            app = app[word]
        arguments = app.assemble_argument_collection()
        keys = [key_of(each) for each in arguments if stands_in_file(each)]
        assert len(keys) == len(set(keys)) > 10, verb
        assert all(key.isidentifier() for key in keys), verb
        options = {name for each in arguments for name in each.names if name.startswith("--")}
        absent = {name for name in options if name[2:].replace("-", "_").replace(".", "_") in keys}
        left = {name for name in options - absent if not name.startswith(("--no-", "--empty-"))}
        assert left == {"--config", "--check"}, verb


# --- what is wrong --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verb", "text", "message"),
    [
        ("broker", "queue_maxi = 5", "unknown option queue_maxi; did you mean queue_max?"),
        ("broker", "queue-max = 5", "unknown option queue-max; did you mean queue_max?"),
        ("broker", "zzz = 5", "unknown option zzz; `requite broker --help` lists them"),
        ("titanic", "zzz = 5", "unknown option zzz; `requite titanic serve --help` lists them"),
        ("broker", "check = true", "unknown option check"),
        ("broker", 'config = "other.toml"', "unknown option config"),
        ("broker", "[limits]\nqueue_max = 5", "unknown table [limits]; write options above it"),
        ("broker", 'partials-for-0.1 = "join"', "did you mean partials_for_0_1?"),
        ("broker", 'queue_max = "5"', 'queue_max: must be a whole number, such as 10, not "5"'),
        ("broker", "queue_max = 5.0", "queue_max: must be a whole number, such as 10, not 5.0"),
        ("broker", "queue_max = true", "queue_max: must be a whole number, such as 10, not true"),
        ("broker", "queue_max = {a = 1}", "queue_max: must be a whole number"),
        ("broker", 'drain_timeout = "1"', "drain_timeout: must be a number, such as 2.5"),
        ("broker", "drain_timeout = 1979-05-27", "not 1979-05-27"),
        ("broker", "tell_old_clients = 1", "tell_old_clients: must be true or false, not 1"),
        ("broker", "journal = 1", 'journal: must be a string in quotes, such as "A", not 1'),
        ("broker", 'bind = "tcp://h:1"', 'bind: must be a list of strings, such as ["A", "B"]'),
        ("broker", "bind = [1]", "bind: must be a list of strings"),
        ("broker", "bind = []", "bind: must be a list of strings"),
        ("broker", "queue_max = 0", "queue_max: 0 is not valid: queue_max must be at least 1"),
        ("broker", "attempts = 256", "attempts: 256 is not valid: attempts_max is 1 to 255"),
        ("broker", "message_size_max = 0", "message_size_max: 0 is not valid: Must be > 0"),
        ("broker", "partial_size_max = 0", "partial_size_max: 0 is not valid: Must be > 0"),
        ("broker", "heartbeat_interval = 99", "heartbeat_interval: 99 is not valid"),
        ("broker", "service_grace = nan", "service_grace: nan is not valid: must be a finite"),
        ("broker", "liveness = 1", "liveness: 1 is not valid: liveness must be between 2 and 100"),
        ("broker", "pair_heartbeat = 0", "pair_heartbeat: 0 is not valid"),
        ("broker", 'peer = "tcp://*:1"', 'peer: "tcp://*:1" is not valid'),
        ("broker", "verbose = -1", "verbose: -1 is not valid"),
        ("broker", 'log_format = "xml"', 'Choose from: "text", "json"'),
        ("broker", 'bind = ["h"]', "bind: [\"h\"] is not valid: cannot read the address 'h'"),
        ("worker", 'connect = ["mdp:/h"]', 'connect: ["mdp:/h"] is not valid'),
        ("worker", "hops = 0", "hops: 0 is not valid: hops is 1 to 255"),
        ("worker", "wait_connected = inf", "wait_connected: inf is not valid"),
        ("device", "hops = 1", "hops: 1 is not valid: hops is 2 to 255"),
        ("queue", 'front = ["h"]', 'front: ["h"] is not valid'),
        ("titanic", "expire = 0", "expire: 0 is not valid: Must be > 0"),
        ("titanic", 'broker = "h"', 'broker: "h" is not valid'),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(
    file: Path, refusal: Refusal, verb: str, text: str, message: str
) -> None:
    file.write_text(text)
    err = refusal(verb, "--config", str(file))
    assert err.startswith(f"requite: {file}: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"queue_max", "is not TOML: Expected '=' after a key in a key/value pair (at end of"),
        (b"queue_max = 1\nqueue_max = 2\n", "(at line 2, column 14)"),
        (b"journal = '\xff'", "is not a text file in UTF-8"),
    ],
)
def test_a_file_that_is_not_toml_is_refused(
    file: Path, refusal: Refusal, text: bytes, message: str
) -> None:
    file.write_bytes(text)
    err = refusal("broker", "--config", str(file))
    assert err.startswith(f"requite: {file} is not ")
    assert message in err


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    missing = refusal("broker", "--config", str(tmp_path / "none.toml"))
    assert (
        missing
        == f"requite: --config: cannot read {tmp_path}/none.toml: No such file or directory\n"
    )
    assert "Is a directory" in refusal("broker", "--config", str(tmp_path))


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("worker", 'connect = ["amqp://ann:hunter2@h/"]'),
        ("broker", 'titanic_replica = "mdp://ann:hunter2@h"'),
    ],
)
def test_a_password_in_the_file_is_refused(
    file: Path, refusal: Refusal, verb: str, text: str
) -> None:
    file.write_text(text)
    err = refusal(verb, "--config", str(file))
    assert "the URL has a password; remove it" in err
    assert "hunter2" not in err


def test_a_path_is_no_url(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f'journal = "{file.parent}/a:b@c"')
    assert "is valid" in checked(capsys, "broker", "--config", str(file))


@pytest.mark.parametrize(
    ("verb", "text", "message"),
    [
        ("broker", "primary = true", "--pair-bind and --peer"),
        ("broker", 'titanic_disk_max = "3q"\ntitanic_memory = true', "--titanic-disk-max"),
        ("broker", 'credentials_file = "/nonexistent"', "/nonexistent"),
        ("broker", 'titanic = "/dev/null/store"', "--titanic: /dev/null is not a folder"),
        ("queue", 'protocol = "simple"\nliveness = 3', "--liveness"),
        ("worker", 'targets = ["requite.examples:no"]\nconnect = ["mdp://h"]', "'no'"),
    ],
)
def test_options_that_contradict_each_other_are_refused_with_the_file(
    file: Path, refusal: Refusal, verb: str, text: str, message: str
) -> None:
    file.write_text(text)
    err = refusal(verb, "--config", str(file), "--check").splitlines()[-1]
    assert message in err
    assert err.endswith(f"; {file} sets options of this command, too")


def test_check_finds_a_folder_that_the_user_may_not_write_to(
    tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write to every folder, so the system's answer is replaced."""
    monkeypatch.setattr(os, "access", lambda path, _mode: path != tmp_path)
    there = refusal("broker", "--journal", str(tmp_path), "--check")
    assert f"--journal: this user cannot write to {tmp_path}" in there
    new = refusal("broker", "--titanic", f"{tmp_path}/a/b", "--check")
    assert f"--titanic: this user cannot create {tmp_path}/a/b in {tmp_path}" in new


def test_a_value_of_the_command_line_is_refused_with_its_option(refusal: Refusal) -> None:
    too_small = "requite: --queue-max: queue_max must be at least 1, not 0\n"
    assert refusal("broker", "--queue-max", "0") == too_small
    assert refusal("broker", "--bind", "h").startswith("requite: --bind: cannot read the address")


# --- any file -------------------------------------------------------------------------------------
def keys_of(verb: str) -> list[str]:
    """Return the keys that the file of a verb may have."""
    app: Any = build()
    for word in verb.split():
        app = app[word]
    return [key_of(each) for each in app.assemble_argument_collection() if stands_in_file(each)]


VALUES = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["tcp://127.0.0.1:0", "mdp://h", "sp+tcp://h:1", "ipc:///x", "1g", "sync"])
    | st.dates()
    | st.times(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("verb", VERBS)
@given(data=st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_valid_or_refused_with_a_sentence(
    verb: str, data: st.DataObject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from requite.cli import main as command

    table = data.draw(st.dictionaries(st.sampled_from(keys_of(verb)), VALUES, max_size=4))
    file = tmp_path / "any.toml"
    file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tomllib.loads", lambda _text: table)
        code = command([*verb.split(), "--config", str(file), "--check"])
    out, err = capsys.readouterr()
    assert code in (ExitCode.OK, ExitCode.USAGE), err
    assert (out == "") == (code == ExitCode.USAGE)
    assert not err or err.startswith("requite: ")


# --- the page -------------------------------------------------------------------------------------
def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    assert main(tmp_path / "config.md") == 0
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "docs/reference/config.md is out of date; write it: python -m tests.cli.config_page"
    )
