"""`requite broker --zap`: a handler of ZAP decides about each user of the access file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import requite, running_broker, running_worker, write_users
from tests.support.zap import ZapHandler

from requite.access.passwords import hash_password
from requite.cli.exit_codes import ExitCode

pytestmark = pytest.mark.e2e

SECRET = "s3cret"


@pytest.fixture
def access(tmp_path: Path) -> str:
    rights = 'call = ["echo"]\nserve = ["echo"]'
    users = "".join(
        f"[user.{name}]\npassword = '{hash_password(SECRET)}'\n{rights}\n"
        for name in ("ann", "bob")
    )
    write_users(tmp_path / "access.toml", users)
    for name in ("ann", "bob"):
        write_users(tmp_path / name, f"{name}:{SECRET}\n")
    return str(tmp_path / "access.toml")


def without_bob(request: list[bytes]) -> list[bytes]:
    status = b"400" if b"bob" in request else b"200"
    return [b"1.0", request[1], status, b"account locked", b"", b""]


def test_the_handler_decides(access: str, tmp_path: Path) -> None:
    def of(user: str) -> tuple[str, str]:
        return "--credentials-file", str(tmp_path / user)

    with ZapHandler(without_bob, f"ipc://{tmp_path}/zap") as handler:
        options = ("--access", access, "--zap", handler.url, "--zap-domain", "shop")
        with running_broker(*options) as (broker, url):
            with running_worker("requite.examples:echo", "--connect", url, *of("ann")):
                assert requite("call", f"{url}/echo", "hi", *of("ann")).out == "hi"
                refused = requite("call", f"{url}/echo", "hi", *of("bob"), "--timeout", "20")
                assert refused.code == ExitCode.NO_CONNECTION
                assert "status 400" in refused.err
                assert "the request has not run" in refused.err
            broker.process.terminate()
            code, _out, log = broker.end()
        assert code == 0
    assert "refuses it (status 400): 'account locked'" in log
    assert {request[2] for request in handler.requests} == {b"shop"}
    told = b"".join(b"".join(request) for request in handler.requests).decode("latin-1")
    assert SECRET not in told + log + refused.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--zap", "tcp://127.0.0.1:5"), "--zap requires --access"),
        (("--access", "", "--zap", "tcp://192.0.2.1:5"), "could forge the answers"),
        (("--access", "", "--zap", "mdp://127.0.0.1:5"), "its address is tcp://HOST:PORT"),
        (("--access", "", "--zap", "ipc:///zap", "--zap-domain", ""), "characters of ASCII"),
    ],
)
def test_a_handler_that_cannot_work_is_refused(
    options: tuple[str, ...], told: str, access: str
) -> None:
    options = tuple(option or access if at == 1 else option for at, option in enumerate(options))
    ended = requite("broker", "--bind", "tcp://127.0.0.1:0", *options)
    assert ended.code == ExitCode.USAGE
    assert told in ended.err


def test_a_check_names_the_handler(access: str) -> None:
    ended = requite("broker", "--access", access, "--zap", "ipc:///run/zap.sock", "--check")
    assert (ended.code, ended.err) == (0, "")
    assert "asking the ZAP handler at ipc:///run/zap.sock" in ended.out
