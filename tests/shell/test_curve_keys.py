"""Files with keys of CURVE: their format, their modes, and what happens when they change."""

from __future__ import annotations

import logging
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.support.curve import (
    CLIENT_PUBLIC,
    CLIENT_SECRET,
    SERVER,
    SERVER_PUBLIC,
    SERVER_SECRET,
    STRANGER,
)

from requite.broker import Broker
from requite.errors import ConfigurationError
from requite.framing.z85 import decode_z85, encode_z85
from requite.framing.zmtp_curve import CurveClient, CurveServer
from requite.shell.curve import CurveDialler, CurveListener, create_key_file
from requite.speaks.plans import ClientSettings
from requite.speaks.registry import client_plan, parse_url, read_endpoints

STRANGER_SECRET = encode_z85(STRANGER.secret)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a file with mode 0600 and returns its path."""

    def write(name: str, text: str, mode: int = 0o600) -> Path:
        path = tmp_path / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


# --- listeners ------------------------------------------------------------------------------------
def test_a_listener_has_its_keys_in_order_and_admits_those_of_the_file(write: Write) -> None:
    own = write("own", f"# new\n{SERVER_SECRET}\n\n#\n{STRANGER_SECRET} old, until May\n")
    clients = write("clients", f"# ours\n{CLIENT_PUBLIC} ann\n", 0o644)
    listener = CurveListener(own, clients)
    assert listener.public_keys == [SERVER_PUBLIC, STRANGER.public_text]
    mechanism = listener.mechanism()
    assert isinstance(mechanism, CurveServer)
    assert mechanism.own[0] == SERVER
    assert mechanism.check(CLIENT_PUBLIC)
    assert not mechanism.check(STRANGER.public_text)


def test_no_key_begins_with_the_sign_of_comments() -> None:
    assert encode_z85(b"\xff" * 32)[0] == "%"
    with pytest.raises(ValueError, match="above 32 bits"):
        decode_z85("#0000")


def test_a_function_may_decide_which_keys_are_admitted(write: Write) -> None:
    asked: list[str] = []
    listener = CurveListener(write("own", SERVER_SECRET), lambda key: bool(asked.append(key)))
    assert not listener.mechanism().check(CLIENT_PUBLIC)
    assert asked == [CLIENT_PUBLIC]


def test_changed_files_are_read_again_for_the_next_connection(write: Write) -> None:
    own, clients = write("own", SERVER_SECRET), write("clients", f"{CLIENT_PUBLIC}\n")
    listener = CurveListener(own, clients)
    before = listener.mechanism()
    write("own", f"{STRANGER_SECRET}\n{SERVER_SECRET}\n")
    write("clients", f"{STRANGER.public_text}\n")
    assert listener.public_keys == [STRANGER.public_text, SERVER_PUBLIC]
    assert before.own == [SERVER]
    for mechanism in (before, listener.mechanism()):
        assert mechanism.check(STRANGER.public_text)
        assert not mechanism.check(CLIENT_PUBLIC)


@pytest.mark.parametrize("text", ["", "garbage", SERVER_SECRET[:-1], SERVER_SECRET + "x"])
def test_a_bad_file_keeps_the_old_keys_and_is_reported_once(
    text: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    own, clients = write("own", SERVER_SECRET), write("clients", f"{CLIENT_PUBLIC}\n")
    listener = CurveListener(own, clients)
    write("own", text)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert listener.public_keys == [SERVER_PUBLIC]
    assert caplog.text.count("remain as they were") == 1
    assert SERVER_SECRET[:-1] not in caplog.text
    own.unlink()
    clients.unlink()
    assert listener.mechanism().check(CLIENT_PUBLIC)
    assert listener.public_keys == [SERVER_PUBLIC]
    write("own", STRANGER_SECRET)
    assert listener.public_keys == [STRANGER.public_text]


@pytest.mark.parametrize(
    ("own", "clients", "reason"),
    [
        ("", CLIENT_PUBLIC, "has no key"),
        ("# nothing\n", CLIENT_PUBLIC, "has no key"),
        (SERVER_SECRET[:-5], CLIENT_PUBLIC, "the key in line 1 of"),
        (f"# x\n{SERVER_SECRET[:-1]}~", CLIENT_PUBLIC, "the key in line 2 of"),
        (SERVER_SECRET, "ann", "the key in line 1 of"),
        (SERVER_SECRET, "\xff", "the key in line 1 of"),
    ],
)
def test_bad_files_are_refused_at_the_start(
    own: str, clients: str, reason: str, write: Write
) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        CurveListener(write("own", own), write("clients", clients))
    assert SERVER_SECRET[:30] not in str(caught.value)


def test_missing_and_binary_files_are_refused(write: Write, tmp_path: Path) -> None:
    own = write("own", SERVER_SECRET)
    for key_file, clients in ((tmp_path / "no", own), (own, tmp_path / "no")):
        with pytest.raises(ConfigurationError, match="No such file"):
            CurveListener(key_file, clients)
    binary = write("binary", "")
    binary.write_bytes(b"\xff\xfe")
    for key_file, clients in ((binary, own), (own, binary)):
        with pytest.raises(ConfigurationError, match="not UTF-8"):
            CurveListener(key_file, clients)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604])
def test_a_secret_key_that_others_may_read_is_refused(mode: int, write: Write) -> None:
    own = write("own", SERVER_SECRET, mode)
    with pytest.raises(ConfigurationError, match=r"which has secret keys: run `chmod 600"):
        CurveListener(own, lambda _key: True)
    with pytest.raises(ConfigurationError, match=r"which has secret keys: run `chmod 600"):
        CurveDialler(SERVER_PUBLIC, own)


def test_a_broker_checks_users_or_keys(write: Write) -> None:
    listener = CurveListener(write("own", SERVER_SECRET), lambda _key: True)
    with pytest.raises(ConfigurationError, match="not both"):
        Broker("tcp://127.0.0.1:0", users={"ann": "secret"}, curve=listener)
    broker = Broker("tcp://127.0.0.1:0", curve=listener)
    assert SERVER_SECRET not in repr(vars(broker))
    with pytest.raises(ConfigurationError, match="not both"):
        broker.admit({"ann": "secret"})


# --- diallers and new keys ------------------------------------------------------------------------
def test_a_dialler_reads_its_changed_key_again(write: Write) -> None:
    own = write("own", CLIENT_SECRET)
    dialler = CurveDialler(SERVER_PUBLIC, own)
    mechanism = dialler.mechanism()
    assert isinstance(mechanism, CurveClient)
    assert (mechanism.server_key, mechanism.own.public_text) == (SERVER.public, CLIENT_PUBLIC)
    write("own", STRANGER_SECRET)
    assert dialler.mechanism().own.public_text == STRANGER.public_text


def test_the_server_key_may_be_in_a_file_which_is_read_again(write: Write) -> None:
    own = write("own", CLIENT_SECRET)
    server = write("server.pub", f"{SERVER_PUBLIC}\n", 0o644)
    dialler = CurveDialler(str(server), own)
    assert dialler.mechanism().server_key == SERVER.public
    write("server.pub", f"{STRANGER.public_text} from May\n")
    assert dialler.mechanism().server_key == STRANGER.public
    write("server.pub", "")
    assert dialler.mechanism().server_key == STRANGER.public


def test_a_dialler_has_one_key(write: Write) -> None:
    with pytest.raises(ConfigurationError, match="has 2 keys; a client or worker needs"):
        CurveDialler(SERVER_PUBLIC, write("own", f"{CLIENT_SECRET}\n{SERVER_SECRET}\n"))


def test_a_new_key_is_private_and_valid(tmp_path: Path) -> None:
    path = tmp_path / "own.key"
    public = create_key_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert CurveListener(path, lambda _key: True).public_keys == [public]
    assert public != create_key_file(tmp_path / "other.key")
    text = path.read_text()
    with pytest.raises(ConfigurationError, match="exists"):
        create_key_file(path)
    assert path.read_text() == text
    with pytest.raises(ConfigurationError, match="No such file"):
        create_key_file(tmp_path / "missing" / "own.key")


def test_without_pynacl_the_error_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write("own", CLIENT_SECRET)
    monkeypatch.setitem(sys.modules, "nacl.bindings", None)
    for act in (
        lambda: CurveDialler(SERVER_PUBLIC, own),
        lambda: CurveListener(own, lambda _key: True),
        lambda: create_key_file(own.with_name("new")),
    ):
        with pytest.raises(ConfigurationError, match=r"pip install 'requite\[curve\]'"):
            act()


# --- URLs -----------------------------------------------------------------------------------------
KEY = quote(SERVER_PUBLIC, safe="")


def plan(url: str) -> None:
    settings = ClientSettings(None, 16, None, None, 4, 1 << 20)
    client_plan(read_endpoints(url), settings)


@pytest.mark.parametrize("scheme", ["mdp", "flp", "pirate"])
def test_urls_with_keys(scheme: str, write: Write) -> None:
    own = write("own", CLIENT_SECRET)
    url = f"{scheme}://127.0.0.1:5555?curve={KEY}&curve_key_file={own}"
    assert parse_url(url).options["curve"] == SERVER_PUBLIC
    plan(url)


@pytest.mark.parametrize(
    ("query", "listening", "reason"),
    [
        (f"curve={KEY}", False, "requires both options, curve and curve_key_file"),
        ("curve_key_file=F", False, "requires both options, curve and curve_key_file"),
        (f"curve={KEY}&curve_key_file=F&curve_clients=G", False, "only for listening"),
        (f"curve={KEY}&curve_key_file=F", True, "only for connecting"),
        ("curve_key_file=F", True, "requires both options, curve_key_file and curve_clients"),
        ("curve_clients=F", True, "requires both options"),
    ],
)
@pytest.mark.parametrize("scheme", ["flp", "pirate"])
def test_urls_with_options_of_the_other_side_or_only_some(
    scheme: str, query: str, listening: bool, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse_url(f"{scheme}://127.0.0.1:5555?{query}", listening=listening)


def test_urls_with_bad_keys(write: Write, tmp_path: Path) -> None:
    own = write("own", CLIENT_SECRET)
    several = write("several", f"{SERVER_PUBLIC}\n{CLIENT_PUBLIC}\n")
    empty = write("empty", "# no key\n")
    for key, reason in (
        ("short", "No such file"),
        ("~" * 40, "No such file"),
        (several, "has 2 keys; one is needed"),
        (empty, "has 0 keys; one is needed"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ConfigurationError, match=f"is neither 40 characters.*{reason}"):
            plan(f"mdp://h/echo?curve={key}&curve_key_file={own}")
    with pytest.raises(ConfigurationError, match="No such file"):
        plan(f"mdp://h/echo?curve={KEY}&curve_key_file={tmp_path}/no")
    with pytest.raises(ConfigurationError, match="a user name and keys"):
        plan(f"mdp://ann:secret@h/echo?curve={KEY}&curve_key_file={own}")
