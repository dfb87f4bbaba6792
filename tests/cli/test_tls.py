"""The options of TLS on the command line: commands that listen, and commands that connect."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.cli.command import COMMAND, requite, running
from tests.support.certificates import Certificates

from requite.cli.exit_codes import ExitCode
from requite.cli.tls import NO_TLS, Tls
from requite.errors import ConfigurationError
from requite.testing.processes import free_ports

ECHO = "requite.examples:echo"
SECURE = "tls://127.0.0.1:0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("files"))


def listening(certificates: Certificates) -> tuple[str, ...]:
    """Return the options of a listener that verifies its peers."""
    shown = certificates.server
    files = ("--tls-certificate", shown.certificate, "--tls-key", shown.key)
    return (*files, "--tls-ca", certificates.ca)


def dialling(certificates: Certificates, key: str = "key") -> str:
    """Return the options of a URL."""
    shown = certificates.client
    return f"?ca={certificates.ca}&certificate={shown.certificate}&{key}={shown.key}"


@pytest.mark.e2e
def test_a_call_through_a_broker(certificates: Certificates) -> None:
    with running("broker", "--bind", SECURE, *listening(certificates)) as broker:
        place = broker.line().removeprefix("listening on tls://")
        options = dialling(certificates, "certificate_key")
        url = f"mdp+tls://{place}"
        with running("worker", ECHO, "--connect", url + options) as worker:
            assert worker.line() == f"serving echo for {url}{options}"
            assert requite("call", f"{url}/echo{options}", "hello").out == "hello"
            assert "echo" in requite("services", url + options).out
            stranger = requite("call", f"{url}/echo?ca={certificates.ca}", "x", "--timeout", "2")
            assert stranger.code == ExitCode.NO_CONNECTION
            assert "the peer refused TLS: certificate required" in stranger.err


@pytest.mark.e2e
@pytest.mark.parametrize("scheme", ["flp+tls", "pirate+tls", "sp+tls"])
def test_a_call_of_a_worker_that_listens(certificates: Certificates, scheme: str) -> None:
    bind = f"{scheme}://127.0.0.1:0"
    with running("worker", ECHO, "--bind", bind, *listening(certificates)) as worker:
        url = worker.line().removeprefix("serving echo at ")
        assert url.startswith(f"{scheme}://127.0.0.1:")
        assert requite("call", url + dialling(certificates), "hello").out == "hello"


@pytest.mark.e2e
def test_a_call_through_a_queue(certificates: Certificates) -> None:
    sides = ("--front", SECURE, "--back", SECURE)
    with running("queue", *sides, *listening(certificates)) as queue:
        front, back = (queue.line().split()[2] for _ in sides[::2])
        url = back.replace("?", dialling(certificates) + "&")
        with running("worker", ECHO, "--connect", url) as worker:
            assert worker.line().startswith("serving echo for ")
            assert requite("call", front + dialling(certificates), "hello").out == "hello"


@pytest.mark.e2e
def test_a_pair_over_tls(certificates: Certificates) -> None:
    one, other = (f"tls://127.0.0.1:{port}" for port in free_ports(2))
    link = ("--bind", SECURE, "--primary", "--pair-bind", one, "--peer", other)
    with running("broker", *link, *listening(certificates)) as broker:
        assert broker.line().startswith("listening on tls://")
        seen = requite("pair", "status", one + dialling(certificates))
        assert "primary" in seen.out, seen.err


@pytest.mark.e2e
def test_a_pool_at_a_broker(certificates: Certificates, tmp_path: Path) -> None:
    """The manager and the workers that it starts use the same URL."""
    file = tmp_path / "pool.toml"
    command = json.dumps([*COMMAND, "worker", ECHO, "--pool"])
    state = json.dumps(str(tmp_path / "state"))
    file.write_text(
        f'[pool]\nname = "core"\n[http]\nport = 0\n[driver]\ncommand = {command}\n'
        f"state_dir = {state}\n"
    )
    with running("broker", "--bind", SECURE, *listening(certificates)) as broker:
        place = broker.line().removeprefix("listening on tls://")
        url = f"mdp+tls://{place}{dialling(certificates, 'certificate_key')}"
        with running("pool", "run", "--config", str(file), "--broker", url) as manager:
            assert manager.line().startswith("pool core at http://")
            called = requite("call", f"{url}&pool=core&key=42", "hello", "--timeout", "20")
            assert called.out == "hello", called.err
            manager.send(signal.SIGTERM)
            assert manager.end()[0] == ExitCode.OK


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("broker", "--bind", SECURE), "--tls-certificate and --tls-key"),
        (("broker", "--bind", SECURE, "--tls-certificate", "/nowhere"), "'/nowhere': no such file"),
        (("broker", "--tls-ca", "x", "--bind", "tcp://127.0.0.1:0"), "no address uses TLS"),
        (("queue", "--tls-ca", "x"), "no address uses TLS"),
        (("worker", ECHO, "--connect", "mdp://x", "--tls-key", "x"), "no address uses TLS"),
        (("call", "mdp+tls://x/echo?ca=/nowhere", "x"), "cannot use the ca '/nowhere'"),
    ],
)
def test_mistakes(words: tuple[str, ...], why: str) -> None:
    ended = requite(*words)
    assert ended.code == ExitCode.USAGE, ended.err
    assert why in ended.err


# --- without a process ----------------------------------------------------------------------------
def test_options_are_added_where_there_are_none() -> None:
    tls = Tls(Path("/c d.pem"), Path("k&.pem"), Path("ca.pem"))
    options = "certificate=/c%20d.pem&key=k%26.pem&ca=ca.pem"
    given = ["tls://a:1", "tcp://b:1", "tls://c:1?certificate=x", "sp+wss://d:1/?origins=http://e"]
    assert tls.complete(given, ()) == [
        (
            f"tls://a:1?{options}",
            "tcp://b:1",
            "tls://c:1?certificate=x",
            f"sp+wss://d:1/?origins=http://e&{options}",
        ),
        (),
    ]
    assert NO_TLS.complete(given) == [tuple(given)]


def test_options_without_effect_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no address uses TLS"):
        Tls(tls_ca=Path("ca.pem")).complete(["tcp://a:1"], ["tls://a:1?certificate=x"])
