"""The keys of broker, workers and clients are replaced under load: no call fails."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

import requite
from requite.broker import Broker
from requite.shell.curve import create_key_file

pytestmark = pytest.mark.e2e

CALL_S = 60.0


@requite.service("echo")
async def echo(request: requite.Request) -> bytes:
    """Return the body of the request."""
    return request.body


class Fleet:
    """A broker, and the key files of all parties."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = count()
        self.publish(self.replace("server.key"))
        self.peer_keys = [self.replace("peer.key")]
        self.admit()

    def replace(self, name: str, *, keep_old: bool = False) -> str:
        """Put a new secret key into a file, by renaming; return its public key."""
        new = self.folder / f"new-{next(self._numbers)}"
        key = create_key_file(new)
        path = self.folder / name
        if keep_old:
            with new.open("a") as file:
                file.write(path.read_text())
        new.replace(path)
        return key

    def drop_old(self, name: str) -> None:
        """Leave only the first key of a file."""
        path = self.folder / name
        new = self.folder / f"new-{next(self._numbers)}"
        new.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
        new.chmod(0o600)
        new.replace(path)

    def publish(self, server_key: str) -> None:
        """Give clients and workers the server key."""
        (self.folder / "server.new").write_text(server_key)
        (self.folder / "server.new").replace(self.folder / "server.pub")

    def admit(self) -> None:
        """Write the list of admitted keys."""
        (self.folder / "clients.keys").write_text("\n".join(self.peer_keys))

    def url(self, broker: Broker) -> str:
        place = broker.endpoints[0].replace("tcp://", "mdp://")
        keys = f"curve={self.folder}/server.pub&curve_key_file={self.folder}/peer.key"
        return f"{place}?service=echo&{keys}"


async def test_rotation_of_all_keys_under_load(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    listener = requite.CurveListener(tmp_path / "server.key", tmp_path / "clients.keys")
    over = asyncio.Event()
    calls = [0]

    async with Broker("tcp://127.0.0.1:0", curve=listener) as broker:

        async def load_until_over() -> None:
            """Call over one connection all the time, and over new ones again and again."""
            async with requite.AsyncClient(fleet.url(broker)) as kept:
                while not over.is_set():
                    async with requite.AsyncClient(fleet.url(broker)) as fresh:
                        for client in (kept, fresh):
                            reply = await client.call(b"x", timeout=CALL_S, idempotent=False)
                            assert reply.body == b"x"
                            calls[0] += 1

        async def some_calls() -> None:
            wanted = calls[0] + 20
            while calls[0] < wanted:
                await asyncio.wait(loads, timeout=0.01)
                for load in loads:
                    if load.done():
                        load.result()

        def worker() -> requite.Worker:
            return requite.Worker(fleet.url(broker).replace("service=echo&", ""), echo)

        first = worker()
        await first.start()
        loads = [asyncio.ensure_future(load_until_over()) for _ in range(2)]
        await some_calls()
        # the broker's key
        new_key = fleet.replace("server.key", keep_old=True)
        await some_calls()
        fleet.publish(new_key)
        second = worker()
        await second.start()
        await some_calls()
        await first.drain()
        fleet.drop_old("server.key")
        await some_calls()
        assert listener.public_keys == [new_key]
        # the key of clients and workers
        new = create_key_file(tmp_path / "next.key")
        fleet.peer_keys.append(new)
        fleet.admit()
        await some_calls()
        (tmp_path / "next.key").replace(tmp_path / "peer.key")
        third = worker()
        await third.start()
        await some_calls()
        await second.drain()
        fleet.peer_keys.pop(0)
        fleet.admit()
        await some_calls()
        over.set()
        await asyncio.gather(*loads)
        await third.drain()
    assert calls[0] >= 140
