"""Replace every certificate and key, one after another, while calls run: none of them fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

import requite
from requite.examples import echo
from requite.transport import tls_listener

pytestmark = pytest.mark.e2e

CALLERS = 4


class Files:
    """The authority, and the certificates of a broker and its users, each with its key in a file.

    A method replaces one file, as a deployment tool does: by renaming a complete new one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.old, self.new = trustme.CA(), trustme.CA()
        self.trust(self.old)
        for name in ("broker", "worker", "shop"):
            self.issue(name, self.old)

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.pem"

    def trust(self, *authorities: trustme.CA) -> None:
        self._replace("ca", [each.cert_pem for each in authorities])

    def issue(self, name: str, by: trustme.CA) -> None:
        if name == "broker":
            issued = by.issue_cert("127.0.0.1")
        else:
            issued = by.issue_cert(
                common_name=name, organization_name="Example", organization_unit_name="users"
            )
        self._replace(name, [*issued.cert_chain_pems, issued.private_key_pem])

    def _replace(self, name: str, blobs: list[trustme.Blob]) -> None:
        new = self._folder / "new.pem"
        new.write_bytes(b"".join(blob.bytes() for blob in blobs))
        os.replace(new, self.path(name))

    def options(self, name: str) -> str:
        return f"?ca={self.path('ca')}&certificate={self.path(name)}"


class Load:
    """Callers that repeat calls without a pause, over one client, and count the replies."""

    def __init__(self, client: requite.AsyncClient) -> None:
        self._client = client
        self.replies = 0
        self._changed = asyncio.Condition()

    async def call(self, name: int) -> None:
        n = 0
        while True:
            body = b"%d of %d" % (n, name)
            reply = await self._client.call(body)
            assert reply.body == body
            n += 1
            async with self._changed:
                self.replies += 1
                self._changed.notify_all()

    async def until_more(self, count: int) -> None:
        """Wait for `count` further replies."""
        end = self.replies + count
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: self.replies >= end)


@asynccontextmanager
async def under_load(client: requite.AsyncClient) -> AsyncIterator[Load]:
    """Keep calls running; raise the error of the first one that fails."""
    load = Load(client)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(load.call(name)) for name in range(CALLERS)]
        yield load
        for task in tasks:
            task.cancel()


def fingerprints(broker: requite.Broker) -> dict[str, str]:
    """Return the hash of the public key of each user who is connected."""
    credentials = [link.stream.peer_credential for link in broker._shell.host.links]
    return {found.names[1]: found.names[-1] for found in credentials if found is not None}


def reconnect(broker: requite.Broker) -> None:
    """Cut all connections; clients and workers dial again, with the files as they are now."""
    for link in list(broker._shell.host.links):
        link.stream.abort()


async def test_no_call_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_listener, "CHECK_EVERY_S", 0.0)
    files = Files(tmp_path)
    broker = requite.Broker(f"tls://127.0.0.1:0{files.options('broker')}")
    async with broker:
        url = broker.endpoints[0].replace("tls://", "mdp+tls://")
        async with (
            requite.Worker(url + files.options("worker"), echo),
            requite.AsyncClient(f"{url}/echo{files.options('shop')}", timeout=30) as client,
            under_load(client) as load,
        ):
            await load.until_more(20)
            before = fingerprints(broker)
            steps = [
                lambda: files.trust(files.old, files.new),
                lambda: files.issue("broker", files.new),
                lambda: files.issue("worker", files.new),
                lambda: files.issue("shop", files.new),
                lambda: files.trust(files.new),
            ]
            for step in steps:
                step()
                reconnect(broker)
                await load.until_more(20)
            after = fingerprints(broker)
            assert before.keys() == after.keys() == {"CN=worker", "CN=shop"}
            assert not {*before.values()} & {*after.values()}
            # The old authority has no power any more.
            files.issue("shop", files.old)
            refused = requite.AsyncClient(f"{url}/echo{files.options('shop')}")
            async with refused:
                with pytest.raises(requite.CallTimeout):
                    await refused.call(b"x", timeout=0.5)
