"""A broker and other listeners with a hook of the user: who gets in, and what happens meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import requite
from requite.access import Authentication
from requite.access.authentication import Authenticate
from requite.access.authenticator import Authenticator
from requite.access.passwords import hash_password
from requite.errors import CallError
from requite.examples import echo
from requite.queue import Queue

pytestmark = pytest.mark.e2e

PASSWORD = "s3cret"
RIGHTS = 'call = ["echo"]\nserve = ["echo"]'


class Hook:
    """Admits the users in `wanted` once `open` is set."""

    def __init__(self, *wanted: str) -> None:
        self.wanted = set(wanted)
        self.asked: list[Authentication] = []
        self.inside = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, peer: Authentication) -> bool:
        self.asked.append(peer)
        self.inside += 1
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return peer.user in self.wanted


def access_file(folder: Path) -> Path:
    hashed = hash_password(PASSWORD)
    users = [f"[user.{name}]\npassword = '{hashed}'\n{RIGHTS}\n" for name in ("ann", "bob")]
    path = folder / "access.toml"
    path.touch(0o600)
    path.write_text("\n".join([*users, f"[user.local]\nlocal = {os.getuid()}\n{RIGHTS}"]))
    return path


def broker(folder: Path, hook: Authenticate | Authenticator) -> requite.Broker:
    return requite.Broker(
        f"ipc://{folder}/socket",
        access=access_file(folder),
        authenticate=hook,
        journal=folder / "journal",
    )


def url(folder: Path, user: str = "") -> str:
    return f"mdp+ipc://{f'{user}:{PASSWORD}@' if user else ''}{folder}/socket"


def files_of(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing reports these changes
            await asyncio.sleep(0.01)


async def test_only_those_whom_the_hook_admits_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook("local", "ann")
    async with (
        broker(tmp_path, hook),
        requite.Worker(url(tmp_path), echo),
        requite.AsyncClient(url(tmp_path, "ann"), service="echo") as ann,
        requite.AsyncClient(url(tmp_path, "bob"), service="echo") as bob,
    ):
        assert (await ann.call(b"hi", timeout=20)).body == b"hi"
        calling = asyncio.ensure_future(bob.call(b"hi", timeout=2))
        async with asyncio.timeout(20):
            assert "(status 400)" in await bob.until_refused()
        with pytest.raises(CallError) as failure:
            await calling
        assert not failure.value.may_have_executed
    assert {peer.user: peer.mechanism for peer in hook.asked} == {
        "local": "LOCAL",
        "ann": "PLAIN",
        "bob": "PLAIN",
    }
    assert "the authenticate hook refuses it" in caplog.text
    journal = b"".join(each.read_bytes() for each in files_of(tmp_path / "journal"))
    assert b"the authenticate hook refuses it" in journal
    assert PASSWORD not in caplog.text + repr(hook.asked)
    assert PASSWORD.encode() not in journal


async def test_a_call_waits_for_the_hook_and_then_succeeds(tmp_path: Path) -> None:
    hook = Hook("local", "ann")
    async with (
        broker(tmp_path, hook),
        requite.Worker(url(tmp_path), echo),
        requite.AsyncClient(url(tmp_path), service="echo") as first,
    ):
        assert (await first.call(b"hi", timeout=20)).body == b"hi"
        hook.open.clear()
        async with requite.AsyncClient(url(tmp_path, "ann"), service="echo") as ann:
            calling = asyncio.ensure_future(ann.call(b"late", timeout=20))
            await until(lambda: hook.inside)
            assert (await first.call(b"hi", timeout=20)).body == b"hi", "others go on"
            assert not calling.done()
            hook.open.set()
            assert (await calling).body == b"late"


async def test_a_peer_that_hangs_up_meanwhile_is_forgotten(tmp_path: Path) -> None:
    hook = Hook("local")
    hook.open.clear()
    async with broker(tmp_path, hook):
        async with requite.AsyncClient(url(tmp_path), service="echo") as client:
            calling = asyncio.ensure_future(client.call(b"hi", timeout=20))
            await until(lambda: hook.inside == 1)
            calling.cancel()
        await until(lambda: hook.inside == 0)


@pytest.mark.parametrize("late", [False, True])
async def test_peers_retry_when_the_hook_fails_or_is_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    tries = 0

    async def hook(_peer: Authentication) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            if late:
                await asyncio.Event().wait()
            raise OSError(f"ldap://admin:{PASSWORD}@host does not answer")
        return True

    async with (
        broker(tmp_path, Authenticator(hook, timeout=0.1)),
        requite.AsyncClient(url(tmp_path, "ann"), service="echo") as ann,
    ):
        calling = asyncio.ensure_future(ann.call(b"hi", timeout=20))
        await until(lambda: tries == 1)
        async with requite.Worker(url(tmp_path), echo):
            assert (await calling).body == b"hi"
    why = "did not answer within 0.1 s" if late else "raised OSError in test_authenticate_hook.py"
    assert f"cannot be admitted: the authenticate hook {why}" in caplog.text
    assert PASSWORD not in caplog.text


async def test_closing_the_broker_ends_the_hooks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook()
    hook.open.clear()
    async with requite.AsyncClient(url(tmp_path), service="echo") as client:
        async with broker(tmp_path, hook):
            calling = asyncio.ensure_future(client.call(b"hi", timeout=20))
            await until(lambda: hook.inside)
        assert hook.inside == 0
        calling.cancel()
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def send(peer: socket.socket, data: bytes) -> int:
    """Return how many bytes could be sent without waiting."""
    try:
        return peer.send(data)
    except BlockingIOError:
        return 0


async def test_little_is_read_from_a_peer_that_does_not_wait(tmp_path: Path) -> None:
    """A stranger to SP's rules sends as much as it can while the hook is asked about it."""
    hook = Hook()
    hook.open.clear()
    place = f"{tmp_path}/socket"
    worker = requite.Worker(
        echo, bind=f"sp+ipc://{place}", access=access_file(tmp_path), authenticate=hook
    )
    async with worker:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(place)
            peer.send(b"\0SP\0\0\x30\0\0")  # a REQ; then messages over IPC
            await until(lambda: hook.inside)
            peer.setblocking(False)
            message = b"\x01" + (1 << 16).to_bytes(8, "big") + bytes(1 << 16)
            sent = 0
            while (size := send(peer, message)) and sent < 64 << 20:
                sent += size
                await asyncio.sleep(0)
            assert 0 < sent < 8 << 20


async def test_a_queue_asks_its_hook_about_clients_and_workers(tmp_path: Path) -> None:
    hook = Hook("local")
    front, back = f"ipc://{tmp_path}/front", f"ipc://{tmp_path}/back"
    async with (
        Queue(front, back, access=access_file(tmp_path), authenticate=hook),
        requite.Worker(f"pirate+{back}", echo),
        requite.AsyncClient(f"pirate+{front}") as client,
    ):
        assert (await client.call(b"hi", timeout=20)).body == b"hi"
    assert {peer.address for peer in hook.asked} == {front, back}
