"""`requite broker --access` and `requite access`: denied at once, with a reason, and no secret."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.command import (
    Ended,
    Running,
    requite,
    running,
    running_broker,
    running_worker,
    write_users,
)
from tests.support.live import eventually

from requite import Client
from requite.access.passwords import hash_password
from requite.cli.exit_codes import ExitCode
from requite.errors import CallError, Denied

pytestmark = pytest.mark.e2e

SECRET = "s3cret-of-shop"
HASHES = {name: hash_password(f"s3cret-of-{name}") for name in ("shop", "echoer", "ops")}


class Scene:
    """An access file, and the credentials of its users."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "access.toml"
        self.write()
        for name in HASHES:
            write_users(folder / name, f"{name}:s3cret-of-{name}\n")
        write_users(folder / "guess", "shop:guessed\n")
        self.folder = folder

    def write(self, shop: str = 'call = ["price"]') -> None:
        """Write the file, with these rights of the shop."""
        rights = {"shop": shop, "echoer": 'serve = ["echo"]', "ops": 'admin = ["*"]\ncall = ["*"]'}
        users = (
            f'[user.{n}]\npassword = "{HASHES[n]}"\n{rights[n]}\n' for n in rights if rights[n]
        )
        new = self.path.with_suffix(".new")
        write_users(new, "\n".join(users))
        new.replace(self.path)

    def of(self, user: str) -> tuple[str, str]:
        """Return the options with the credentials of a user."""
        return "--credentials-file", str(self.folder / user)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@contextmanager
def guarded(scene: Scene, *options: str) -> Iterator[tuple[Running, str]]:
    """A broker with the access file, and a worker of its user `echoer`."""
    with (
        running_broker("--access", str(scene.path), *options) as (broker, url),
        running_worker("requite.examples:echo", "--connect", url, *scene.of("echoer")),
    ):
        yield broker, url


def call(url: str, scene: Scene, user: str) -> Ended:
    return requite("call", f"{url}/echo", "hi", "--timeout", "20", *scene.of(user))


def test_who_has_the_right_is_served_and_who_has_not_is_denied_at_once(scene: Scene) -> None:
    with guarded(scene) as (_broker, url):
        assert call(url, scene, "ops").out == "hi"
        denied = call(url, scene, "shop")
        assert denied.code == ExitCode.FAILED
        assert "shop has no right to call 'echo'" in denied.err
        assert "the request has not run" in denied.err
        assert "`requite access whoami" in denied.err
        assert requite("access", "whoami", url, *scene.of("shop")).out == (
            "shop\n  call     price\n"
        )
        assert requite("services", url, *scene.of("shop")).code == ExitCode.FAILED
        assert "echo" in requite("services", url, *scene.of("ops")).out


def test_a_worker_of_another_user_waits_and_says_why(scene: Scene) -> None:
    """Attack 1 of the security design, with real processes."""
    with (
        guarded(scene) as (_broker, url),
        running("worker", "requite.examples:echo", "--connect", url, *scene.of("shop")) as thief,
    ):
        while "shop has no right to serve 'echo'" not in (line := thief.error_line()):
            assert "waiting to serve echo" in line
        assert call(url, scene, "ops").out == "hi"


def test_rights_change_while_calls_run_and_no_other_call_fails(scene: Scene) -> None:
    """Invariant I19 of the security design: a reload fails no call of who keeps its rights."""
    with guarded(scene, "-v") as (broker, url):
        place = url.replace("mdp://", "mdp://{0}:s3cret-of-{0}@")
        with (
            Client(f"{place.format('ops')}/echo", timeout=20) as ops,
            Client(f"{place.format('shop')}/echo", timeout=20) as shop,
        ):
            with pytest.raises(Denied) as failure:
                shop.call(b"hi")
            assert not failure.value.may_have_executed

            scene.write(shop='call = ["echo"]')
            eventually(lambda: _answers(ops) and _answers(shop), "the shop may call")
            scene.write(shop="this is not TOML")
            broker.send(signal.SIGHUP)
            while "remain as they were" not in broker.error_line():
                assert _answers(ops)
            assert _answers(shop)
            scene.write(shop="")
            broker.send(signal.SIGHUP)
            eventually(lambda: _answers(ops) and not _answers(shop, 0.5), "the shop is gone")
            assert all(_answers(ops) for _ in range(100))


def _answers(client: Client, timeout: float = 20.0) -> bool:
    try:
        return client.call(b"hi", timeout=timeout).body == b"hi"
    except CallError:
        return False


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ((), 0, "access.toml is valid: 3 users"),
        (("shop", "call", "price"), 0, "allowed: shop call price: 'price' in its call matches"),
        (("shop", "serve", "price"), 1, "denied: shop serve price: it has no serve (line 1 of"),
    ],
)
def test_decisions_are_explained(words: tuple[str, ...], code: int, out: str, scene: Scene) -> None:
    ended = requite("access", "check", str(scene.path), *words)
    assert ended.code == code
    assert out in ended.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nobody", "call", "x"), "has no user 'nobody': shop, echoer, ops"),
        (("shop", "eat", "x"), "VERB is one of call, serve, titanic, pool, admin, act"),
        (("shop", "call"), "give USER, VERB and NAME"),
    ],
)
def test_questions_that_make_no_sense_get_a_sentence(
    words: tuple[str, ...], message: str, scene: Scene
) -> None:
    ended = requite("access", "check", str(scene.path), *words)
    assert ended.code == ExitCode.USAGE
    assert message in ended.err


def test_a_bad_file_prevents_the_start(scene: Scene) -> None:
    scene.path.write_text("[user.shop]\ncalls = []")
    ended = requite("broker", "--access", str(scene.path))
    assert ended.code == ExitCode.USAGE
    assert "line 2 of" in ended.err
    assert "did you mean 'call'?" in ended.err


def test_without_an_access_file_a_broker_stays_on_its_machine() -> None:
    ended = requite("broker", "--bind", "tcp://0.0.0.0:0")
    assert ended.code == ExitCode.USAGE
    assert "`--insecure`" in ended.err
    with running("broker", "--bind", "tcp://0.0.0.0:0", "--insecure") as broker:
        assert broker.line().startswith("listening on tcp://0.0.0.0:")


def test_a_hash_is_made_from_standard_input() -> None:
    ended = requite("access", "hash", stdin=f"{SECRET}\n".encode())
    assert ended.out.startswith("scrypt$")
    assert requite("access", "hash", stdin=b"\n").code == ExitCode.USAGE


def test_no_secret_is_shown_or_journaled(scene: Scene, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with guarded(scene, "-vv", "--journal", str(journal)) as (broker, url):
        told = [
            call(url, scene, "ops"),
            call(url, scene, "shop"),
            call(url, scene, "guess"),
            requite("access", "check", str(scene.path)),
            requite("access", "whoami", url, *scene.of("shop"), "-vv"),
        ]
        command_line = Path(f"/proc/{broker.process.pid}/cmdline").read_text()
        broker.send(signal.SIGTERM)
        code, out, log = broker.end()
    assert code == 0
    shown = [command_line, out, log, *(ended.out + ended.err for ended in told)]
    shown += [path.read_bytes().decode("latin-1") for path in journal.rglob("*") if path.is_file()]
    secrets = ["s3cret-of-", "guessed", *(hashed[15:] for hashed in HASHES.values())]
    assert [text for text in shown if any(secret in text for secret in secrets)] == []
    assert any("no right to call" in text for text in shown[5:])  # the journal has the denial
