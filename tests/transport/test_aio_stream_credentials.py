"""What a stream knows about its peer."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from requite.principal import Credential
from requite.transport.address import Address, IpcAddress, parse_address
from requite.transport.aio import dial, listen


class Waiting:
    """The owner of a stream whose events do not matter."""

    def received(self, link: object, chunk: bytes) -> None: ...
    def blocked(self, link: object) -> None: ...
    def writable(self, link: object) -> None: ...
    def closed(self, link: object, reason: str) -> None: ...


async def _credential_at(address: Address) -> Credential | None:
    """Connect to an address, and return what the listener knows about the peer."""
    found: asyncio.Future[Credential | None] = asyncio.get_running_loop().create_future()
    dialled = []

    def accept(stream: object) -> None:
        stream.start(Waiting(), None)  # type: ignore[attr-defined]
        found.set_result(stream.peer_credential)  # type: ignore[attr-defined]
        stream.abort()  # type: ignore[attr-defined]

    def connected(stream: object) -> None:
        stream.start(Waiting(), None)  # type: ignore[attr-defined]
        dialled.append(stream)

    listener = await listen(address, accept)
    try:
        await dial(listener.address, connected)
        return await found
    finally:
        listener.close()
        for stream in dialled:
            stream.abort()


@pytest.mark.skipif(sys.platform != "linux", reason="SO_PEERCRED is Linux's")
async def test_a_unix_socket_knows_the_user_id_of_its_peer(tmp_path: Path) -> None:
    found = await _credential_at(IpcAddress(str(tmp_path / "socket")))
    assert found == Credential("local", (str(os.getuid()),))


async def test_a_tcp_socket_knows_nothing_about_its_peer() -> None:
    assert await _credential_at(parse_address("tcp://127.0.0.1:0")) is None
