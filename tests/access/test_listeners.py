"""Who may connect to each kind of listener, and which addresses it takes without an access file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import requite
from requite.errors import CallError, ConfigurationError
from requite.examples import echo
from requite.pair import Pair
from requite.queue import Queue
from requite.sp import Device, Rep, Req

OPEN = "0.0.0.0"


def _access_file(folder: Path, text: str) -> Path:
    path = folder / "access.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


LISTENERS: dict[str, Callable[[bool], object]] = {
    "broker": lambda ok: requite.Broker(f"tcp://{OPEN}:0", insecure=ok),
    "sp worker": lambda ok: requite.Worker(echo, bind=f"sp+tcp://{OPEN}:0", insecure=ok),
    "freelance worker": lambda ok: requite.Worker(echo, bind=f"flp://{OPEN}:0", insecure=ok),
    "pirate worker": lambda ok: requite.Worker(echo, bind=f"pirate://{OPEN}:0", insecure=ok),
    "websocket worker": lambda ok: requite.Worker(echo, bind=f"sp+ws://{OPEN}:0/x", insecure=ok),
    "queue front": lambda ok: Queue(f"tcp://{OPEN}:0", "tcp://127.0.0.1:0", insecure=ok),
    "queue back": lambda ok: Queue("tcp://127.0.0.1:0", f"tcp://{OPEN}:0", insecure=ok),
    "device front": lambda ok: Device(f"sp+tcp://{OPEN}:0", "sp+tcp://127.0.0.1:0", insecure=ok),
    "device back": lambda ok: Device("sp+tcp://127.0.0.1:0", f"sp+tcp://{OPEN}:0", insecure=ok),
    "pair": lambda ok: Pair(
        "primary", bind=f"tcp://{OPEN}:0", peer="tcp://127.0.0.1:1", insecure=ok
    ),
    "client": lambda ok: requite.AsyncClient(bind=f"sp+tcp://{OPEN}:0", insecure=ok),
}


@pytest.mark.parametrize("kind", LISTENERS)
def test_without_users_a_listener_takes_no_address_that_others_reach(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="everybody there could use it"):
        LISTENERS[kind](False)
    assert LISTENERS[kind](True) is not None


def test_the_blocking_client_refuses_before_it_listens() -> None:
    with pytest.raises(ConfigurationError, match="everybody there could use it"):
        requite.Client(bind=f"sp+tcp://{OPEN}:0")
    with requite.Client(bind=f"sp+tcp://{OPEN}:0", insecure=True) as client:
        assert client.addresses


@pytest.mark.parametrize("make", [Rep, Req])
async def test_sockets_refuse_when_they_are_to_listen(make: type[Rep] | type[Req]) -> None:
    async with make() as guarded:
        with pytest.raises(ConfigurationError, match="everybody there could use it"):
            await guarded.listen(f"sp+tcp://{OPEN}:0")
    async with make(insecure=True) as unguarded:
        assert await unguarded.listen(f"sp+tcp://{OPEN}:0")


def test_an_access_file_lets_a_listener_take_any_address(tmp_path: Path) -> None:
    path = _access_file(tmp_path, "[user.shop]\ntls = 'CN=shop'")
    assert requite.Broker(f"tcp://{OPEN}:0", access=path) is not None
    assert requite.Worker(echo, bind=f"sp+tcp://{OPEN}:0", access=path) is not None


def test_users_and_an_access_file_contradict_each_other(tmp_path: Path) -> None:
    path = _access_file(tmp_path, "")
    with pytest.raises(ConfigurationError, match="`access` or `users`"):
        requite.Broker(access=path, users={"a": "b"})


@pytest.mark.parametrize("granted", [True, False])
async def test_a_worker_admits_the_users_who_may_call_it(tmp_path: Path, granted: bool) -> None:
    rights = 'call = ["echo"]' if granted else 'call = ["other"]'
    path = _access_file(tmp_path, f"[user.me]\nlocal = {os.getuid()}\n{rights}")
    url = f"sp+ipc://{tmp_path}/socket"
    seen: list[str] = []

    @requite.service("echo")
    async def tell(request: requite.Request) -> bytes:
        seen.append(request.service)
        return request.body

    async with (
        requite.Worker(tell, bind=url, access=path),
        requite.AsyncClient(url) as client,
    ):
        if granted:
            assert (await client.call(b"hi", timeout=10)).body == b"hi"
        else:
            with pytest.raises(CallError):  # SP cannot say why
                await client.call(b"hi", timeout=1)
    assert seen == (["echo"] if granted else [])


async def test_a_queue_and_a_device_turn_away_peers_that_are_no_users(tmp_path: Path) -> None:
    path = _access_file(tmp_path, "[user.other]\nlocal = 4000000000")
    queue = Queue(f"ipc://{tmp_path}/front", f"ipc://{tmp_path}/back", access=path)
    device = Device(f"sp+ipc://{tmp_path}/near", f"sp+ipc://{tmp_path}/far", access=path)
    async with queue, device:
        for url in (f"pirate+ipc://{tmp_path}/front", f"sp+ipc://{tmp_path}/near"):
            async with requite.AsyncClient(url) as client:
                with pytest.raises(CallError):
                    await client.call(b"hi", timeout=0.5)


WITH_ACCESS: dict[str, Callable[[str, Path], requite.Broker | requite.Worker | Queue | Device]] = {
    "broker": lambda place, path: requite.Broker(f"ipc://{place}", access=path),
    "worker": lambda place, path: requite.Worker(echo, bind=f"flp+ipc://{place}", access=path),
    "queue": lambda place, path: Queue(f"ipc://{place}", "inproc://back", access=path),
    "device": lambda place, path: Device(f"sp+ipc://{place}", f"sp+ipc://{place}2", access=path),
}


@pytest.mark.parametrize("kind", WITH_ACCESS)
async def test_all_listeners_but_the_broker_warn_of_quotas_of_requests(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _access_file(tmp_path, "[user.me]\nlocal = 1\n[quota.default]\nrequests = 1")
    async with WITH_ACCESS[kind](f"{tmp_path}/socket", path):
        pass
    told = caplog.text.count("these limits of requests of users: me (requests)")
    assert told == (0 if kind == "broker" else 1)


async def test_a_change_of_the_file_reaches_open_connections(tmp_path: Path) -> None:
    me = f"[user.me]\nlocal = {os.getuid()}\n"
    path = _access_file(tmp_path, me + 'call = ["echo"]')
    url = f"sp+ipc://{tmp_path}/socket"
    async with (
        requite.Worker(echo, bind=url, access=path),
        requite.AsyncClient(url) as client,
    ):
        assert (await client.call(b"hi", timeout=10)).body == b"hi"
        path.write_text(me + 'call = ["nothing"]')
        async with asyncio.timeout(20):
            while await _answers(client):
                pass


async def _answers(client: requite.AsyncClient) -> bool:
    try:
        await client.call(b"hi", timeout=0.3)
    except CallError:
        return False
    return True
