"""`requite gateway`, with real processes; the client is curl."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import WAIT_S, Running, requite, running
from tests.support.certificates import Certificates

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
]

SERVICE = """
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import requite

shop = requite.Service("shop")


@shop.method
async def double(number: int) -> int:
    return 2 * number


@shop.method
async def wait(name: str) -> str:
    Path(name).touch()
    while Path(name).exists():
        await asyncio.sleep(0.01)
    return name
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "shop.py").write_text(SERVICE)
    with running("broker", "--bind", "tcp://127.0.0.1:0") as listening:
        url = listening.line().removeprefix("listening on tcp://").strip()
        with running("worker", "shop:shop", "--connect", f"mdp://{url}", cwd=tmp_path) as worker:
            assert "shop.double" in worker.line()
            yield f"mdp://{url}"


def url_of(gateway: Running) -> str:
    return gateway.line().removeprefix("listening on ").strip()


def curl(*words: str, status: int = 200) -> str:
    """Return what curl prints; check the status of the answer."""
    done = subprocess.run(
        ["curl", "-sS", "--max-time", str(WAIT_S), "-w", "\n%{http_code}", *words],
        capture_output=True, text=True, timeout=2 * WAIT_S, check=True,
    )  # fmt: skip
    body, _, code = done.stdout.rpartition("\n")
    assert int(code) == status, body
    return body


def test_a_call_with_curl(broker: str) -> None:
    with running("gateway", broker, "--http", ":0") as gateway:
        url = url_of(gateway)
        assert url.startswith("http://127.0.0.1:")
        assert curl(f"{url}/shop.double", "--json", "4") == "8"
        assert curl(f"{url}/shop.double", "--json", "4", "--http1.0") == "8"
        chunked = ("-H", "Transfer-Encoding: chunked", "-H", "Expect: 100-continue")
        assert curl(f"{url}/shop.double", "--json", "4", *chunked) == "8"
        problem = json.loads(curl(f"{url}/shop.double", "--json", '"x"', status=400))
        assert (problem["error"], problem["may_have_executed"]) == ("BadRequest", False)
        assert "ready" in curl(f"{url}/ready")
        gateway.send(signal.SIGTERM)
        assert gateway.end()[0] == 0


def test_a_large_body_gets_its_answer(broker: str, tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * (8 << 20))
    with running("gateway", broker, "--http", ":0") as gateway:
        upload = ("--json", f"@{tmp_path / 'large.json'}")
        problem = json.loads(curl(f"{url_of(gateway)}/shop.double", *upload, status=413))
        assert problem["error"] == "TooLarge"


def test_sigterm_finishes_the_calls_in_progress(broker: str, tmp_path: Path) -> None:
    file = tmp_path / "held"
    with running("gateway", broker, "--http", ":0") as gateway:
        url = url_of(gateway)
        calling = subprocess.Popen(
            ["curl", "-sS", f"{url}/shop.wait", "--json", json.dumps(str(file))],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        while not file.exists():
            assert calling.poll() is None
        gateway.send(signal.SIGTERM)
        states = iter(lambda: _status(f"{url}/ready"), 503)
        for state in states:  # until the signal has arrived
            assert state == 200
        assert json.loads(curl(f"{url}/shop.double", "--json", "4", status=503))["error"] == (
            "Draining"
        )
        file.unlink()
        assert json.loads(calling.communicate(timeout=WAIT_S)[0]) == str(file)
        assert gateway.end()[0] == 0


def _status(url: str) -> int:
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return int(done.stdout)


def test_tokens_over_https_are_read_again_on_sighup(broker: str, tmp_path: Path) -> None:
    made = requite("access", "token")
    token = made.out.strip()
    line = made.err.partition("for the access file: ")[2]
    assert token not in line
    access = tmp_path / "access.toml"
    access.write_text(f'[user.a]\n{line}call = ["shop.double"]\n')
    access.chmod(0o600)
    files = Certificates(tmp_path)
    options = ("--access", str(access), "--tls-certificate", str(files.server.certificate))
    key = ("--tls-key", str(files.server.key))
    with running("gateway", broker, "--http", "localhost:0", *options, *key) as gateway:
        url = url_of(gateway).replace("127.0.0.1", "localhost").replace("[::1]", "localhost")
        assert url.startswith("https://")
        ca = ("--cacert", str(files.ca))
        (tmp_path / "fields").write_text(f"Authorization: Bearer {token}\n")
        known = (*ca, "-H", f"@{tmp_path / 'fields'}")
        assert curl(f"{url}/shop.double", "--json", "4", *known) == "8"
        assert json.loads(curl(f"{url}/shop.wait", "--json", '"x"', *known, status=403))
        assert json.loads(curl(f"{url}/shop.double", "--json", "4", *ca, status=401))
        access.write_text("# nobody\n")
        gateway.send(signal.SIGHUP)
        while _status_of(f"{url}/shop.double", *known) != 401:
            assert gateway.process.poll() is None


def test_only_clients_with_a_certificate_are_served(broker: str, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    options = ("--tls-certificate", files.server.certificate, "--tls-key", files.server.key)
    with running(
        "gateway", broker, "--http", "localhost:0", *options, "--tls-ca", files.ca
    ) as gateway:
        url = url_of(gateway).replace("127.0.0.1", "localhost").replace("[::1]", "localhost")
        ca = ("--cacert", files.ca)
        known = (*ca, "--cert", files.client.certificate, "--key", files.client.key)
        assert curl(f"{url}/shop.double", "--json", "4", *known) == "8"
        command = ["curl", "-sS", f"{url}/shop.double", "--json", "4", *ca]
        refused = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
        assert (refused.returncode != 0, refused.stdout) == (True, b"")


def _status_of(url: str, *words: str) -> int:
    command = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url, "--json", "4", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("gateway",), 2, "URL"),
        (("gateway", "sp+tcp://127.0.0.1:1"), 2, "service names"),
        (("gateway", "mdp://127.0.0.1:1", "--http", "here"), 2, "HOST:PORT"),
        (("gateway", "mdp://127.0.0.1:1", "--http", "0.0.0.0:0"), 2, "--access"),
        (("gateway", "mdp://127.0.0.1:1", "--tls-key", "a"), 2, "--tls-certificate"),
        (("gateway", "mdp://127.0.0.1:1", "--tls-ca", "a"), 2, "--tls-certificate"),
        (("gateway", "mdp://127.0.0.1:1", "--timeout", "9", "--timeout-max", "1"), 2, "timeout"),
        (("gateway", "mdp://127.0.0.1:1/orders", "--check"), 2, "after the URL: `URL orders`"),
        (("gateway", "mdp://127.0.0.1:1", "--timeout-max", "inf"), 2, "finite"),
        (("gateway", "mdp://127.0.0.1:1", "--host", "https://door.example"), 2, "--host"),
        (("gateway", "mdp://127.0.0.1:1", "--host", "door.example:8443"), 2, "--host"),
        (("gateway", "mdp://127.0.0.1:1", "--access", "nowhere"), 2, "nowhere"),
        (("gateway", "mdp://127.0.0.1:1", "orders", "--check"), 0, "would listen on"),
    ],
)
def test_arguments(words: tuple[str, ...], code: int, text: str) -> None:
    ended = requite(*words)
    assert ended.code == code
    assert text in ended.out + ended.err
