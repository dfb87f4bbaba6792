"""The ZeroMQ socket types of broker and clients, as seen over a connection on the loopback
interface.

The test uses our own ZMTP; `tests/interop` shows that libzmq agrees with it.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.spec.requirement import requirement
from tests.wire.majordomo_samples import MDP_01, MDP_02

from requite.broker import Broker
from requite.client.aio import AsyncClient
from requite.framing import SocketType, Zmtp
from requite.protocols.majordomo.wire import ClientFinal, ClientRequest

REQUESTS = {
    "0.1": MDP_01.encode(ClientRequest(b"echo", [b"hello"], 0, 0, 0, b"")),
    "0.2": MDP_02.encode(ClientRequest(b"echo", [b"hello"], 0, 0, 0, b"")),
}
REPLIES = {
    "0.1": MDP_01.encode(ClientFinal(b"echo", [b"hi"], 0, 0, 1)),
    "0.2": MDP_02.encode(ClientFinal(b"echo", [b"hi"], 0, 0, 1)),
}


class Peer:
    """The test's end of a connection, which speaks our own ZMTP."""

    def __init__(
        self, kind: SocketType, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.zmtp = Zmtp(kind)
        self.reader = reader
        self.writer = writer
        writer.write(self.zmtp.opening())

    async def receive(self) -> list[list[bytes]]:
        """Read once; return the messages received. Raises `EOFError` at the end of the stream."""
        chunk = await self.reader.read(1 << 16)
        if not chunk:
            raise EOFError
        messages = self.zmtp.receive(chunk)
        self.writer.write(self.zmtp.output())
        return messages

    async def first(self) -> list[list[bytes]]:
        """Return the messages of the first read that completes any."""
        while not (messages := await self.receive()):
            pass
        return messages

    async def send(self, *frames: bytes) -> None:
        """Send one message, after the handshake."""
        while not self.zmtp.ready:
            assert not await self.receive()
        out: list[bytes] = []
        self.zmtp.encode(frames, out)
        self.writer.write(b"".join(out))

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()


@requirement("mdp01:broker:router", "mdp02:broker:router", "mdp01:broker:one-socket")
@pytest.mark.parametrize(("kind", "empty"), [(SocketType.DEALER, [b""]), (SocketType.REQ, [])])
async def test_a_broker_is_a_router(kind: SocketType, empty: list[bytes]) -> None:
    async with Broker("tcp://127.0.0.1:0") as broker:
        host, _, port = broker.endpoints[0].removeprefix("tcp://").rpartition(":")
        peer = Peer(kind, *await asyncio.open_connection(host, int(port)))
        await peer.send(*empty, b"MDPC01", b"mmi.service", b"echo")  # a REQ adds the frame itself
        assert await peer.first() == [[*empty, b"MDPC01", b"mmi.service", b"404"]]
        assert peer.zmtp.peer_socket_type is SocketType.ROUTER
        await peer.close()


@requirement("mdp02:client:dealer", "mdp01:client:empty-frame")
@pytest.mark.parametrize("version", ["0.1", "0.2"])
async def test_a_client_is_a_dealer(version: str) -> None:
    joined: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined.set_result(Peer(SocketType.ROUTER, reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"mdp://127.0.0.1:{port}/echo", dialect=version) as client:
            call = asyncio.ensure_future(client.call(b"hello"))
            peer = await joined
            assert await peer.first() == [REQUESTS[version]]
            assert peer.zmtp.peer_socket_type is SocketType.DEALER
            await peer.send(*REPLIES[version])
            assert (await call).body == b"hi"
        await peer.close()
