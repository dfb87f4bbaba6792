"""Keys of CURVE on the command line: make them, serve and call with them, and bad ones."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests.cli.command import requite, running, running_broker

from requite.cli.credentials import with_keys
from requite.cli.exit_codes import ExitCode
from requite.errors import ConfigurationError
from requite.framing.z85 import decode_z85

pytestmark = pytest.mark.e2e


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Public keys by name, made by the command; the secret ones are in files of these names."""
    made = {}
    for name in ("broker", "shop", "stranger"):
        ended = requite("keys", "new", "curve", str(tmp_path / name))
        assert (ended.code, ended.err) == (0, "")
        made[name] = ended.out.strip()
    return made


def secret_of(path: Path) -> str:
    return path.read_text().splitlines()[-1]


def test_a_broker_a_worker_and_calls_with_keys(keys: dict[str, str], tmp_path: Path) -> None:
    clients = tmp_path / "clients"
    clients.write_text(f"{keys['shop']} shop\n")
    own = ("--curve-server-key", keys["broker"], "--curve-key-file", str(tmp_path / "shop"))
    guard = ("--curve-key-file", str(tmp_path / "broker"), "--curve-clients", str(clients))
    with running_broker(*guard) as (broker, url):
        with running("worker", "requite.examples:echo", "--connect", url, *own) as worker:
            assert worker.line()
            ended = requite("call", f"{url}/echo", "hello", *own)
            assert (ended.code, ended.out) == (0, "hello")
            ended = requite("services", url, *own)
            assert "echo" in ended.out
            began = time.monotonic()
            for other, told in (
                ((), "requires keys (ZMTP CURVE)"),
                ((*own[:3], str(tmp_path / "stranger")), "does not admit the key"),
                ((own[0], keys["stranger"], *own[2:]), "does not have the server key"),
            ):
                ended = requite("call", f"{url}/echo", "hello", *other, "--timeout", "60")
                assert (ended.code, ended.out) == (ExitCode.NO_CONNECTION, "")
                assert told in ended.err
                assert "the request has not run" in ended.err
            assert time.monotonic() - began < 60
        broker.process.send_signal(signal.SIGTERM)
        code, _out, log = broker.end()
    assert code == 0
    assert keys["stranger"] in log
    shown = ended.err + log
    assert not [name for name in keys if secret_of(tmp_path / name) in shown]


def test_a_key_file_is_never_overwritten(keys: dict[str, str], tmp_path: Path) -> None:
    before = (tmp_path / "shop").read_bytes()
    ended = requite("keys", "new", "curve", str(tmp_path / "shop"))
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert "exists" in ended.err
    assert (tmp_path / "shop").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--curve-key-file", "own"), "requires two files"),
        (("--curve-clients", "clients"), "requires two files"),
        (("--curve-key-file", "no", "--curve-clients", "no"), "No such file"),
    ],
)
def test_a_broker_with_bad_options_does_not_start(options: tuple[str, ...], told: str) -> None:
    ended = requite("broker", "--bind", "tcp://127.0.0.1:0", *options)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert told in ended.err


def test_a_server_key_may_begin_with_a_hyphen(keys: dict[str, str], tmp_path: Path) -> None:
    key = "-" + "0" * 39
    own = ("--curve-server-key", key, "--curve-key-file", str(tmp_path / "shop"))
    ended = requite("call", "sp+tcp://127.0.0.1:1", "x", *own)
    assert "sp+tcp:// has no keys of CURVE" in ended.err


def test_options_make_a_url() -> None:
    key, file = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", Path("own key")
    shown = "curve=rq%3ArM%3E%7DU%3F%40Lns47E1%25kR.o%40n%25FcmmsL%2F%40%7BH8%5Dyf7"
    assert with_keys("mdp://h/echo", None, None) == "mdp://h/echo"
    expected = f"mdp://h/echo?{shown}&curve_key_file=own%20key"
    assert with_keys("mdp://h/echo", key, file) == expected
    assert with_keys("flp://h:1?model=agent", key, file).startswith("flp://h:1?model=agent&curve=")
    for url, given, told in (
        ("mdp://h/echo", (key, None), "requires both"),
        ("mdp://h/echo", (None, file), "requires both"),
        ("sp+tcp://h:1", (key, file), "has no keys of CURVE"),
        ("amqp://h?queue=q", (key, file), "has no keys of CURVE"),
        (expected, (key, file), "remove one of them"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            with_keys(url, *given)


def test_secret_keys_are_in_no_log_journal_or_command_line(
    keys: dict[str, str], tmp_path: Path
) -> None:
    clients, server_key = tmp_path / "clients", tmp_path / "broker.pub"
    clients.write_text(f"{keys['shop']} shop\n")
    server_key.write_text(keys["broker"])
    own = ("--curve-server-key", str(server_key), "--curve-key-file", str(tmp_path / "shop"))
    guard = ("--curve-key-file", str(tmp_path / "broker"), "--curve-clients", str(clients))
    journal = ("--journal", str(tmp_path / "journal"), "-vv")
    with running_broker(*guard, *journal) as (broker, url):
        with running("worker", "requite.examples:echo", "--connect", url, *own, *journal) as worker:
            assert worker.line()
            shown = [requite("call", f"{url}/echo", "hello", *own, "-vv").err]
            strange = (*own[:3], str(tmp_path / "stranger"), "-vv")
            shown.append(requite("call", f"{url}/echo", "hello", *strange).err)
            pids = [each.process.pid for each in (broker, worker)]
            shown += [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids]
            worker.send(signal.SIGTERM)
            shown += worker.end()[1:]
        broker.send(signal.SIGTERM)
        shown += broker.end()[1:]
    logs = [path.read_bytes() for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    assert logs
    for name in keys:
        secret = secret_of(tmp_path / name)
        assert secret not in "".join(shown)
        for data in logs:
            assert secret.encode() not in data
            assert decode_z85(secret) not in data
    assert keys["stranger"] in "".join(shown)
