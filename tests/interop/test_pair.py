"""A DEALER of libzmq connects to a server of a pair: as an operator, and as its peer."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from requite.pair import Pair, State

pytestmark = pytest.mark.interop

# From docs/protocols/binary-star.md, "Messages".
ASK = b"BSTAR\x01\x03"
HEARTBEAT = b"BSTAR\x01\x01"
WAIT_MS = 10_000


def heartbeat(state: int, epoch: int, number: int) -> bytes:
    """Return a heartbeat of a backup with an interval of 1 s."""
    return HEARTBEAT + struct.pack("!BBBIQQQQQ", 2, state, 0, 1000, epoch, 77, number, 0, 0)


@pytest.fixture
async def dealer(tmp_path: Path) -> AsyncIterator[zmq.asyncio.Socket]:
    """A socket that is connected to `pair`."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvtimeo = WAIT_MS
        socket.connect(f"ipc://{tmp_path}/primary")
        yield socket


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A primary whose backup does not run."""
    place = f"ipc://{tmp_path}"
    async with Pair("primary", bind=f"{place}/primary", peer=f"{place}/backup") as pair:
        yield pair


async def test_it_is_asked_and_answers(pair: Pair, dealer: zmq.asyncio.Socket) -> None:
    await dealer.send(ASK)
    (view,) = await dealer.recv_multipart()
    role, state, flags, peer_state, heard_ms, interval_ms, epoch = struct.unpack(
        "!BBBBIIQ", view[7:27]
    )
    assert b"/backup" in view[27:]  # the reason why the backup is not connected
    assert view[:7] == b"BSTAR\x01\x04"
    assert (role, state, flags & 1, peer_state) == (1, 1, 0, 0)
    assert (heard_ms, interval_ms, epoch) == (0xFFFFFFFF, 1000, 0)


async def test_it_takes_a_plain_dealer_for_its_peer(pair: Pair, dealer: zmq.asyncio.Socket) -> None:
    await dealer.send(heartbeat(state=2, epoch=0, number=1))
    (word,) = await dealer.recv_multipart()
    assert word[:7] == HEARTBEAT
    assert word[8] == State.ACTIVE
    assert pair.serves
    await dealer.send(heartbeat(state=3, epoch=2, number=2))  # the backup has taken over
    states = [(await dealer.recv_multipart())[0][8]]
    while states[-1] != State.PASSIVE:
        states.append((await dealer.recv_multipart())[0][8])
    assert not pair.serves
