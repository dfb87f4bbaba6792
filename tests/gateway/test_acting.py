"""Requests for users of HTTP at a broker that knows them, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tests.cli.command import WAIT_S, Running, running, write_users
from tests.gateway.rig import events_of

import requite
from requite.access.passwords import hash_password
from requite.access.tokens import hash_token, new_token
from requite.client.acting import acting_for
from requite.errors import Denied

pytestmark = pytest.mark.e2e

SERVICE = """
from collections.abc import AsyncIterator
from pathlib import Path
import asyncio

import requite

who = requite.Service("who")


@who.method
async def asks(number: int, context: requite.Context) -> str:
    return context.principal


@who.method
async def repeats(number: int, context: requite.Context) -> AsyncIterator[str]:
    for _ in range(number):
        yield context.principal


@who.method
async def holds(name: str, context: requite.Context) -> str:
    Path(name).touch()
    while Path(name).exists():
        await asyncio.sleep(0.01)
    return context.principal
"""
PASSWORD = "a pässword"
HASHED = hash_password(PASSWORD)
NAMES = ("alice", "bob", "carol", "dave", "erin")
TOKENS = {name: new_token() for name in NAMES}
ALL = 'call = ["who.*"]'
OF_THE_GATEWAY = "".join(
    f'[user.{name}]\ntoken = "{hash_token(TOKENS[name])}"\n{ALL}\n' for name in NAMES
)
OF_THE_GATEWAY += f"[user.guest]\nanonymous = true\n{ALL}\n"
OF_THE_BROKER = f"""
[user.gateway]
password = "{HASHED}"
act = ["alice", "bob", "carol", "dave", "guest"]
call = ["who.describe"]

[user.worker]
password = "{HASHED}"
serve = ["who.*"]

[user.alice]
password = "{HASHED}"
{ALL}
[user.bob]
{ALL}
[user.carol]
call = ["who.repeats"]
[user.erin]
{ALL}
[user.guest]
{ALL}
"""


class Scene(NamedTuple):
    """A gateway behind which the broker knows the users."""

    http: httpx.Client
    broker: Running
    place: str
    folder: Path

    def post(self, method: str, body: Any, user: str = "") -> httpx.Response:
        """Send a request of a user; "" for one without Authorization."""
        fields = {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
        return self.http.post(f"/who.{method}", json=body, headers=fields)

    def change(self, text: str) -> None:
        """Replace the access file of the broker, and have it read."""
        write_access(self.folder / "broker.toml", text)
        self.broker.send(signal.SIGHUP)


def write_access(path: Path, text: str) -> str:
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_text(text)
    os.replace(new, path)
    return str(path)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "who.py").write_text(SERVICE)
    access = write_access(tmp_path / "broker.toml", OF_THE_BROKER)
    mine = write_access(tmp_path / "gateway.toml", OF_THE_GATEWAY)
    files = {
        user: str(write_users(tmp_path / user, f"{user}:{PASSWORD}\n"))
        for user in ("gateway", "worker")
    }
    with running("broker", "--bind", "tcp://127.0.0.1:0", "--access", access) as broker:
        place = broker.line().removeprefix("listening on tcp://").strip()
        url = f"mdp://{place}"
        serving = ("who:who", "--connect", url, "--credentials-file", files["worker"])
        with running("worker", *serving, cwd=tmp_path) as worker:
            assert "who.asks" in worker.line()
            options = ("--http", ":0", "--access", mine, "--credentials-file", files["gateway"])
            with running("gateway", url, "who", *options) as gateway:
                base = gateway.line().removeprefix("listening on ").strip()
                with httpx.Client(base_url=base, timeout=WAIT_S) as http:
                    yield Scene(http, broker, place, tmp_path)


def test_a_method_sees_the_user_of_the_request(scene: Scene) -> None:
    for user in ("alice", "bob", "alice"):
        assert scene.post("asks", 1, user).json() == user
        events = events_of(scene.post("repeats", 2, user).text)
        assert events == [("", user), ("", user), ("end", {})]
    assert scene.post("asks", 1).json() == "guest"


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("carol", "carol has no right to call 'who.asks'"),
        ("dave", "has no user 'dave', for whom gateway asks"),
        ("erin", "gateway has no right to act for 'erin'"),
    ],
)
def test_the_broker_refuses_what_the_gateway_alone_would_allow(
    scene: Scene, user: str, reason: str
) -> None:
    answer = scene.post("asks", 1, user)
    assert answer.status_code == 403
    problem = answer.json()
    assert (problem["error"], problem["may_have_executed"]) == ("Denied", False)
    assert reason in problem["detail"]
    assert scene.post("asks", 1, "bob").json() == "bob"


def test_a_stream_of_a_user_without_the_right_is_refused(scene: Scene) -> None:
    assert events_of(scene.post("repeats", 1, "carol").text)[0] == ("", "carol")
    answer = scene.post("repeats", 1, "dave")
    assert "has no user 'dave'" in answer.text
    assert answer.status_code == 403


def test_a_request_in_progress_ends_when_its_user_loses_the_right(scene: Scene) -> None:
    file = scene.folder / "held"
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(scene.post, "holds", str(file), "alice")
        while not file.exists():
            assert not asking.done(), asking.result().text
        lost = OF_THE_BROKER.replace(f"[user.bob]\n{ALL}", "[user.bob]")
        scene.change(lost.replace(f'password = "{HASHED}"\n{ALL}', ""))
        problem = asking.result(WAIT_S).json()
    assert (problem["status"], problem["error"]) == (403, "Denied")
    assert problem["may_have_executed"] is True
    assert "alice has no right to call 'who.holds'" in problem["detail"]
    assert scene.post("asks", 1).json() == "guest"
    file.unlink()


async def test_a_client_without_the_right_to_act_is_refused(scene: Scene) -> None:
    url = f"mdp://alice:a%20p%C3%A4ssword@{scene.place}/who.asks"
    async with requite.AsyncClient(url, timeout=WAIT_S) as alice:
        assert (await alice.call(b"1")).body == b'"alice"'
        for user in ("bob", "nobody", "alice"):
            with pytest.raises(Denied, match=f"alice has no right to act for '{user}'"):
                await acting_for(alice, user).call(b"1")
        assert (await alice.call(b"1")).body == b'"alice"'
